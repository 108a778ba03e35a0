"""Sizes that hide a mistake: where two axes are equally long, arrays with the two exchanged have the same shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from qkv.shapes.sheet import Line

TOKENS = {"tokens", "query", "key"}
"""Axes that count the same tokens where a sequence attends to itself: these can't be made to differ."""


def hidden_by(sizes: Mapping[str, int], lines: Sequence[Line]) -> Iterator[str]:
    """A warning for each two axes that would not be missed if they changed places, with these sizes.

    Args:
        sizes: the sizes that the user has, by the names of the axes; of others nothing is said.
        lines: what the code makes, at sizes that are all different.
    """
    found: dict[tuple[frozenset[str], int], list[Line]] = {}
    for line in lines:
        for one, other in itertools.combinations(dict.fromkeys(line.shape.axes), 2):
            size = _size(one, sizes)
            if size is not None and size == _size(other, sizes) and not {one, other} <= TOKENS:
                found.setdefault((frozenset((one, other)), size), []).append(line)
    for (pair, size), where in found.items():
        one, other = sorted(pair)
        places = ", ".join(dict.fromkeys(str(line.line) for line in where))
        yield (
            f"with {size} {one} and {size} {other} an array {where[0].shape.names} has the same shape with the two "
            f"exchanged: a wrong transpose or view would not raise (line {places}). Try sizes that differ first"
        )


def _size(name: str, sizes: Mapping[str, int]) -> int | None:
    """How long an axis is with these sizes; None where they don't say, or it can't be exchanged with anything."""
    parts = name.split("*")
    if not all(part in sizes for part in parts):
        return None
    size = math.prod(sizes[part] for part in parts)
    return size if size > 1 else None
