"""Flow: which operation made an array, and what it was made of."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from qkv.adapters.recording import Operation, Recording, Ref


class Flow:
    """The operations of a recording as a graph.

    Args:
        recording: the recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @cached_property
    def _makers(self) -> dict[int, int]:
        return {
            value: number
            for number, operation in enumerate(self.recording.operations)
            for value in operation.results
        }  # fmt: skip

    def maker(self, value: int) -> int | None:
        """Number of the operation that made a value; None for what was there before."""
        return self._makers.get(value)

    def operands(self, operation: int) -> list[int]:
        """Numbers of the values that an operation was given, as the recording has them."""
        return list(operands_of(self.recording.operations[operation]))

    def behind(self, values: list[int], but: Collection[int] = ()) -> set[int]:
        """Numbers of all operations that these values are made by, those aside that only make some others."""
        seen: set[int] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            maker = None if value in but else self.maker(value)
            if maker is not None and maker not in seen:
                seen.add(maker)
                waiting += self.operands(maker)
        return seen


def operands_of(operation: Operation) -> Iterator[int]:
    """Numbers of the values among an operation's arguments; none where only their kind is asked for: ``zeros_like``."""
    if operation.name.startswith("new_") or operation.name.endswith("_like"):
        return
    own = set(operation.results)
    for value in (*_refs([*operation.arguments, *operation.keywords.values()]), *operation.computed_with):
        if value not in own:
            yield value


def _refs(argument: Any) -> Iterator[int]:
    if isinstance(argument, Ref):
        yield argument.value
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from _refs(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from _refs(item)
