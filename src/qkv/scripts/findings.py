"""Finding: one thing that is wrong in a script."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.adapters.recording import Place
from qkv.scripts.known import Array
from qkv.scripts.mixes import Mix
from qkv.scripts.spots import Written


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        fault: its id.
        operation: number of the operation that does it; -1 for none.
        said: what is wrong there, with the script's own names.
        instead: the expression to write in its place, with the names that are known there; code with a comment, or of
            several lines, where that alone is not it.
        mix: the mix that it spoils; None for none.
        before: a statement to write in front of that line; empty for none.
        place: the expression in whose place that goes; None for the operation's own.
        meant: where a mask is meant to let through, ``(..., query, key)``, if that is neither what it does nor causal;
            None for any other.
    """

    fault: str
    operation: int
    said: str
    instead: str
    mix: Mix | None = None
    before: str = ""
    place: Place | None = None
    meant: Array | None = None

    @property
    def of_causal(self) -> bool:
        """Whether it is about a mask that is missing or another one, where a causal one is meant."""
        return self.meant is None and (self.fault.startswith("causal") or self.fault == "mask-not-applied")

    @classmethod
    def of(cls, fault: str, said: str, written: Written, mix: Mix, operation: int | None = None) -> Finding:
        """The finding that is put right by what is written; on the operation of its spot, or on another one."""
        number = written.spot.operation if operation is None else operation
        return cls(fault, number, said, written.code, mix, written.before, written.spot.place)
