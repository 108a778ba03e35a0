"""Masking: which operation on a mask, or on what is added to scores, makes it another than it is used as."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.adapters.recording import Operation, Ref
from qkv.location.blaming import Blame
from qkv.location.frontier import Frontier, Suspect
from qkv.location.kinds import ASSEMBLING, FILLING, HIDING, JOINING, LAYING_OUT, TURNING
from qkv.location.misplaced import first_of
from qkv.recognition import LOW, REPEATED, Sight
from qkv.vocabulary import Stage

SCORED = (Stage.SCORES, Stage.SOFTCAP, Stage.BIAS)
"""Stages of what a mask is applied to."""


def part_of_a_mask(frontier: Frontier) -> tuple[int, int] | None:
    """Where a mask is made that hides less than all there is to hide, and where it is applied; None where none is."""
    for number in sorted(frontier.slice):
        operation = frontier.operation(number)
        made = frontier.sight_of(operation.results)
        hides = made is not None and (made.stage == Stage.MASK or (operation.name in HIDING and made.stage in SCORED))
        if made is None or made.form or not hides:
            continue
        for value, sight in _parts_given(frontier, number):
            maker = next(unknown_behind(frontier, value), first_mask(frontier, value, sight))
            return None if maker is None else (maker, number)
    return None


def _parts_given(frontier: Frontier, number: int) -> Iterator[tuple[int, Sight]]:
    """The masks that an operation is given which are only a part of the one that is meant."""
    for value in frontier.flow.operands(number):
        sight = frontier.recognition.sights[value]
        if sight is not None and sight.form and sight.name != "mask":
            yield value, sight


def hidden_in_part(frontier: Frontier, suspect: Suspect) -> int | None:
    """Where the only mask is made of the scores that a suspect goes on with, if it hides too little; None elsewhere."""
    values, (meant, *_) = frontier.recognition.recording.values, (*frontier.recognition.masks, np.empty(0))
    for value, sight in frontier.sighted(suspect.operation):
        low = values[value].array <= LOW
        if sight.stage != Stage.MASK or low.size != meant.size or low.sum() == (~meant).sum():
            continue
        hiding = [one for one in frontier.flow.behind([value]) if any(_parts_given(frontier, one))]
        hiding = [one for one in hiding if frontier.operation(one).name in HIDING and frontier.sighted(one)]
        for mask, part in _parts_given(frontier, hiding[0]) if len(hiding) == 1 else ():
            return first_mask(frontier, mask, part)
    return None


def first_mask(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """The operation that made a mask, before it was only turned round, cut or laid out; or put it together of parts."""
    maker = frontier.flow.maker(value)
    while maker is not None:
        sights = ((operand, frontier.recognition.sights[operand]) for operand in frontier.flow.operands(maker))
        masks = [(one, other) for one, other in sights if other is not None and other.form]
        nothing = [
            one
            for one in map(frontier.flow.maker, frontier.flow.operands(maker))
            if one is not None and frontier.empty(one)
        ]
        if nothing and frontier.operation(maker).name in JOINING:
            return _first_empty(frontier, nothing[0])  # where the other part belongs
        same = [one for one, other in masks if other.name == sight.name and len(masks) == 1]
        earlier = frontier.flow.maker(same[0]) if same else None
        if earlier is None:
            return maker
        maker = earlier
    return None


def _first_empty(frontier: Frontier, number: int) -> int:
    """What makes the array without content that an operation makes another such of; itself where nothing does."""
    for maker in map(frontier.flow.maker, frontier.flow.operands(number)):
        if maker is not None and frontier.empty(maker):
            return _first_empty(frontier, maker)
    return number


def unknown_behind(frontier: Frontier, mask: int) -> Iterator[int]:
    """The operations that make something unknown of what is right, on the way to a mask."""
    for number in sorted(frontier.flow.behind([mask])):
        right = any(map(frontier.recognition.right, frontier.operation(number).results))
        if not right and not frontier.empty(number) and all(map(frontier.known, frontier.flow.operands(number))):
            yield number


def hides_nothing(frontier: Frontier) -> int | None:
    """Where a mask that hides nothing is made, or applied; None where no mask is applied."""
    values = frontier.recognition.recording.values
    for number in sorted(frontier.slice):
        operation = frontier.operation(number)
        made = frontier.sight_of(operation.results)
        if operation.name not in HIDING or made is None or made.stage not in SCORED:
            continue
        for mask in frontier.flow.operands(number):
            sight = frontier.recognition.sights[mask]
            if values[mask].dtype == "bool" or not np.any(values[mask].array):
                lost = next(_losing(frontier, mask), None)
                if lost is not None or sight is None or not sight.form or sight.name == "mask":
                    return (
                        _filled_before(frontier, next(unknown_behind(frontier, mask), number)) if lost is None else lost
                    )
    return None


def _filled_before(frontier: Frontier, number: int) -> int:
    """What makes the array without content that is all an operation is given; itself where it is given more."""
    makers = [frontier.flow.maker(value) for value in frontier.flow.operands(number)]
    if len(makers) == 1 and makers[0] is not None and frontier.empty(makers[0]):
        return _first_empty(frontier, makers[0])
    return number


def _losing(frontier: Frontier, mask: int) -> Iterator[int]:
    """The operations on the way to a mask that join a right one, and make what hides nothing or isn't right."""

    def hides(value: int) -> bool:
        sight = frontier.recognition.sights[value]
        return sight is not None and bool(sight.form) and set(sight.axes) != {REPEATED}

    for number in sorted(frontier.flow.behind([mask])):
        operation = frontier.operation(number)
        given = any(map(hides, frontier.flow.operands(number)))
        if operation.name in JOINING and given and not any(map(hides, operation.results)):
            yield number


