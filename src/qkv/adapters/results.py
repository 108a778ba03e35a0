"""The arrays in what a candidate returned, and the whole of it in words."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from qkv.adapters.encoding import LARGEST_MESSAGE
from qkv.adapters.messages import Returned
from qkv.adapters.tracebacks import in_bytes
from qkv.adapters.values import dtype_name, is_tensor, joined, to_float64
from qkv.errors import CandidateError

MOST_RETURNED = 1000
DEEPEST = 20
"""Levels of lists, dicts and the like that are followed."""


def flatten(result: Any) -> list[Returned]:
    """Every array in a result with the path it stood at, in order; numbers in nested lists count as an array.

    A list of arrays of one shape, such as the rows that a loop has collected, is one array too, after all others.

    Raises:
        CandidateError: an array holds complex values or no numbers.
    """
    found: list[Returned] = []
    bytes_left = LARGEST_MESSAGE
    for path, value in _leaves(result, "", ()):
        bytes_left -= 8 * math.prod(() if is_tensor(value) and value.is_nested else value.shape)
        if bytes_left < 0:
            raise CandidateError(f"it returned more than {in_bytes(LARGEST_MESSAGE)} of arrays")
        try:
            found.append(Returned(path, to_float64(value), dtype_name(value)))
        except CandidateError as error:
            place = f" at {path!r}" if path else ""
            raise CandidateError(f"the array that it returned{place} {error.message}", hint=error.hint) from None
        if len(found) == MOST_RETURNED:
            break
    stacked = _stacked(result)
    return found if stacked is None else [*found, stacked]


def value_at(result: Any, path: str) -> Any:
    """The array that :func:`flatten` gives this path, as it stands in the result; a list of them as one tensor."""
    for at, value in _leaves(result, "", ()):
        if at == path:
            return value
    return _one_tensor(result)


def _leaves(value: Any, path: str, within: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The arrays in a result. What holds itself, or is nested deeper than any result, is not followed."""
    plain = isinstance(value, int | float) and not isinstance(value, np.generic)
    if value is None or plain or isinstance(value, str | bytes):
        return
    if len(within) > DEEPEST or id(value) in within:
        return
    within = (*within, id(value))
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        yield path, value
    elif (numbers := _as_numbers(value)) is not None:
        yield path, numbers
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, joined(path, key), within)
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=False):
            yield from _leaves(item, joined(path, name), within)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name, None), joined(path, field.name), within)
    elif hasattr(value, "__array__"):
        yield path, np.asarray(value)


def _innermost(value: Any) -> Any:
    """The first thing in nested lists that is no list; the value itself where that is none."""
    for _ in range(DEEPEST):
        if not isinstance(value, list | tuple) or not value:
            return value
        value = value[0]
    return None


def _as_numbers(value: Any) -> Any:
    """The array that nested lists of numbers spell, Python's, NumPy's or torch's; None for anything else."""
    first = _innermost(value)
    if first is value or isinstance(first, str | bytes):
        return None
    scalars = is_tensor(first) and first.dim() == 0
    if not scalars and not isinstance(first, int | float | np.number | np.bool_):
        return None
    try:
        if scalars:
            return _one_tensor(value)
        array = np.array(value)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _one_tensor(value: Any) -> Any:
    return (
        sys.modules["torch"].stack([_one_tensor(item) for item in value]) if isinstance(value, list | tuple) else value
    )


def _to_numbers(value: Any, depth: int) -> Any:
    """Nested lists with NumPy's arrays in the place of tensors.

    Raises:
        ValueError: a list is longer than any that a loop over tokens collects.
    """
    if isinstance(value, list | tuple) and depth < DEEPEST:
        if len(value) > MOST_RETURNED:
            raise ValueError("too long")
        return [_to_numbers(item, depth + 1) for item in value]
    return to_float64(value) if is_tensor(value) else value


def _stacked(value: Any) -> Returned | None:
    """Lists of arrays that all have one shape as one array; None for anything else."""
    first = _innermost(value)
    if not isinstance(value, list) or not (is_tensor(first) or isinstance(first, np.ndarray)) or not first.ndim:
        return None
    try:
        array = np.array(_to_numbers(value, 0))
    except (ValueError, TypeError, CandidateError):
        return None
    return Returned("", to_float64(array), dtype_name(first)) if array.dtype.kind in "biuf" else None


def describe(value: Any, depth: int = 2) -> str:
    """A result in words: ``tuple of Tensor (2, 7, 48), None``."""
    if value is None:
        return "None"
    name = type(value).__name__
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        return f"{name} {_shape(value)}"
    if isinstance(value, bool | int | float | str):
        return f"{name} {value!r}"[:80]
    if depth and isinstance(value, Mapping):
        return f"{name} of " + (
            ", ".join(f"{k}: {describe(v, depth - 1)}" for k, v in list(value.items())[:6]) or "nothing"
        )
    if depth and isinstance(value, list | tuple):
        more = ", …" if len(value) > 6 else ""
        return f"{name} of " + (", ".join(describe(item, depth - 1) for item in value[:6]) or "nothing") + more
    return name


def _shape(value: Any) -> str:
    return "of rows that differ" if is_tensor(value) and value.is_nested else str(tuple(value.shape))
