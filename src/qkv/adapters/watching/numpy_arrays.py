"""NumPy's operations on their way: arrays of a subclass that takes down what is done with them, and is else the same.

The work itself is done on plain arrays over the same memory, so that the numbers are what they would be anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from qkv.adapters.watching.arguments import DEEPEST
from qkv.adapters.watching.recorder import Recorder, caller

_recorder: Recorder | None = None


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile what is done with watched arrays is taken down."""
    global _recorder
    outer, _recorder = _recorder, recorder
    try:
        yield
    finally:
        _recorder = outer


def current() -> Recorder | None:
    """Who takes down at present."""
    return _recorder


class WatchedArray(np.ndarray[Any, Any]):
    """An array that takes down what is done with it, for as long as anybody listens."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """What the ufunc gives."""
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return run(name, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """What the function gives."""
        return run(func.__name__, func, tuple(args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        """The array's entries along its first axis."""
        return map(self.__getitem__, range(len(self)))

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The array with its axes reversed."""
        return run("T", lambda array: array.T, (self,), {})

    @property
    def mT(self) -> Any:  # noqa: N802 - NumPy's name
        """The array with its last two axes changed about."""
        return run("mT", lambda array: np.swapaxes(array, -1, -2), (self,), {})


_METHODS = (
    *("__getitem__", "__setitem__", "__deepcopy__", "__copy__", "all", "any", "argmax", "argmin", "argsort", "astype"),
    *("choose", "clip", "compress", "conj", "copy", "cumprod", "cumsum", "diagonal", "dot", "fill", "flatten", "max"),
    *("item", "mean", "min", "nonzero", "partition", "prod", "put", "ravel", "repeat", "reshape", "round", "sort"),
    *("squeeze", "__float__", "std", "sum", "swapaxes", "take", "tolist", "trace", "transpose", "var", "view"),
)


def _method(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(name, original, (self, *args), kwargs)

    return method


# Code that asks for the name of the type gets the usual answer.
WatchedArray.__name__ = "ndarray"
for _name in _METHODS:
    setattr(WatchedArray, _name, _method(_name))


def handed_on(array: Any) -> Any:
    """A plain array of numbers as one that is watched, over the same memory; anything else as it is."""
    return np.ndarray.view(array, WatchedArray) if type(array) is np.ndarray and array.dtype.kind in "biufc" else array


def plain(array: Any) -> Any:
    """A watched array as a plain one over the same memory; anything else as it is."""
    return np.ndarray.view(array, np.ndarray) if type(array) is WatchedArray else array


def run(name: str, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a function gives for plain arrays in the place of watched ones, taken down if anybody listens."""
    bare: dict[int, tuple[Any, Any]] = {}
    plain_args = _swapped(args, bare, 0)
    plain_kwargs = _swapped(dict(kwargs), bare, 0)
    recorder = _recorder
    if recorder is None or recorder.full:
        return _as_handed(function(*plain_args, **plain_kwargs), bare, lambda array: array)
    return recorder.record(
        name, args, kwargs, lambda: _as_handed(function(*plain_args, **plain_kwargs), bare, handed_on), caller(2)
    )


def _swapped(value: Any, bare: dict[int, tuple[Any, Any]], depth: int) -> Any:
    """The value with plain arrays in it; ``bare`` has, by the id of each, the plain one and the watched one."""
    if type(value) is WatchedArray:
        for one, watched in bare.values():
            if watched is value:
                return one
        one = plain(value)
        bare[id(one)] = one, value
        return one
    if depth < DEEPEST:
        if type(value) in (list, tuple):
            return type(value)(_swapped(one, bare, depth + 1) for one in value)
        if type(value) is dict:
            return {key: _swapped(one, bare, depth + 1) for key, one in value.items()}
        if type(value) is slice:
            return slice(*(_swapped(one, bare, depth + 1) for one in (value.start, value.stop, value.step)))
    return value


def _as_handed(result: Any, bare: dict[int, tuple[Any, Any]], hand: Callable[[Any], Any]) -> Any:
    """The result with watched arrays in it: where it is one of the arguments, that very one."""
    if id(result) in bare:
        return bare[id(result)][1]
    if type(result) in (list, tuple):
        return type(result)(_as_handed(one, bare, hand) for one in result)
    return hand(result)
