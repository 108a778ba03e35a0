"""Tracing: from the operation where right ends to the one that is to be changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qkv.adapters.names import call_role_of
from qkv.adapters.recording import Operation, Ref
from qkv.location.calls import called_wrongly
from qkv.location.frontier import ASSEMBLING, CONFIRMED, LAYING_OUT, Frontier, Suspect
from qkv.recognition import FUSED, LOW, Sight
from qkv.vocabulary import Stage

TURNING = frozenset({"bitwise_not", "logical_not"})
"""Operations that make of a mask its opposite."""

MULTIPLIED = {Stage.SCORES: ("query", "key"), Stage.MIX: ("attn_weights", "value")}
"""What is multiplied in a stage."""


@dataclass(frozen=True)
class Blame:
    """The operation that is to be changed.

    Attributes:
        operation: its number.
        confirmed: whether what is made of it from there on is what the diagnosed fault makes.
        skipped: the stage that is left out behind it; None where it does something wrong itself.
        unused: whether the stage is done, and what it makes isn't used.
        odd: what it makes that is used in the place of another array: a key where the value belongs.
        besides: how often the odd array belongs there besides.
        used_by: the operation that is given the odd array, or what lacks the skipped stage.
        bound: of a stretch that it cuts out, which end is the wrong one.
        before: another operation that might be changed in its place: one that scales already, or lays out.
    """

    operation: int
    confirmed: bool
    skipped: Stage | None = None
    unused: bool = False
    odd: str = ""
    besides: int = 0
    used_by: int | None = None
    bound: Literal["start", "end", ""] = ""
    before: int | None = None


def blame(frontier: Frontier) -> Blame | None:
    """The operation to be changed; None where nothing on the frontier is more suspicious than the rest."""
    if not frontier.suspects:
        return _returned(frontier)
    first = frontier.suspects[0]
    confirmed = first.weight >= CONFIRMED
    if not (confirmed or _stands_alone(frontier)):
        return None
    made, stage = None if first.sight is None else first.sight.stage, frontier.stage
    turned = _turned(frontier) if stage == Stage.SCORES else None
    if stage == Stage.HEADS:
        turned = _batch_for_tokens(frontier, first.operation)
    if turned is not None:
        return Blame(turned, confirmed)
    cut = _cut(frontier) if stage == Stage.MASK and not frontier.masks else None
    if cut is not None:
        return cut
    if stage is not None and made is not None and confirmed:
        goes_on = made > stage or _only_passes_scores_on(frontier, first)
        earlier = _odd(frontier, first, made) or (_left_out(frontier, first, stage) if goes_on else None)
        if earlier is not None:
            return earlier
    across = _across(frontier, first.operation)
    if across is not None:
        return Blame(first.operation, confirmed, before=across)
    number = _laid_out_first(frontier, _unturned(frontier, first))
    return _out_of_order(frontier, first) or Blame(number, confirmed, before=_other_end(frontier, number))


def _cut(frontier: Frontier) -> Blame | None:
    """Where other keys are cut out than one query is meant to see; None where nothing is known of one query."""
    for number in sorted(frontier.slice):
        made = frontier.sight_of(frontier.operation(number).results)
        if made is None or made.stage != Stage.SCORES or "query" not in made.fixed:
            continue
        meant = frontier.recognition.visible.get(made.fixed["query"])
        for maker in map(frontier.flow.maker, frontier.flow.operands(number)):
            ends = None if maker is None else _ends(frontier.operation(maker))
            if maker is not None and None not in (ends, meant) and ends != meant:
                return Blame(maker, confirmed=True, bound="start" if ends[0] != meant[0] else "end")  # type: ignore[index]
    return None


def _ends(operation: Operation) -> tuple[int, int] | None:
    """From where to where an operation cuts something out; None for one that doesn't, or along several axes."""
    index = operation.arguments[1] if operation.name == "getitem" and len(operation.arguments) > 1 else ()
    parts = [index] if index and index[0] == "slice" else index if isinstance(index, tuple | list) else ()
    cuts = [one for one in parts if isinstance(one, tuple | list) and one and one[0] == "slice" and any(one[1:3])]
    return (cuts[0][1] or 0, cuts[0][2]) if len(cuts) == 1 and isinstance(cuts[0][2], int) else None


