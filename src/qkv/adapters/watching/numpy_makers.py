"""NumPy's functions that make arrays out of no array: meanwhile they give watched ones to the user's code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from qkv.adapters.watching.numpy_arrays import current, run
from qkv.adapters.watching.putting import put
from qkv.adapters.watching.recorder import Recorder, caller

_MAKERS = {
    np: (
        *("arange", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "empty", "eye", "full"),
        *("fromfunction", "fromiter", "frombuffer", "geomspace", "identity", "indices", "linspace", "logspace"),
        *("ones", "tri", "tril_indices", "triu_indices", "zeros"),
    ),
    np.random: (
        *("choice", "normal", "permutation", "rand", "randint", "randn", "random", "random_sample"),
        *("standard_normal", "uniform"),
    ),
}


_default_rng = np.random.default_rng


class _Generator(np.random.Generator):
    """A generator of random numbers whose arrays are watched."""


def _drawing(name: str) -> Callable[..., Any]:
    original = getattr(np.random.Generator, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current()
        if recorder is None or not recorder.places.is_users(caller().f_code.co_filename):
            return original(self, *args, **kwargs)
        return run(name, functools.partial(original, self), args, kwargs)

    return method


for _name in ("choice", "integers", "normal", "permutation", "random", "standard_normal", "uniform"):
    setattr(_Generator, _name, _drawing(_name))


@contextmanager
def patched(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile what the user's code makes by these functions is watched."""
    with ExitStack() as put_back:
        replacing: dict[int, Any] = {}
        for module, names in _MAKERS.items():
            for name in names:
                original = getattr(module, name)
                replacing[id(original)] = _watched(name, original, recorder)
                put(put_back, vars(module), name, replacing[id(original)])
        replacing[id(_default_rng)] = lambda *args, **kwargs: _Generator(_default_rng(*args, **kwargs).bit_generator)
        put(put_back, vars(np.random), "default_rng", replacing[id(_default_rng)])
        for module in users_modules(recorder):
            for name, value in list(vars(module).items()):
                if id(value) in replacing:
                    put(put_back, vars(module), name, replacing[id(value)])
        yield


def users_modules(recorder: Recorder) -> Iterator[ModuleType]:
    """The modules that are the user's own."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and recorder.places.is_users(file):
            yield module


def _watched(name: str, original: Any, recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(original)
    def maker(*args: Any, **kwargs: Any) -> Any:
        if current() is not recorder or not recorder.places.is_users(caller().f_code.co_filename):
            return original(*args, **kwargs)
        return run(name, original, args, kwargs)

    return maker
