"""The script's own calls that led to where it stands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from types import CodeType, FrameType

from qkv.adapters.recording import Place
from qkv.adapters.scripts.noting import Node

_INNER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
"""Frames that nobody calls."""


class Calls:
    """Finds the calls in the script's frames.

    Args:
        nodes: the script's expressions.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._by_span = {_span(node.place): number for number, node in enumerate(nodes) if node.callee is not None}
        self._by_code: dict[tuple[CodeType, int], int | None] = {}

    def leading_to(self, place: Place) -> list[int]:
        """The numbers of the calls that have led to the expression that runs now, the innermost first."""
        if not place.function:
            return []
        pairs = pairwise(_frames(place.file))
        calls = [self._call_at(outer) for inner, outer in pairs if inner.f_code.co_name not in _INNER]
        return [call for call in calls if call is not None]

    def _call_at(self, frame: FrameType) -> int | None:
        """The call that a frame has made; None where it stands at none."""
        key = frame.f_code, frame.f_lasti
        if key not in self._by_code:
            span = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
            self._by_code[key] = self._by_span.get(span) if span is not None else None
        return self._by_code[key]


def _frames(file: str) -> Iterator[FrameType]:
    """The frames of a file's code, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == file:
            yield frame
        frame = frame.f_back


def _span(place: Place) -> tuple[int | None, int | None, int | None, int | None]:
    """Where an expression begins and ends, as `CodeType.co_positions` has it."""
    return place.line, place.end_line, place.column, place.end_column
