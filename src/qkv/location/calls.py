"""Calls: where the user's own function is right, and what it is handed isn't."""

from __future__ import annotations

from qkv.adapters.recording import Operation, Place
from qkv.location.frontier import Frontier
from qkv.vocabulary import Stage


def called_wrongly(frontier: Frontier, number: int, skipped: Stage | None = None) -> Place | None:
    """Where a wrong operation is to be changed: its own place, or the call that hands over what it can't be right with.

    It is the call if the same expression makes what is right whenever its function is called from elsewhere.

    Args:
        frontier: where what is right ends.
        number: the operation.
        skipped: the stage that it is blamed for not doing, where what it makes is right: it has to do it elsewhere.
    """
    operation, place = frontier.operation(number), frontier.place(number)
    right = frontier.recognition.right
    if skipped is None and any(map(right, operation.results)):
        return place
    for depth, call in enumerate(operation.calls):
        others = [
            other for other in frontier.recognition.recording.operations if _is_elsewhere(operation, other, depth)
        ]
        made = [value for other in others for value in other.results]
        if not any(map(right, made)) or not all(map(frontier.clear, made)):
            break
        if skipped is not None and not any(
            sight is not None and sight.stage == skipped for sight in map(frontier.recognition.sights.__getitem__, made)
        ):
            break
        place = frontier.recognition.recording.places[call]
    return place


def _is_elsewhere(operation: Operation, other: Operation, depth: int) -> bool:
    """Whether another operation is the same by its place, but for the call that far out."""
    inner = (operation.name, operation.place, *operation.calls[:depth])
    same = inner == (other.name, other.place, *other.calls[:depth])
    return same and len(other.calls) > depth and other.calls[depth] != operation.calls[depth]