GROUPING = frozenset({"view", "reshape", "flatten", "unflatten"})
"""Operations that group axes as they lie in memory."""


def _laid_out_first(frontier: Frontier, number: int) -> int:
    """The first of the operations that only lay out what was handed over, up to this one; itself where it does more."""
    while frontier.operation(number).name in LAYING_OUT:
        (value, *_) = (*frontier.flow.operands(number), -1)
        maker = frontier.flow.maker(value)
        if maker is None or frontier.recognition.right(value) or not frontier.empty(maker):
            break
        number = maker
    return number


COPYING = frozenset({"contiguous", "clone", "copy", "ascontiguousarray"})
"""Operations that lay an array out anew in memory, as it is."""


def _other_end(frontier: Frontier, number: int) -> int | None:
    """What might be changed in the place of an operation: what made the array that it groups, or scaled it before."""
    operation, operands = frontier.operation(number), frontier.sighted(number)
    if operation.name in GROUPING and operands:
        maker = frontier.flow.maker(operands[0][0])
        while maker is not None and frontier.operation(maker).name in COPYING and frontier.flow.operands(maker):
            maker = frontier.flow.maker(frontier.flow.operands(maker)[0])
        return maker
    if frontier.stage == Stage.SCALE and operation.name in ("mul", "div", "scaled_dot_product_attention"):
        for value, sight in operands:
            if sight.factor != 1.0 and sight.right:
                return _first_scaled(frontier, value)
    return None


def _first_scaled(frontier: Frontier, value: int) -> int | None:
    """The operation from which on an array is multiplied by something, through what is made of it."""
    maker = frontier.flow.maker(value)
    while maker is not None:
        scaled = [operand for operand, sight in frontier.sighted(maker) if sight.factor != 1.0]
        earlier = frontier.flow.maker(scaled[0]) if scaled else None
        if earlier is None:
            return maker
        maker = earlier
    return None


def _only_passes_scores_on(frontier: Frontier, suspect: Suspect) -> bool:
    """Whether scores that lack a mask are only laid out: joined with the sinks."""
    unmasked = frontier.stage == Stage.MASK and suspect.sight is not None and not suspect.sight.form
    return unmasked and frontier.operation(suspect.operation).name in ASSEMBLING


def _out_of_order(frontier: Frontier, suspect: Suspect) -> Blame | None:
    """What is done after a softmax that belongs before it: from there on the numbers are those of the fault."""
    if suspect.weight >= CONFIRMED or frontier.operation(suspect.operation).name != "softmax":
        return None
    masked = any(sight.stage == Stage.MASK for _, sight in frontier.sighted(suspect.operation))
    if masked and frontier.stage == Stage.SOFTMAX:
        return None  # nothing was left to be done
    # Of a loop the last round: in the first a query may have but one key.
    place = frontier.operation(suspect.operation).place
    last = max(one.operation for one in frontier.suspects if frontier.operation(one.operation).place == place)
    for number in sorted(frontier.slice):
        results = frontier.operation(number).results
        if number > last and any(frontier.recognition.faulty[value] is not None for value in results):
            return Blame(number, confirmed=True)
    return None


def _stands_alone(frontier: Frontier) -> bool:
    """Whether no other operation is as suspicious as the first, but on its line, or of its kind: done to two arrays."""
    first, *others = frontier.suspects
    place, name = called_wrongly(frontier, first.operation), frontier.operation(first.operation).name
    for other in others:
        there = called_wrongly(frontier, other.operation)
        same_line = None not in (place, there) and (place.file, place.line) == (there.file, there.line)  # type: ignore[union-attr]
        if other.weight == first.weight and not same_line and frontier.operation(other.operation).name != name:
            return False
    return True


def _returned(frontier: Frontier) -> Blame | None:
    """The maker of what was returned, where that is right and only isn't the output."""
    for value in frontier.recognition.recording.returned:
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is not None and maker is not None and sight.stage is not None and sight.name != "output":
            if sight.stage < Stage.OUTPUT:
                return Blame(_last_of_one(frontier, maker), confirmed=False, skipped=Stage.OUTPUT)
            return Blame(_first_of(frontier, value, sight) or maker, confirmed=False)
    return None


