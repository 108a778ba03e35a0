"""Carrying: the caches that go from one call of a candidate to the next, on the side that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from qkv.adapters.caches.contents import contents, gone_on, moved
from qkv.adapters.caches.making import emptied, fresh, set_up
from qkv.adapters.messages import Array, Call, Fresh, Handed
from qkv.adapters.tracebacks import one_line
from qkv.errors import CandidateError


class Carrier:
    """The caches of calls that follow each other, each under the name of its argument.

    Args:
        candidate: what is called; its own object, where it is a method.
        module: the module that the candidate stands in.
        first: the first call.
        convert: makes an array of the candidate's framework.
    """

    def __init__(self, candidate: Any, module: ModuleType | None, first: Call, convert: Callable[[Array], Any]) -> None:
        self._candidate = getattr(candidate, "__self__", candidate)
        self._module, self._convert, self._dtype = module, convert, first.dtype
        self._held: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        set_up(self._candidate, module, first.room, first.dtype)

    def begin(self, call: Call) -> None:
        """Nothing; lets go of all caches where the call begins a new sequence.

        Raises:
            CandidateError: the candidate keeps its own, and has no way to empty it.
        """
        if not call.anew:
            return
        self._held.clear()
        if any(isinstance(value, Handed) for value in [*call.args, *call.kwargs.values()]):
            return
        try:
            done = emptied(self._candidate, call.room, self._dtype)
        except Exception as error:  # noqa: BLE001 - what empties it may be meant for other arguments
            raise CandidateError(f"emptying its cache raised {one_line(error)}") from None
        if not done and call.anew == "emptied":
            raise CandidateError("it keeps a cache of its own, and has no method that empties it", hint="reset_cache()")

    def filled(self, value: Any) -> Any:
        """The arguments with the caches in their places."""
        if isinstance(value, Handed):
            if value.name not in self._held:
                self._held[value.name] = self._made(value.first)
                self._before[value.name] = contents(self._held[value.name])
            return self._held[value.name]
        if isinstance(value, list | tuple):
            return type(value)(self.filled(item) for item in value)
        return {key: self.filled(item) for key, item in value.items()} if isinstance(value, dict) else value

    def take(self, result: Any, *, go_on: bool) -> None:
        """Nothing; finds the caches for the next call in what this one returned.

        Raises:
            CandidateError: there are further calls, and the first one left nothing in its caches.
        """
        if not self._held:
            return
        self._held = gone_on(result, self._held)
        for name, before in self._before.items() if go_on else ():
            moved(before, self._held[name], name)
        self._before.clear()

    def _made(self, first: Any) -> Any:
        if isinstance(first, Fresh):
            return fresh(first, self._candidate, self._module, self._dtype)
        if isinstance(first, np.ndarray):
            return self._convert(first)
        if isinstance(first, Mapping):
            return {key: self._made(item) for key, item in first.items()}
        return type(first)(self._made(item) for item in first) if isinstance(first, list | tuple) else first
