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
from qkv.adapters.watching.numpy_arrays import handed_on
from qkv.adapters.watching.numpy_makers import users_modules
from qkv.adapters.watching.recorder import DEEPEST, Recorder
from qkv.adapters.watching.snapshots import is_watched


def given(recorder: Recorder, candidate: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments of a call as they are to be handed over, each array named by the parameter it is for."""
    handed: dict[int, tuple[Any, Any]] = {}
    named = zip(_parameters(candidate, len(args)), args, strict=True)
    return (
        [_handed(recorder, one, name, handed, 0) for name, one in named],
        {name: _handed(recorder, one, name, handed, 0) for name, one in kwargs.items()},
    )


def _parameters(candidate: Any, count: int) -> list[str]:
    """The names of the first parameters of what is called; a number where there is no name."""
    try:
        parameters = inspect.signature(original(calling_method(candidate))).parameters.values()
    except (TypeError, ValueError):
        return [str(place) for place in range(count)]
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
    return [names[place] if place < len(names) else joined(rest, place - len(names)) for place in range(count)]


def _handed(recorder: Recorder, value: Any, name: str, handed: dict[int, tuple[Any, Any]], depth: int) -> Any:
    if is_watched(value):
        if id(value) not in handed:
            handed[id(value)] = value, handed_on(value)
            recorder.name(handed[id(value)][1], name)
        return handed[id(value)][1]
    if depth < DEEPEST and type(value) in (list, tuple):
        items = (_handed(recorder, one, joined(name, at), handed, depth + 1) for at, one in enumerate(value))
        return type(value)(items)
    if depth < DEEPEST and type(value) is dict:
        return {key: _handed(recorder, one, joined(name, key), handed, depth + 1) for key, one in value.items()}
    return value


@contextmanager
def held(recorder: Recorder, candidate: Any) -> Iterator[None]:
    """Nothing; meanwhile the arrays that a candidate holds have names, ``self.W_query.weight``, and are watched."""
    with ExitStack() as put_back:
        for slot in list(slots(getattr(candidate, "__self__", candidate))):
            watched = _watched(put_back, slot.container, slot.key)
            recorder.name(watched, f"self.{slot.name}")
        yield


@contextmanager
def globals_of(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile the arrays that stand in the user's modules have their names, and are watched."""
    with ExitStack() as put_back:
        for module in users_modules(recorder):
            for name, value in list(vars(module).items()):
                if is_watched(value) and not isinstance(value, np.generic):
                    recorder.name(_watched(put_back, vars(module), name), name)
        yield


def _watched(put_back: ExitStack, container: Any, key: Any) -> Any:
    """The array in a container, now a watched one; what was there stands there again in the end."""
    before = container[key]
    watched = handed_on(before)

    def restore() -> None:
        if watched is not before and _at(container, key) is watched:
            container[key] = before

    container[key] = watched
    put_back.callback(restore)
    return watched


def _at(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except LookupError:
        return None