def _last_of_one(frontier: Frontier, maker: int) -> int:
    """The operation that made the last of what an operation only lays together: one token's, one head's."""
    while frontier.operation(maker).name in ASSEMBLING and frontier.sighted(maker):
        earlier = frontier.flow.maker(frontier.sighted(maker)[-1][0])
        if earlier is None:
            break
        maker = earlier
    return maker


def _turned(frontier: Frontier) -> int | None:
    """The operation that makes scores with a row for each key; None where all have a row for each query."""
    for number in sorted(frontier.slice):
        sight = frontier.sight_of(frontier.operation(number).results)
        if sight is not None and sight.name == "attn_scores" and sight.axes[-2:] == ("key", "query"):
            return number
    return None


MULTIPLYING = frozenset({"matmul", "baddbmm", "scaled_dot_product_attention"})
"""Operations that multiply the last two axes of what they are given, and go through the others."""


def _batch_for_tokens(frontier: Frontier, number: int) -> int | None:
    """Where batch and tokens changed places, if an operation multiplies along the batch; None where it doesn't."""
    if frontier.operation(number).name not in MULTIPLYING:
        return None
    value = next((value for value, sight in frontier.sighted(number) if "batch" in sight.axes[-2:]), None)
    maker = None if value is None else frontier.flow.maker(value)
    while maker is not None:
        operands = frontier.flow.operands(maker)
        earlier = next((one for one in operands if _batch_behind_tokens(frontier, one)), None)
        before = None if earlier is None else frontier.flow.maker(earlier)
        if before is None:
            return maker
        maker = before
    return None


def _batch_behind_tokens(frontier: Frontier, value: int) -> bool:
    sight = frontier.recognition.sights[value]
    if sight is not None and sight.name == FUSED:
        return True  # it can't be seen there; what it is made of tells
    axes = () if sight is None else sight.axes
    tokens = [axes.index(name) for name in ("query", "key") if name in axes]
    return bool(tokens) and "batch" in axes and axes.index("batch") > tokens[0]


def _across(frontier: Frontier, number: int) -> int | None:
    """Where an array of pairs was made that lies across the others that an operation is given: a row for each key."""
    across = [value for value in frontier.flow.operands(number) if _key_first(frontier, value)]
    if len(across) != 1 or len(frontier.flow.operands(number)) < 2:
        return None
    maker = frontier.flow.maker(across[0])
    while maker is not None:
        earlier = [value for value in frontier.flow.operands(maker) if _key_first(frontier, value)]
        before = frontier.flow.maker(earlier[0]) if earlier else None
        if before is None:
            return maker
        maker = before
    return None


def _key_first(frontier: Frontier, value: int) -> bool:
    """Whether an array has a row for each key and a column for each query."""
    sight = frontier.recognition.sights[value]
    axes = () if sight is None else sight.axes
    return "key" in axes and "query" in axes and axes.index("key") < axes.index("query")


def _odd(frontier: Frontier, suspect: Suspect, made: Stage) -> Blame | None:
    """The maker of an array that is multiplied in the place of another."""
    operands = frontier.sighted(suspect.operation)
    names = [sight.of for _, sight in operands]
    fused = made >= Stage.MIX and "query" in names
    belong = ("query", "key", "value") if fused else MULTIPLIED.get(made, ())
    missing = {*belong} - {*names}
    if not missing or len(operands) < 2:
        return None
    for value, sight in operands:
        maker = _first_of(frontier, value, sight)
        place = None if maker is None else frontier.place(maker)
        if maker is None or place is None:
            continue
        if sight.of not in belong:
            return Blame(maker, confirmed=True, odd=sight.of, used_by=suspect.operation)
        if call_role_of(place.target) in missing:  # it is called what is missing, and is another
            return Blame(maker, confirmed=True)
    arguments = [one.value for one in frontier.operation(suspect.operation).arguments if isinstance(one, Ref)]
    for value, name in zip(arguments, belong, strict=False) if len({*arguments}) == len(arguments) else ():
        taken = frontier.recognition.sights[value]
        maker = None if taken is None or taken.of not in names else _first_of(frontier, value, taken)
        if taken is not None and maker is not None and taken.of != name:
            return Blame(maker, confirmed=True, odd=taken.of, besides=1, used_by=suspect.operation)
    twice = next((name for name in names if names.count(name) > 1), "")
    return Blame(suspect.operation, confirmed=True, odd=twice, besides=1, used_by=suspect.operation if twice else None)


