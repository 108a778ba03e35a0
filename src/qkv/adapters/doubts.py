"""Doubts: what could not be told of a candidate. They count where nothing explains its numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Doubt:
    """Something that may be read wrongly.

    Attributes:
        why: what it is, as a clause.
        hint: the next line to type.
    """

    why: str
    hint: str
