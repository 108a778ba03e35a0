"""What operations are given and give: the arrays in it, and all of it as a recording tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from qkv.adapters.tracebacks import cut
from qkv.adapters.watching.snapshots import is_watched

MOST_ITEMS = 1000
"""Of a list among the arguments, unless it holds arrays."""
DEEPEST = 8
"""Levels of lists, tuples and dicts among arguments and results that are followed."""


def told(value: Any, of_array: Callable[[Any], Any], depth: int = 0) -> Any:
    """A value as it stands among the arguments of a `recording.Operation`.

    Args:
        value: what was given.
        of_array: what stands there for an array.
        depth: how deep in lists and the like it was.
    """
    if is_watched(value):
        return of_array(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth < DEEPEST:
        if isinstance(value, slice):
            return ("slice", *(told(one, of_array, depth + 1) for one in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {str(key): told(one, of_array, depth + 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return _told_each(value, of_array, depth + 1)
    return cut(repr(value))


def _told_each(values: list[Any] | tuple[Any, ...], of_array: Callable[[Any], Any], depth: int) -> Any:
    if len(values) > MOST_ITEMS and not is_watched(values[0]):
        return f"{type(values).__name__} of {len(values)}"
    items = [told(one, of_array, depth) for one in values]
    return items if isinstance(values, list) else tuple(items)


def arrays_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The arrays in a result, in order: itself, or those in lists, tuples, dicts and records."""
    if is_watched(value):
        yield value
    elif depth < DEEPEST and isinstance(value, list | tuple):
        for one in value:
            yield from arrays_in(one, depth + 1)
    elif depth < DEEPEST and isinstance(value, Mapping):
        for one in value.values():
            yield from arrays_in(one, depth + 1)
