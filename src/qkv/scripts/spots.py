"""Spots: where code is to be written in a script, and by which names it may speak there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qkv.adapters.recording import Place
from qkv.scripts import naming
from qkv.scripts.known import Known
from qkv.scripts.reading import Reading


@dataclass(frozen=True)
class Spot:
    """A place where code is to be written.

    Attributes:
        reading: the script.
        operation: number of the operation that the code makes anew; its variables are those that hold something when
            it begins.
        place: the expression in whose place the code goes: that operation's, or a call that led to it; None for none.
        frame: the calls that led to where that stands.
    """

    reading: Reading
    operation: int
    place: Place | None
    frame: Sequence[int] = ()

    @property
    def code(self) -> str:
        """The expression as it is written."""
        return "" if self.place is None else self.place.code

    @property
    def function(self) -> str:
        """The function whose names can be spoken of; empty for none."""
        return "" if self.place is None else self.place.function

    def variable(self, known: Known, size: int | None = None) -> str:
        """The variable that holds a known array here, its last axis of that size; empty for none."""
        name = self.reading.name_at(known, self.operation, self.function)
        held = self.reading.held_at(self.operation, self.function)
        return name if name and size in (None, self.reading.array(held[name]).shape[-1]) else ""

    def name(self, known: Known, otherwise: str) -> str:
        """The variable that holds a known array here, else the expression that makes it, else what else to call it."""
        return self.variable(known) or self.reading.expression_of(known, self.frame) or otherwise

    def of_role(self, role: str) -> str:
        """The variable here that holds the queries, keys or values by its name; the role itself where there is none."""
        held = self.reading.held_at(self.operation, self.function)
        named = [name for name in held if naming.role_of(name) == role and not naming.is_matrix(name)]
        return max(named, key=lambda name: self.reading.array(held[name]).size, default=role)


class Written(NamedTuple):
    """An expression to write in a spot, and a statement in front of its own; that is empty for none."""

    spot: Spot
    code: str
    before: str = ""


def spot_at(reading: Reading, operation: int) -> Spot:
    """The spot of an operation's own expression."""
    frame = reading.operations[operation].calls if operation >= 0 else ()
    return Spot(reading, operation, reading.place(operation), frame)


def handed_over(reading: Reading, operation: int, known: Known, by: int | None = None) -> Spot:
    """The spot at which what made a known array, or called what made it, hands it on to where an operation stands.

    What a function is handed is wrong where it was made, and the function may be right for what others hand it.

    Args:
        reading: the script.
        operation: where it is used.
        known: what is handed on.
        by: the operation that made it; None for the first one that did.
    """
    by = known.made if by is None else by
    own = spot_at(reading, operation)
    made = [*reading.operations[by].calls] if by >= 0 else [*own.frame]
    calls = [*own.frame]
    depth = next(depth for depth in range(len(calls) + 1) if made[len(made) - len(calls[depth:]) :] == calls[depth:])
    if not depth:
        return own
    outer = Spot(reading, operation, reading.run.recording.places[calls[depth - 1]], calls[depth:])
    return outer if outer.name(known, "") else own
