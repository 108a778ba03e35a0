"""Code that is written to a file, loaded by a host and called under watch."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.adapters.host import Host
from qkv.adapters.messages import Call, Reply
from qkv.adapters.recording import Operation, Place, Recording, Ref


@dataclass
class Seen:
    """A watched call beside the same call unwatched."""

    watched: Reply
    unwatched: Reply

    @property
    def recording(self) -> Recording:
        assert self.watched.recording is not None
        return self.watched.recording

    def operations(self, name: str) -> list[Operation]:
        return [one for one in self.recording.operations if one.name == name]

    def operation(self, name: str) -> Operation:
        (found,) = self.operations(name)
        return found

    def place(self, operation: Operation) -> Place:
        assert operation.place is not None
        return self.recording.places[operation.place]

    def codes(self) -> list[str]:
        return [self.place(one).code for one in self.recording.operations]

    def names(self) -> list[str]:
        return [one.name for one in self.recording.operations]

    def array(self, number: Any) -> np.ndarray[Any, Any]:
        return self.recording.values[number.value if isinstance(number, Ref) else number].array

    def sources(self) -> set[str]:
        return {one.name for one in self.recording.values} - {""}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def written(source: str) -> str:
        path = tmp_path / "candidate.py"
        path.write_text(textwrap.dedent(source))
        return str(path)

    return written


@pytest.fixture
def watch(write: Callable[[str], str]) -> Callable[..., Seen]:
    """Calls what the source defines as ``attention``, or ``Attention`` built with ``init``."""

    def watched(
        source: str, *args: Any, init: Mapping[str, Any] | None = None, kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Seen:  # fmt: skip
        host = Host()
        host.open(f"{write(source)}:{'attention' if init is None else 'Attention'}")
        if init is not None:
            host.build(init)
        call = Call(args, kwargs or {}, **options)
        unwatched = host.call(call)
        seen = Seen(host.call(Call(args, kwargs or {}, watched=True, **options)), unwatched)
        pairs = zip(seen.watched.returned, seen.unwatched.returned, strict=True)
        assert all(np.array_equal(one.array, other.array, equal_nan=True) for one, other in pairs)
        assert seen.watched.recording is not None, "the watched call failed"
        return seen

    return watched


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)