def _left_out(frontier: Frontier, suspect: Suspect, stage: Stage) -> Blame | None:
    """The operation behind which the stage at fault should have followed."""
    dropped = _dropped(frontier, stage)
    if dropped is not None:
        return Blame(dropped, confirmed=True, skipped=stage, unused=True, used_by=suspect.operation)
    if any(sight.name == FUSED for _, sight in frontier.sighted(suspect.operation)):
        return Blame(suspect.operation, confirmed=True)
    picked = _picked(frontier, suspect) if stage == Stage.HEADS else None
    if picked is not None:
        return Blame(picked, confirmed=True)
    nothing_hidden = _hides_nothing(frontier) if stage == Stage.MASK else None
    if nothing_hidden is not None:
        return Blame(nothing_hidden, confirmed=True)
    part = _part_of_a_mask(frontier) if stage == Stage.MASK else None
    if part is not None:
        return Blame(part[0], confirmed=True, skipped=stage, used_by=part[1])
    before: list[tuple[int, Sight]] = []
    waiting, seen = frontier.sighted(suspect.operation), set()
    while waiting:
        value, sight = waiting.pop()
        if sight.stage is not None and sight.stage <= stage:
            before.append((value, sight))
        elif value not in seen:
            seen.add(value)
            maker = frontier.flow.maker(value)
            waiting += [] if maker is None else frontier.sighted(maker)
    if not before:
        return None
    # Of query and key that which lags behind; of scores and values the scores.
    furthest = min if stage <= Stage.POSITION else max
    value, sight = furthest(before, key=lambda pair: pair[1].stage.order if pair[1].stage is not None else -1)
    maker = _first_of(frontier, value, sight)
    if maker is None:
        return None
    if _all_at_once(frontier, suspect, stage):
        number = _unturned(frontier, suspect)
        return Blame(number, confirmed=True, before=_other_end(frontier, number))
    return Blame(maker, confirmed=True, skipped=stage, used_by=suspect.operation)


def _all_at_once(frontier: Frontier, suspect: Suspect, stage: Stage) -> bool:
    """Whether the suspect multiplies query and key and does what comes behind as well: ``baddbmm``, fused attention."""
    names = {sight.of for _, sight in frontier.sighted(suspect.operation)}
    return stage >= Stage.SCORES and {"query", "key"} <= names


def _picked(frontier: Frontier, suspect: Suspect) -> int | None:
    """The operation that takes one head where the suspect goes on with all; None where none does."""
    for number in sorted(frontier.slice):
        sight = frontier.sight_of(frontier.operation(number).results)
        if (
            sight is not None
            and "head" in sight.fixed
            and suspect.sight is not None
            and "head" not in suspect.sight.fixed
        ):
            return number
    return None


ON_THE_WAY = frozenset(
    {"query", "key", "value", "attn_scores", "capped scores", "biased scores", "attn_weights", "context", "output"}
)
"""Arrays that the stages hand on; others are only used within one."""


def _dropped(frontier: Frontier, stage: Stage) -> int | None:
    """The last operation of a stage that is done, and whose result is not used; None where there is none."""
    found = None
    for number, operation in enumerate(frontier.recognition.recording.operations):
        sight = (
            None if number in frontier.slice or operation.during == "build" else frontier.sight_of(operation.results)
        )
        if sight is not None and sight.right and sight.stage == stage and sight.name in ON_THE_WAY:
            found = number
    return found


