"""The frontier: operations that are given what is right and make what isn't. One of them is the fault."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from qkv.adapters.recording import Operation
from qkv.recognition import Flow, Recognition, Sight
from qkv.vocabulary import Stage

CONSTANTS = frozenset(
    {"ones", "zeros", "full", "empty", "eye", "tensor", "array", "as_tensor", "asarray", "scalar_tensor"}
)
"""Operations that make an array of numbers alone; the numbers are judged where they are used."""

ASSEMBLING = frozenset({"setitem", "cat", "concat", "concatenate", "stack", "index_copy", "copy", "split", "chunk"})
"""Operations that lay parts together, or take them apart: what they make may be known only when it is whole."""


@dataclass(frozen=True)
class Suspect:
    """An operation on the frontier.

    Attributes:
        operation: its number.
        weight: how much speaks against it.
        sight: what it made, under the fault or as far as it is known.
    """

    operation: int
    weight: int
    sight: Sight | None


class Frontier:
    """Where what is right ends.

    Args:
        recognition: what each value is.
        stage: the stage that the diagnosis says is at fault; None where it says nothing.
    """

    def __init__(self, recognition: Recognition, stage: Stage | None) -> None:
        self.recognition, self.stage = recognition, stage
        self.flow = Flow(recognition.recording)

    @cached_property
    def slice(self) -> set[int]:
        """The operations that what was returned is made by."""
        return self.flow.behind(list(self.recognition.recording.returned))

    @cached_property
    def cleared(self) -> set[int]:
        """Values that are right: recognised as such, or only ever needed for one that is."""
        right = [value for value in range(len(self.recognition.sights)) if self.recognition.right(value)]
        behind = self.flow.behind(right)
        through = {result for operation in behind for result in self._operation(operation).results}
        return {*right, *through}

    @cached_property
    def suspects(self) -> list[Suspect]:
        """The frontier, the most suspicious operation first, and of equals the earliest."""
        found = []
        for number in sorted(self.slice):
            operation = self._operation(number)
            if operation.name in CONSTANTS or all(self.clear(value) for value in operation.results):
                continue
            if all(self.clear(value) for value in self.flow.operands(number)):
                sight = self.sight_of(operation.results)
                found.append(Suspect(number, self._weight(operation, sight), sight))
        return sorted(found, key=lambda suspect: (-suspect.weight, suspect.operation))

    def clear(self, value: int) -> bool:
        """Whether a value is right, was given, or is a constant."""
        maker = self.flow.maker(value)
        return value in self.cleared or maker is None or self._operation(maker).name in CONSTANTS

    def sight_of(self, values: Collection[int]) -> Sight | None:
        """What an operation's results are: under the fault, or in part."""
        for value in values:
            sight = self.recognition.faulty[value] or self.recognition.sights[value]
            if sight is not None:
                return sight
        return None

    def _operation(self, number: int) -> Operation:
        return self.recognition.recording.operations[number]

    def _weight(self, operation: Operation, sight: Sight | None) -> int:
        under_fault = any(self.recognition.faulty[value] is not None for value in operation.results)
        if under_fault:
            assert sight is not None
            return 5 if sight.stage == self.stage else 3
        if sight is not None:
            return 2
        return 0 if operation.name in ASSEMBLING else 1
