"""Spots: where in the code the blamed operation is to be changed: its own place, or a call that leads to it."""

from __future__ import annotations

from qkv.adapters.recording import Place
from qkv.location.blaming import Blame
from qkv.location.calls import called_wrongly
from qkv.location.frontier import Frontier
from qkv.location.misplaced import first_of
from qkv.location.source import Source
from qkv.vocabulary import Stage


def spot_of(frontier: Frontier, blamed: Blame) -> Place | None:
    """Where the blamed operation stands; of one whose result is used wrongly, in the function that uses it."""
    if blamed.used_by is not None and (blamed.odd or blamed.unused):
        whole = (blamed.skipped is None and blamed.unused) or _is_one_of_several(frontier, blamed.operation)
        return frontier.beside(blamed.operation, blamed.used_by, whole=whole)
    if blamed.skipped == Stage.OUTPUT:  # it belongs where the context is made, and not where it is only laid out
        made = ((number, frontier.sight_of(frontier.operation(number).results)) for number in sorted(frontier.slice))
        mixed = next((number for number, sight in made if sight is not None and sight.stage == Stage.MIX), None)
        place = frontier.place(blamed.operation) if mixed is None else frontier.beside(blamed.operation, mixed)
        of_methods = [one for one in reversed(frontier.chain(blamed.operation)) if "." in one.function]
        return place if place is None or "." in place.function else next(iter(of_methods), place)
    makers = map(frontier.flow.maker, frontier.flow.operands(blamed.operation))
    if along_heads(frontier, blamed) and all(maker is None for maker in makers):
        return frontier.chain(blamed.operation)[0]  # it was handed over so, and to whatever turns it too
    beside = _where_turned(frontier, blamed) if frontier.stage == Stage.POSITION else None
    return called_wrongly(frontier, blamed.operation, blamed.skipped) if beside is None else beside


def _where_turned(frontier: Frontier, blamed: Blame) -> Place | None:
    """The call by which the value is turned too, or behind which query or key is not; None where no call is at fault.

    What one helper makes of several arrays is right in there.
    """
    operation, number = frontier.operation(blamed.operation), blamed.operation
    for value, sight in frontier.sighted(number) if blamed.skipped is None else ():
        maker = first_of(frontier, value, sight) if sight.of == "value" else None
        if maker is not None:
            handed_in = any(given.of == "value" for _, given in frontier.sighted(maker))
            calls = frontier.chain(number)[:-1]
            within = handed_in and calls == frontier.chain(maker)[:-1]
            return calls[-1] if within and calls else frontier.beside(number, maker, whole=True)
    alike = (one for one in frontier.recognition.recording.operations if one.place == operation.place)
    shared = any(one.name == operation.name and one.calls != operation.calls for one in alike)
    if blamed.skipped != Stage.POSITION or blamed.used_by is None or not shared:
        return None
    return frontier.beside(number, blamed.used_by, whole=True)


def spot_of_missing(source: Source, frontier: Frontier, blamed: Blame, place: Place) -> Place:
    """Where a stage is missing: on the very line that gives up what it made; or among calls that are handed on at once.

    There it is where the file has a function that nothing calls.
    """
    own = frontier.place(blamed.operation)
    if blamed.skipped is None or blamed.used_by is None or own is None:
        return place
    if blamed.unused:
        return own if own.file == place.file and source.discards(own) else place
    here, there = (
        frontier.beside(*pair, whole=True)
        for pair in ((blamed.operation, blamed.used_by), (blamed.used_by, blamed.operation))
    )
    nested = here not in (None, own) and there is not None and here.line == there.line
    called = {one.function.rpartition(".")[2] for one in frontier.recognition.recording.places}
    return here if nested and here is not None and source.never_called(called) else place


def _is_one_of_several(frontier: Frontier, number: int) -> bool:
    """Whether one expression calls what makes an array for several, one after the other."""
    operation, others = frontier.operation(number), frontier.recognition.recording.operations
    alike = [
        one for one in others if (one.name, one.place, one.calls) == (operation.name, operation.place, operation.calls)
    ]
    return bool(operation.calls) and len(alike) > 1


def along_heads(frontier: Frontier, blamed: Blame) -> bool:
    """Whether it is blamed for the axes of what rope turns."""
    return frontier.stage == Stage.POSITION and blamed.skipped == Stage.HEADS