def laid_out_otherwise(frontier: Frontier, number: int) -> int | None:
    """The operation that lays a mask out, on the way to another one, so that it is none any more; None for none."""
    sights = frontier.recognition.sights
    for one in sorted(frontier.flow.behind(frontier.flow.operands(number))):
        operation = frontier.operation(one)
        given = [sights[value] for value in frontier.flow.operands(one)]
        lost = operation.name in LAYING_OUT and all(sights[value] is None for value in operation.results)
        if lost and any(sight is not None and sight.form and set(sight.axes) != {REPEATED} for sight in given):
            return one
    return None


def hidden_too_late(frontier: Frontier) -> int | None:
    """The operation that hides keys of weights which the softmax has made already; None where none does."""
    arrays = [value.array for value in frontier.recognition.recording.values]
    for number in sorted(frontier.slice):
        operation = frontier.operation(number)
        made = [frontier.recognition.faulty[value] for value in operation.results]
        weights = any(one is not None and one.name == "attn_weights" for one in made)
        if (
            weights
            and operation.name in HIDING | {"mul"}
            and any((arrays[one] == 0).any() for one in operation.results)
        ):
            given = [arrays[one] for one in frontier.flow.operands(number) if not _only_tells(arrays[one])]
            if given and all(array.all() for array in given):
                return number
    return None


def _only_tells(array: np.ndarray) -> bool:
    """Whether it holds nothing but truths, as numbers or not."""
    return array.dtype.kind != "f" or bool(np.isin(array, (0, 1)).all())


def unused_part(frontier: Frontier) -> tuple[int, int] | None:
    """Where a part of the mask is made that nothing uses, and what makes the mask without it; None where none is."""
    recognition, operations = frontier.recognition, frontier.recognition.recording.operations
    masks = [
        (number, sight.name, number in frontier.slice)
        for number, operation in enumerate(operations)
        for sight in map(recognition.sights.__getitem__, operation.results)
        if sight is not None and sight.form and set(sight.axes) != {REPEATED}
    ]
    used = {name for _, name, inside in masks if inside}
    for number, name, inside in masks:
        if not inside and name not in used and operations[number].during == "call":
            behind = [other for other, _, inside in masks if inside and other > number]
            joins = [other for other in behind if operations[other].name in JOINING]
            return (number, (joins or behind[-1:])[0]) if behind else None
    return None


def cut_wrongly(frontier: Frontier) -> Blame | None:
    """Where other keys are cut out than one query is meant to see; None where nothing is known of one query."""
    for number in sorted(frontier.slice, reverse=True):  # the last first: an early query may have but one key
        made = frontier.sight_of(frontier.operation(number).results)
        if made is None or made.stage != Stage.SCORES or "query" not in made.fixed:
            continue
        meant = frontier.recognition.visible.get(made.fixed["query"])
        others = _of_other_tokens(frontier, number, meant)
        if others is not None:
            return Blame(others, confirmed=True, unused=True, used_by=number)
        for maker in map(frontier.flow.maker, frontier.flow.operands(number)):
            ends = None if maker is None else _ends(frontier.operation(maker))
            if maker is not None and None not in (ends, meant) and ends != meant:
                return Blame(maker, confirmed=True, bound="start" if ends[0] != meant[0] else "end")  # type: ignore[index]
    return None


def _of_other_tokens(frontier: Frontier, number: int, meant: tuple[int, int] | None) -> int | None:
    """Where keys were put together that scores are made of and which are too few, or too many, for their query."""
    for value, sight in frontier.sighted(number):
        maker = frontier.flow.maker(value)
        while maker is not None and _only_laid_out(frontier.operation(maker)):
            maker = frontier.flow.maker(frontier.flow.operands(maker)[0])
        if sight.of == "key" and sight.axes.count("key") == 1 and meant is not None and maker is not None:
            keys = frontier.recognition.recording.values[value].array.shape[sight.axes.index("key")]
            if frontier.operation(maker).name in ASSEMBLING and keys != meant[1] - meant[0]:
                return maker
    return None


def _only_laid_out(operation: Operation) -> bool:
    return operation.name in LAYING_OUT and _ends(operation) is None


