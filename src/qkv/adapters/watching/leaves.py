"""Where arrays come from that no operation has made: arguments, the candidate's own arrays, globals of the user's code.

Those of NumPy are put there as watched ones, over the same memory, for as long as the candidate is watched.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from qkv.adapters.parts import slots
from qkv.adapters.signatures import calling_method, original
from qkv.adapters.values import joined
from qkv.adapters.watching.arguments import DEEPEST
from qkv.adapters.watching.numpy_arrays import handed_on
from qkv.adapters.watching.numpy_makers import users_modules
from qkv.adapters.watching.putting import put
from qkv.adapters.watching.recorder import Recorder
from qkv.adapters.watching.snapshots import is_watched


@contextmanager
def given(
    recorder: Recorder, candidate: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The arguments of a call as they are to be handed over, each array named by the parameter it is for."""
    named = dict(zip(_parameters(candidate, len(args)), args, strict=True))
    handed: dict[int, Any] = {}
    with ExitStack() as put_back:
        for container in (named, both := dict(kwargs)):
            for name in container:
                _hand(recorder, container, name, name, handed, put_back)
        yield list(named.values()), both


def _parameters(candidate: Any, count: int) -> list[str]:
    """The names of the first parameters of what is called; a number where there is no name."""
    try:
        parameters = inspect.signature(original(calling_method(candidate))).parameters.values()
    except (TypeError, ValueError):
        return [str(place) for place in range(count)]
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
    return [names[place] if place < len(names) else joined(rest, place - len(names)) for place in range(count)]


def _hand(
    recorder: Recorder, container: Any, key: Any, path: str, handed: dict[int, Any], put_back: ExitStack, depth: int = 0
) -> None:
    """Nothing; names the arrays that stand somewhere in a container, and puts watched ones there.

    In the container itself, for it may be a cache that the candidate adds to.
    """
    value = container[key]
    if is_watched(value):
        watched = _watched(put_back, container, key, handed)
        recorder.name(watched, path)
    elif depth < DEEPEST and type(value) in (list, dict):
        for inner in range(len(value)) if isinstance(value, list) else list(value):
            _hand(recorder, value, inner, joined(path, inner), handed, put_back, depth + 1)
    elif depth < DEEPEST and type(value) is tuple:
        items = list(value)
        for inner in range(len(items)):
            _hand(recorder, items, inner, joined(path, inner), handed, put_back, depth + 1)
        if any(one is not other for one, other in zip(items, value, strict=True)):
            put(put_back, container, key, tuple(items))


@contextmanager
def held(recorder: Recorder, candidate: Any) -> Iterator[None]:
    """Nothing; meanwhile the arrays that a candidate holds have names, ``self.W_query.weight``, and are watched."""
    handed: dict[int, Any] = {}
    with ExitStack() as put_back:
        for slot in list(slots(getattr(candidate, "__self__", candidate))):
            recorder.name(_watched(put_back, slot.container, slot.key, handed), f"self.{slot.name}")
        yield


@contextmanager
def globals_of(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile the arrays that stand in the user's modules have their names, and are watched."""
    handed: dict[int, Any] = {}
    with ExitStack() as put_back:
        for module in users_modules(recorder):
            for name, value in list(vars(module).items()):
                if is_watched(value) and not isinstance(value, np.generic):
                    recorder.name(_watched(put_back, vars(module), name, handed), name)
        yield


def _watched(put_back: ExitStack, container: Any, key: Any, handed: dict[int, Any]) -> Any:
    """The array in a container, now a watched one: the same one for the same array."""
    before = container[key]
    watched = handed.setdefault(id(before), handed_on(before))
    if watched is not before:
        put(put_back, container, key, watched)
    return watched
