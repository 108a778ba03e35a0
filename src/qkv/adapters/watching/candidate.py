"""A candidate that is watched while it is built, and then in calls that follow each other."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from qkv.adapters.parts import slots
from qkv.adapters.recording import Recording
from qkv.adapters.signatures import calling_method, original
from qkv.adapters.watching.leaves import given, held
from qkv.adapters.watching.places import Places
from qkv.adapters.watching.recorder import Recorder
from qkv.adapters.watching.watch import listening


class CandidateWatch:
    """Watches one candidate.

    Args:
        module: the module it was found in.
        value: the candidate.
        file: its file; empty where it was given as an object.
    """

    def __init__(self, module: ModuleType | None, value: Any, file: str) -> None:
        files = {file, getattr(module, "__file__", None), *_sources(value)}
        self._built = Recorder(Places([one for one in files if one]))
        self._recorder = self._built
        self._returned: list[Any] = []

    def build(self, make: Callable[[], Any]) -> None:
        """Nothing; takes down how a candidate is made. One that can't be made again is watched without that."""
        recorder = self._built
        recorder.during = "build"
        with contextlib.suppress(Exception), listening(recorder):
            made = make()
            recorder.built({f"self.{slot.name}": slot.value for slot in slots(made)})
        recorder.during = "call"

    def called(self, candidate: Callable[..., Any]) -> Callable[..., Any]:
        """The candidate as it is to be called so that it is watched."""
        if self._recorder is self._built:
            self._recorder = self._built.fork()
        recorder = self._recorder

        def call(*args: Any, **kwargs: Any) -> Any:
            with (
                held(recorder, candidate),
                given(recorder, candidate, args, kwargs) as (handed_args, handed_kwargs),
                listening(recorder),
            ):
                self._returned.append(candidate(*handed_args, **handed_kwargs))
            return self._returned[-1]

        return call

    def recording(self) -> Recording:
        """All that was done while it was built and in the calls, with what these returned."""
        return self._recorder.recording(self._returned)


def _sources(value: Any) -> Iterator[str | None]:
    """The files of a candidate's class and of what runs when it is called, which may be others than its own."""
    method = calling_method(value)
    for one in (value if inspect.isroutine(value) else type(value), inspect.unwrap(original(method))):
        with contextlib.suppress(TypeError, OSError):
            yield inspect.getsourcefile(one)
