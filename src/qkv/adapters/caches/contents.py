"""What a cache holds, whatever it is, and the cache in what a candidate returned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from qkv.adapters.names import call_role_of
from qkv.adapters.values import is_tensor
from qkv.errors import CandidateError

DEEPEST = 5
"""Levels of lists, dicts and objects that are followed."""


def contents(value: Any, depth: int = DEEPEST) -> Any:
    """What a value holds, so that two of these tell whether it changed in between."""
    if is_tensor(value):
        return tuple(value.shape), value.detach().reshape(-1).tolist() if not value.is_complex() else value._version
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if depth == 0 or value is None or isinstance(value, bool | int | float | str):
        return value if isinstance(value, bool | int | float | str) else None
    if isinstance(value, Mapping):
        return tuple((str(key), contents(item, depth - 1)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(contents(item, depth - 1) for item in value)
    own = {**getattr(value, "__dict__", {}), **getattr(value, "_buffers", {})}
    return tuple((name, contents(item, depth - 1)) for name, item in own.items())


def gone_on(result: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """The caches to hand to the next call, by the names of their arguments: those returned, or the ones handed over.

    Args:
        result: what the candidate returned.
        held: the caches that it was given.
    """
    named = _named(result)
    items = _items(result)
    if len(held) == 1:
        name, before = next(iter(held.items()))
        return {name: named[0] if len(named) == 1 else _one(items, before)}
    pair = _pair(items, len(held))
    return dict(held) if pair is None else dict(zip(held, pair, strict=True))


def _named(result: Any) -> list[Any]:
    """What stands under the name of a cache in a result with names."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    elif hasattr(result, "_asdict"):
        result = result._asdict()
    if not isinstance(result, Mapping):
        return []
    said = [item for name, item in result.items() if _is_cache_name(str(name))]
    return [item for item in said if item is not None]


def _is_cache_name(name: str) -> bool:
    return call_role_of(name) == "cache" or "cache" in name.lower() or name.lower().startswith(("present", "past"))


def _items(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        return list(result.values())
    return list(result) if isinstance(result, list | tuple) else [result]


def _one(items: list[Any], before: Any) -> Any:
    """The one cache among the items of a result; ``before`` where none of them is one."""
    holding = [item for item in items if _is_holder(item)]
    alike = [item for item in holding if type(item) is type(before)]
    if any(item is before for item in holding):
        return before
    if alike or (holding and not (before is not None and contents(before) and not isinstance(before, tuple | list))):
        return (alike or holding)[-1]
    arrays = [item for item in items[1:] if _is_array(item)]
    if _is_array(before):
        return next((item for item in arrays if item.ndim == before.ndim), before)
    if len(arrays) >= 2 and arrays[-1].shape[:-1] == arrays[-2].shape[:-1] and not _is_own(before):
        return arrays[-2], arrays[-1]
    stacked = [item for item in arrays if item.ndim == 5]
    return stacked[-1] if before is None and stacked else before


def _pair(items: list[Any], count: int) -> list[Any] | None:
    """As many arrays as there are caches: the last ones of the result, or those of a tuple in it."""
    for item in reversed(items):
        if isinstance(item, list | tuple) and len(item) == count and all(_is_array(one) for one in item):
            return list(item)
    arrays = [item for item in items[1:] if _is_array(item)]
    return arrays[-count:] if len(arrays) >= count else None


def _is_array(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, np.ndarray)


def _is_own(value: Any) -> bool:
    """Whether a cache is an object of a class rather than arrays in lists and dicts."""
    return not (value is None or isinstance(value, list | tuple | Mapping))


def _is_holder(value: Any) -> bool:
    return not (value is None or _is_array(value) or isinstance(value, bool | int | float | str))


def moved(before: Any, after: Any, name: str) -> None:
    """Nothing, if the first call left something in a cache.

    Raises:
        CandidateError: it left it as it was, and gave none back.
    """
    if before == contents(after):
        raise CandidateError(f"the call leaves nothing in its argument {name!r}, and returns no cache either")