def _ends(operation: Operation) -> tuple[int, int] | None:
    """From where to where an operation cuts something out; None for one that doesn't, or along several axes."""
    index = operation.arguments[1] if operation.name == "getitem" and len(operation.arguments) > 1 else ()
    parts = [index] if index and index[0] == "slice" else index if isinstance(index, tuple | list) else ()
    cuts = [one for one in parts if isinstance(one, tuple | list) and one and one[0] == "slice" and any(one[1:3])]
    return (cuts[0][1] or 0, cuts[0][2]) if len(cuts) == 1 and isinstance(cuts[0][2], int) else None


def _filled(frontier: Frontier, number: int) -> int | None:
    """The operation that makes the number that hidden scores are filled with, where it hides nothing."""
    if frontier.operation(number).name in ("where", "masked_fill"):
        for value in frontier.flow.operands(number):
            filled = frontier.recognition.recording.values[value]
            if filled.array.size == 1 and filled.dtype != "bool" and filled.array.item() > LOW:
                return frontier.flow.maker(value)
    return None


def _added(frontier: Frontier, number: int) -> int:
    """The operation that makes what an operation adds to hide with, where it hides nothing; itself where none does."""
    for value in frontier.flow.operands(number) if frontier.operation(number).name == "add" else ():
        numbers = np.unique(frontier.recognition.recording.values[value].array)
        maker = frontier.flow.maker(value)
        if len(numbers) == 2 and LOW < numbers[0] < numbers[1] == 0 and maker is not None:
            return _laid_out_from(frontier, maker)
    return number


def _laid_out_from(frontier: Frontier, number: int) -> int:
    """The operation that made what an operation only lays out; itself where it does more."""
    earlier = frontier.flow.maker((*frontier.flow.operands(number), -1)[0])
    if earlier is None or not _only_laid_out(frontier.operation(number)):
        return number
    return _laid_out_from(frontier, earlier)


def _form_needed(frontier: Frontier, number: int) -> str:
    """Which form of a mask an operation takes: what it fills is hidden, what it picks is kept."""
    operation = frontier.operation(number)
    if operation.name == "where":
        picked = [value for value, _ in frontier.sighted(number)]
        return "keep" if len(operation.arguments) > 1 and operation.arguments[1] in map(Ref, picked) else "hide"
    return {"masked_fill": "hide", "setitem": "hide", "scaled_dot_product_attention": "keep"}.get(operation.name, "")


def _uncounted(frontier: Frontier, operation: int) -> int:
    """The operation that counts from 0 what begins elsewhere, or fills with what hides nothing; else the one given."""
    for value in frontier.flow.operands(operation):
        for number in frontier.flow.behind([value]) if frontier.recognition.sights[value] is None else ():
            made = frontier.operation(number)
            if frontier.sight_of(made.results) is None and (made.name == "arange" and frontier.stage == Stage.MASK):
                return number
            if made.name in FILLING and all(_shows(frontier, result) for result in made.results):
                return number
    return operation


def _shows(frontier: Frontier, value: int) -> bool:
    """Whether an array is filled with a number that hides nothing where it is added to scores."""
    first = frontier.recognition.recording.values[value].array.reshape(-1)[:1]
    return bool(((first > LOW) & (first != 0) & (first != 1)).any())


def unturned(frontier: Frontier, suspect: Suspect) -> int:
    """The operation that turned a mask round, where one did and the mask is used as if it hadn't."""
    needed = _form_needed(frontier, suspect.operation)
    for value in frontier.flow.operands(suspect.operation):
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        turned = maker is not None and frontier.operation(maker).name in TURNING
        if sight is not None and sight.form and sight.form != needed and turned:
            return maker if maker is not None else suspect.operation
    for value in frontier.flow.operands(suspect.operation) if frontier.sighted(suspect.operation) else ():
        sight = frontier.recognition.sights[value]
        if sight is not None and sight.form and sight.name != "mask" and frontier.stage == Stage.MASK:
            made = next(unknown_behind(frontier, value), first_mask(frontier, value, sight))
            if made is not None:
                return made
    counted = _uncounted(frontier, suspect.operation)
    counted = _added(frontier, counted) if counted == suspect.operation else counted
    return _filled(frontier, suspect.operation) or _signed(frontier, counted)


def of_another_form(frontier: Frontier, number: int) -> int | None:
    """The operation that made a mask, if another form of one is needed where it is used; None where it isn't so."""
    needed = "additive" if frontier.operation(number).name == "add" else _form_needed(frontier, number)
    for value in frontier.flow.operands(number) if needed and frontier.sighted(number) else ():
        sight = frontier.recognition.sights[value]
        if sight is not None and sight.form and sight.form != needed:
            return first_mask(frontier, value, sight)
    return None


def _signed(frontier: Frontier, number: int) -> int:
    """The operation that made a bias of another sign, or of one query for all; the operation given where none did."""
    given = frontier.sighted(number)
    for value, sight in given if frontier.stage == Stage.BIAS else ():
        for_all = "query" in sight.fixed and any("query" in other.axes for _, other in given)
        if sight.factor == -1.0 or (sight.stage == Stage.BIAS and for_all):
            maker = first_of(frontier, value, sight)
            return number if maker is None else maker
    return number
