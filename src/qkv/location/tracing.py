"""Tracing: from the operation where right ends to the one that is to be changed."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.adapters.names import call_role_of
from qkv.adapters.recording import Operation
from qkv.location.frontier import Frontier, Suspect
from qkv.recognition import Sight
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class Blame:
    """The operation that is to be changed.

    Attributes:
        operation: its number.
        confirmed: whether what it makes, or what is made of it next, is what the diagnosed fault makes.
        skipped: the stage that is left out behind it; None where it does something wrong itself.
    """

    operation: int
    confirmed: bool
    skipped: Stage | None = None


def blame(frontier: Frontier) -> Blame | None:
    """The operation to be changed; None where nothing on the frontier is more suspicious than the rest."""
    if not frontier.suspects:
        return _returned(frontier)
    first = frontier.suspects[0]
    if first.weight == 0:
        return None
    confirmed = first.weight >= 3
    if not confirmed and _rivals(frontier):
        return None
    stage, made = frontier.stage, first.sight.stage if first.sight is not None else None
    if stage is not None and made is not None and confirmed and made > stage:
        skipped = _before(frontier, first, stage)
        if skipped is not None:
            return Blame(skipped, confirmed, stage)
    return Blame(_unturned(frontier, first), confirmed)


def _rivals(frontier: Frontier) -> bool:
    """Whether another place is as suspicious as the first."""
    first, *others = frontier.suspects
    operations = frontier.recognition.recording.operations
    return any(
        other.weight == first.weight and operations[other.operation].place != operations[first.operation].place
        for other in others
    )


def _returned(frontier: Frontier) -> Blame | None:
    """The maker of what was returned, where that is right and only isn't the output."""
    for value in frontier.recognition.recording.returned:
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is not None and maker is not None and sight.stage is not None and sight.name != "output":
            return Blame(maker, confirmed=False, skipped=Stage.OUTPUT if sight.stage < Stage.OUTPUT else None)
    return None


ROLES = {Stage.SCORES: ("query", "key"), Stage.MIX: ("attn_weights", "value")}
"""What is multiplied in a stage."""


def _before(frontier: Frontier, suspect: Suspect, stage: Stage) -> int | None:
    """The operation that makes what goes on without the stage at fault: where the stage should have followed."""
    operands = [
        (value, sight)
        for value in frontier.flow.operands(suspect.operation)
        if (sight := frontier.recognition.sights[value]) is not None and sight.stage is not None
    ]
    made = suspect.sight.stage if suspect.sight is not None else None
    for value, sight in operands:
        if made in ROLES and sight.name not in ROLES[made]:  # another array than belongs here
            maker = _first_of(frontier, value, sight)
            return suspect.operation if maker is None or _is_called(frontier, maker, sight.name) else maker
    behind = [pair for pair in operands if pair[1].stage is not None and pair[1].stage <= stage]
    if not behind:
        return None
    value, sight = max(behind, key=lambda pair: pair[1].stage.order if pair[1].stage is not None else -1)
    return _first_of(frontier, value, sight)


def _is_called(frontier: Frontier, operation: int, name: str) -> bool:
    """Whether what an operation makes is given to a variable that is named for it: then only its use is wrong."""
    recording = frontier.recognition.recording
    place = recording.operations[operation].place
    return place is not None and call_role_of(recording.places[place].target) == name


def _first_of(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """The operation that made an array's values, before they were only laid out in other ways."""
    maker = frontier.flow.maker(value)
    while maker is not None:
        same = [
            operand
            for operand in frontier.flow.operands(maker)
            if (other := frontier.recognition.sights[operand]) is not None
            and (other.name, other.factor, other.stage == Stage.MASK)
            == (sight.name, sight.factor, sight.stage == Stage.MASK)
            and frontier.flow.maker(operand) is not None
        ]
        if not same:
            return maker
        maker = frontier.flow.maker(same[0])
    return None


def _unturned(frontier: Frontier, suspect: Suspect) -> int:
    """The operation that turned a mask round, where one did and the mask is used as if it hadn't."""
    operations = frontier.recognition.recording.operations
    for value in frontier.flow.operands(suspect.operation):
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is None or not sight.form or maker is None:
            continue
        if _turns(operations[maker]):
            return maker
    return suspect.operation


def _turns(operation: Operation) -> bool:
    """Whether an operation makes of a mask its opposite."""
    return operation.name in ("invert", "bitwise_not", "logical_not")