def _part_of_a_mask(frontier: Frontier) -> tuple[int, int] | None:
    """Where a mask is made that hides less than all there is to hide, and where it is applied; None where none is."""
    for number in sorted(frontier.slice):
        made = frontier.sight_of(frontier.operation(number).results)
        if made is None or made.form or made.stage != Stage.MASK:
            continue
        for value in frontier.flow.operands(number):
            sight = frontier.recognition.sights[value]
            if sight is not None and sight.form and sight.name != "mask":
                maker = next(_unknown_behind(frontier, value), _first_mask(frontier, value, sight))
                return None if maker is None else (maker, number)
    return None


JOINING = frozenset({"add", "sub", "bitwise_or", "bitwise_and", "logical_or", "logical_and"})
"""Operations that make one mask of two."""


def _first_mask(frontier: Frontier, value: int, sight: Sight) -> int | None:
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
            return nothing[0]  # where the other part belongs
        same = [one for one, other in masks if other.name == sight.name and len(masks) == 1]
        earlier = frontier.flow.maker(same[0]) if same else None
        if earlier is None:
            return maker
        maker = earlier
    return None


def _unknown_behind(frontier: Frontier, mask: int) -> Iterator[int]:
    """The operations that make something unknown of what is right, on the way to a mask."""
    for number in sorted(frontier.flow.behind([mask])):
        right = any(map(frontier.recognition.right, frontier.operation(number).results))
        if not right and not frontier.empty(number) and all(map(frontier.known, frontier.flow.operands(number))):
            yield number


HIDING = frozenset({"where", "masked_fill", "add", "setitem"})
"""Operations by which scores are hidden."""


def _hides_nothing(frontier: Frontier) -> int | None:
    """Where a mask that hides nothing is made, or applied; None where no mask is applied."""
    values = frontier.recognition.recording.values
    for number in sorted(frontier.slice):
        operation = frontier.operation(number)
        made = frontier.sight_of(operation.results)
        if operation.name not in HIDING or made is None or made.stage not in (Stage.SCORES, Stage.BIAS):
            continue
        for mask in frontier.flow.operands(number):
            if values[mask].dtype == "bool" or not np.any(values[mask].array):
                return next(_unknown_behind(frontier, mask), number)
    return None


def _first_of(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """The operation that made an array's values, before they were only laid out in other ways."""
    maker = frontier.flow.maker(value)
    while maker is not None:
        same = [
            operand
            for operand, other in frontier.sighted(maker)
            if (other.name, other.factor, other.stage == Stage.MASK)
            == (sight.name, sight.factor, sight.stage == Stage.MASK)
            and (frontier.stage != Stage.HEADS or other.fixed == sight.fixed)  # else where its head was picked
            and frontier.flow.maker(operand) is not None
        ]
        if not same:
            return maker
        maker = frontier.flow.maker(same[0])
    return None


def _unturned(frontier: Frontier, suspect: Suspect) -> int:
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
            made = next(_unknown_behind(frontier, value), _first_mask(frontier, value, sight))
            if made is not None:
                return made
    return _filled(frontier, suspect.operation) or _signed(frontier, _uncounted(frontier, suspect.operation))


def _filled(frontier: Frontier, number: int) -> int | None:
    """The operation that makes the number that hidden scores are filled with, where it hides nothing."""
    if frontier.operation(number).name in ("where", "masked_fill"):
        for value in frontier.flow.operands(number):
            filled = frontier.recognition.recording.values[value]
            if filled.array.size == 1 and filled.dtype != "bool" and filled.array.item() > LOW:
                return frontier.flow.maker(value)
    return None


def _signed(frontier: Frontier, number: int) -> int:
    """The operation that turned the sign of what an operation adds; the operation given where none did."""
    for value, sight in frontier.sighted(number):
        if frontier.stage == Stage.BIAS and sight.factor == -1.0:
            maker = _first_of(frontier, value, sight)
            return number if maker is None else maker
    return number


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


FILLING = frozenset({"full", "full_like", "new_full"})
"""Operations that fill an array with one number."""


def _shows(frontier: Frontier, value: int) -> bool:
    """Whether an array is filled with a number that hides nothing where it is added to scores."""
    first = frontier.recognition.recording.values[value].array.reshape(-1)[:1]
    return bool(((first > LOW) & (first != 0) & (first != 1)).any())
