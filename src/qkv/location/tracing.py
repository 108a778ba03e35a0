"""Tracing: from the operation where right ends to the one that is to be changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qkv.adapters.names import call_role_of
from qkv.location.frontier import CONFIRMED, Frontier, Suspect
from qkv.recognition import Sight
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
        odd: what it makes that is used in the place of another array: a key where the value belongs.
        used_by: the operation that is given the odd array, or what lacks the skipped stage.
    """

    operation: int
    confirmed: bool
    skipped: Stage | None = None
    odd: str = ""
    used_by: int | None = None


def blame(frontier: Frontier) -> Blame | None:
    """The operation to be changed; None where nothing on the frontier is more suspicious than the rest."""
    if not frontier.suspects:
        return _returned(frontier)
    first = frontier.suspects[0]
    confirmed = first.weight >= CONFIRMED
    if first.weight == 0 or not (confirmed or _stands_alone(frontier)):
        return None
    made, stage = None if first.sight is None else first.sight.stage, frontier.stage
    turned = _turned(frontier) if stage == Stage.SCORES else None
    if turned is not None:
        return Blame(turned, confirmed)
    if stage is not None and made is not None and confirmed:
        earlier = _odd(frontier, first, made) or (_left_out(frontier, first, stage) if made > stage else None)
        if earlier is not None:
            return earlier
    return _out_of_order(frontier, first) or Blame(_unturned(frontier, first), confirmed)


def _out_of_order(frontier: Frontier, suspect: Suspect) -> Blame | None:
    """What is done after a softmax that belongs before it: from there on the numbers are those of the fault."""
    if suspect.weight >= CONFIRMED or frontier.operation(suspect.operation).name != "softmax":
        return None
    for number in sorted(frontier.slice):
        results = frontier.operation(number).results
        if number > suspect.operation and any(frontier.recognition.faulty[value] is not None for value in results):
            return Blame(number, confirmed=True)
    return None


def _stands_alone(frontier: Frontier) -> bool:
    """Whether no operation on another line is as suspicious as the first."""
    first, *others = frontier.suspects
    place = frontier.place(first.operation)
    alike = (frontier.place(other.operation) for other in others if other.weight == first.weight)
    return all(
        place is not None and other is not None and (other.file, other.line) == (place.file, place.line)
        for other in alike
    )


def _returned(frontier: Frontier) -> Blame | None:
    """The maker of what was returned, where that is right and only isn't the output."""
    for value in frontier.recognition.recording.returned:
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is not None and maker is not None and sight.stage is not None and sight.name != "output":
            return Blame(maker, confirmed=False, skipped=Stage.OUTPUT if sight.stage < Stage.OUTPUT else None)
    return None


def _turned(frontier: Frontier) -> int | None:
    """The operation that makes scores with a row for each key; None where all have a row for each query."""
    for number in sorted(frontier.slice):
        sight = frontier.sight_of(frontier.operation(number).results)
        if sight is not None and sight.name == "attn_scores" and sight.axes[-2:] == ("key", "query"):
            return number
    return None


def _odd(frontier: Frontier, suspect: Suspect, made: Stage) -> Blame | None:
    """The maker of an array that is multiplied in the place of another."""
    operands = frontier.sighted(suspect.operation)
    missing = {*MULTIPLIED.get(made, ())} - {sight.name for _, sight in operands}
    if not missing or len(operands) < 2:
        return None
    for value, sight in operands:
        maker = _first_of(frontier, value, sight)
        place = None if maker is None else frontier.place(maker)
        if maker is None or place is None:
            continue
        if sight.name not in MULTIPLIED[made]:
            return Blame(maker, confirmed=True, odd=sight.name, used_by=suspect.operation)
        if call_role_of(place.target) in missing:  # it is called what is missing, and is another
            return Blame(maker, confirmed=True)
    return Blame(suspect.operation, confirmed=True)


def _left_out(frontier: Frontier, suspect: Suspect, stage: Stage) -> Blame | None:
    """The operation behind which the stage at fault should have followed."""
    for number, operation in enumerate(frontier.recognition.recording.operations):
        # It is done, and what it gives is dropped.
        sight = None if number in frontier.slice else frontier.sight_of(operation.results)
        if sight is not None and sight.right and sight.stage == stage and not sight.form and frontier.sighted(number):
            return Blame(number, confirmed=True)
    nothing_hidden = _hides_nothing(frontier) if stage == Stage.MASK else None
    if nothing_hidden is not None:
        return Blame(nothing_hidden, confirmed=True)
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
    value, sight = max(before, key=lambda pair: pair[1].stage.order if pair[1].stage is not None else -1)
    maker = _first_of(frontier, value, sight)
    return None if maker is None else Blame(maker, confirmed=True, skipped=stage, used_by=suspect.operation)


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
                wrong = (
                    maker
                    for maker in sorted(frontier.flow.behind([mask]))
                    if not any(map(frontier.recognition.right, frontier.operation(maker).results))
                    and all(frontier.recognition.right(operand) for operand in frontier.flow.operands(maker))
                )
                return next(wrong, number)
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
            and frontier.flow.maker(operand) is not None
        ]
        if not same:
            return maker
        maker = frontier.flow.maker(same[0])
    return None


def _unturned(frontier: Frontier, suspect: Suspect) -> int:
    """The operation that turned a mask round, where one did and the mask is used as if it hadn't."""
    for value in frontier.flow.operands(suspect.operation):
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is not None and sight.form and maker is not None and frontier.operation(maker).name in TURNING:
            return maker
    return suspect.operation
