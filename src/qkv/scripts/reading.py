"""Reading: what every array of a script is, by which names, and where it was made."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from qkv.adapters.messages import ScriptRun
from qkv.adapters.recording import Operation, Place, Ref
from qkv.scripts.known import Array, Known, Sight

LONGEST = 60
"""Characters of an expression that is quoted in the place of a name."""


@dataclass
class Reading:
    """What was found.

    Attributes:
        run: what the script did.
        sights: what each array is, by its number; one that nothing is known of is missing.
        parents: the arrays that each was made of.
        made_by: the operation that made each.
        names: the variables that each was given to, and where none was, the one that it was read from.
    """

    run: ScriptRun
    sights: dict[int, Sight] = field(default_factory=dict)
    parents: dict[int, list[int]] = field(default_factory=dict)
    made_by: dict[int, int] = field(default_factory=dict)
    names: dict[int, list[str]] = field(default_factory=dict)

    @property
    def operations(self) -> Sequence[Operation]:
        """Every operation, in its order."""
        return self.run.recording.operations

    def array(self, value: int) -> Array:
        """The values of an array."""
        return self.run.recording.values[value].array

    def name(self, value: int) -> str:
        """The variable that an array belongs to; empty for none."""
        return self.names.get(value, [""])[0]

    def line(self, value: int) -> int:
        """The line that made an array; 0 where it isn't known."""
        return self.line_of(self.made_by.get(value, -1))

    @cached_property
    def turned(self) -> set[Known]:
        """The matrices whose second axis is the one that goes in, as their use shows."""
        made = (sight.known for sight in self.sights.values())
        return {known.sources[1] for known in made if known.move == "project" and known.over == "out"}

    def axes(self, sight: Sight) -> tuple[str, ...]:
        """The names of an array's axes; those of a matrix by its use."""
        if sight.known not in self.turned:
            return sight.axes
        return tuple({"in": "out", "out": "in"}.get(axis, axis) for axis in sight.axes)

    def place(self, operation: int) -> Place | None:
        """Where an operation stands, by its number; None where that isn't known."""
        number = self.operations[operation].place if operation >= 0 else None
        return None if number is None else self.run.recording.places[number]

    def line_of(self, operation: int) -> int:
        """The line of an operation; 0 where it isn't known."""
        place = self.place(operation)
        return 0 if place is None else place.line

    def above(self, operation: int) -> list[int]:
        """The arrays that an operation was given, and those that these were made of, the nearest first."""
        return self.with_all_above(refs(self.operations[operation].arguments))

    def with_all_above(self, values: Iterable[int]) -> list[int]:
        """Some arrays and those that they were made of, the nearest first."""
        found, pending = dict[int, None](), deque(values)
        while pending:
            value = pending.popleft()
            if value not in found:
                found[value] = None
                pending += self.parents.get(value, [])
        return list(found)

    def calls(self, operation: int) -> list[Place]:
        """The script's calls that led to where an operation stands, the innermost first."""
        return [self.run.recording.places[call] for call in self.operations[operation].calls]

    def held_at(self, operation: int, function: str) -> dict[str, int]:
        """What each variable of a function, or of none, holds when an operation begins."""
        return {one.name: one.value for one in self.run.held if one.function == function and one.after <= operation}

    def name_at(self, known: Known, operation: int, function: str) -> str:
        """The variable of a function that holds a known array when an operation begins; empty for none."""
        values = set(self.values_of(known))
        held = {name: value for name, value in self.held_at(operation, function).items() if value in values}
        return max(held, key=lambda name: self.array(held[name]).size, default="")

    def code(self, operation: int) -> str:
        """The expression of an operation."""
        place = self.place(operation)
        return "" if place is None else place.code

    def target(self, operation: Operation, value: int) -> str:
        """The variable that an operation's result is given to, by itself or as a part of it."""
        if value in self.names:
            return self.names[value][-1]
        return "" if operation.place is None else self.run.recording.places[operation.place].target

    def values_of(self, known: Known) -> list[int]:
        """The arrays that are a known one or a part of it."""
        return [value for value, sight in self.sights.items() if sight.known is known]

    def knowns(self, kind: str) -> list[Known]:
        """Every known array of a kind, in the order in which they were found."""
        return list(dict.fromkeys(sight.known for sight in self.sights.values() if sight.known.kind == kind))

    def expression_of(self, known: Known, frame: Sequence[int] | None = None) -> str:
        """The expression that makes a known array, to stand in another one; empty where it is long, or none made it.

        Args:
            known: the array.
            frame: the calls that led to where the other one stands: names of other calls mean nothing there, and what
                was made in a call from there is that call; None for anywhere.
        """
        place = self.place(known.made)
        if place is not None and frame is not None:
            calls = [*self.operations[known.made].calls]
            inner = calls[: len(calls) - len(frame)]
            place = None if [*inner, *frame] != calls else self.run.recording.places[inner[-1]] if inner else place
        if place is None or len(place.code) > LONGEST:
            return ""
        code = place.code
        return f"({code})" if any(f" {sign} " in code for sign in "@*/+-") and not code.endswith(")") else code

    def name_of(self, known: Known) -> str:
        """The variable that holds a known array, or the largest part of it."""
        named = [value for value in self.values_of(known) if self.name(value)]
        return self.name(max(named, key=lambda value: self.array(value).size)) if named else ""


def refs(argument: Any) -> Iterator[int]:
    """The numbers of the arrays among arguments."""
    if isinstance(argument, Ref):
        yield argument.value
    elif isinstance(argument, Mapping):
        yield from refs(list(argument.values()))
    elif isinstance(argument, list | tuple):
        for one in argument:
            yield from refs(one)


def names_of(run: ScriptRun) -> dict[int, list[str]]:
    """The variables that each array was given to; where there were none, the one that it was read from first."""
    names: dict[int, list[str]] = {}
    for binding in run.bound:
        names.setdefault(binding.value, []).append(binding.name)
    for binding in run.held:
        names.setdefault(binding.value, [binding.name])
    values = run.recording.values
    for number, value in enumerate(values):
        if value.name and value.name.replace(".", "").isidentifier():
            names.setdefault(number, []).append(value.name)
    return names
