"""Blame: the operation that is to be changed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qkv.vocabulary import Stage


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
        used_by: the operation that is given the odd or exchanged array, or what lacks the skipped stage.
        bound: of a stretch that it cuts out, which end is the wrong one.
        before: another operation that might be changed in its place: one that scales already, or lays out.
        exchanged: whether what it makes has changed places with another array where they were handed on together.
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
    exchanged: bool = False
