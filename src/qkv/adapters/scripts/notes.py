"""The notes on a script that runs: its arrays, what made each, and the variables that they are given to."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.adapters.messages import Binding
from qkv.adapters.recording import Array, Operation, Recording, Ref, Value
from qkv.adapters.scripts.calls import Calls
from qkv.adapters.scripts.noting import Child, Each, Node
from qkv.adapters.values import dtype_name, is_tensor, to_float64

MOST_OPERATIONS = 20_000
MOST_BYTES = 64 << 20
"""Where the notes end, the script goes on."""

COMPARING = frozenset({"allclose", "equal", "array_equal", "isclose", "assert_close", "assert_allclose", "eq"})
"""Operations that are noted though they make no array: they hold two against each other."""

_OF_MODULES = ("p", "dim", "normalized_shape", "num_heads", "training")


class Notes:
    """Takes the notes: called as ``note(number, value)`` it gives the value back.

    Args:
        nodes: what each number stands for.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._values: list[Value] = []
        self._operations: list[Operation] = []
        self._bound: list[Binding] = []
        self._names: list[Binding] = []
        self._in_name: dict[tuple[str, str], int] = {}
        self._calls = Calls(nodes)
        self._last: dict[int, Any] = {}
        arguments = [one for node in nodes for one in (*node.arguments, *node.keywords.values())]
        self._each: dict[int, list[Any]] = {one.number: [] for one in arguments if isinstance(one, Each)}
        self._held: dict[int, tuple[Any, int]] = {}
        self._objects: list[Any] = []
        self._bytes, self._complete = 0, True

    def __call__(self, number: int, value: Any) -> Any:
        """The value itself, noted."""
        if self._complete:
            try:
                self._note(number, value)
            except Exception:  # noqa: BLE001 - the script must not suffer from what can't be noted
                self._last[number] = None
        return value

    def recording(self) -> Recording:
        """All that was noted."""
        places = [node.place for node in self._nodes]
        return Recording(self._values, self._operations, places, complete=self._complete)

    def bound(self) -> list[Binding]:
        """Each time a variable was given an array."""
        return self._bound

    def held(self) -> list[Binding]:
        """Likewise, and each time that one was read and held another array than before."""
        return self._names

    def _note(self, number: int, value: Any) -> None:
        node = self._nodes[number]
        if not node.operation:
            self._last[number] = made = self._argument(value, node.place.code)
            if isinstance(made, Ref):
                self._hold(node.place.code, made.value, node)
        elif node.changes:
            self._changed(number, node, value)
        else:
            self._last[number] = self._made(number, node, value)
        if number in self._each:
            self._each[number].append(self._last.get(number))
        self._bind(node, self._last.get(number))
        self._complete = len(self._operations) < MOST_OPERATIONS and self._bytes < MOST_BYTES

    def _bind(self, node: Node, made: Any) -> None:
        values = made if isinstance(made, list) and len(made) == len(node.binds) else [made] * len(node.binds)
        for name, value in zip(node.binds, values, strict=False):
            if isinstance(value, Ref):
                self._give(name, value.value, node)

    def _give(self, name: str, value: int, node: Node) -> None:
        """Nothing; a statement has given a variable an array."""
        self._bound.append(Binding(name, value, len(self._operations), node.place.line, node.place.function))
        self._hold(name, value, node)

    def _hold(self, name: str, value: int, node: Node) -> None:
        """Nothing; a variable holds an array where an expression stands."""
        function = node.place.function
        if self._in_name.get((function, name)) != value:
            self._in_name[function, name] = value
            self._names.append(Binding(name, value, len(self._operations), node.place.line, function))

    def _made(self, number: int, node: Node, value: Any) -> Any:
        """What an expression made; an operation where that is an array that nothing noted has made before."""
        arguments, keywords = self._given(node)
        name, weights = self._called(node)
        known = len(self._values)
        made = self._argument(value)
        fresh = [ref.value for ref in _refs(made) if ref.value >= known]
        changed = self._changes(arguments)
        name = name or node.operation
        if fresh or changed or (name in COMPARING and (node.callee or name == "eq")):
            arguments = [_plain(one) for one in (*arguments, *weights) if not isinstance(one, _Other)]
            keywords = {word: _plain(one) for word, one in keywords.items()}
            self._add(Operation(name, number, arguments, keywords, [*fresh, *changed], bool(changed)))
        return made

    def _add(self, operation: Operation) -> None:
        place = self._nodes[operation.place or 0].place
        self._operations.append(replace(operation, calls=self._calls.leading_to(place)))

    def _given(self, node: Node) -> tuple[list[Any], dict[str, Any]]:
        return [self._resolved(one) for one in node.arguments], {
            name: self._resolved(one) for name, one in node.keywords.items()
        }

    def _resolved(self, argument: Any) -> Any:
        if isinstance(argument, Child):
            return self._last.get(argument.number)
        if isinstance(argument, Each):
            made, self._each[argument.number] = self._each[argument.number], []
            return made
        if isinstance(argument, tuple | list):
            return type(argument)(self._resolved(one) for one in argument)
        return argument

    def _called(self, node: Node) -> tuple[str, list[Any]]:
        """The name of a layer that is called, and its weights; nothing for anything else."""
        callee = None if node.callee is None else self._last.get(node.callee.number)
        if not isinstance(callee, _Other) or not callee.is_layer:
            return "", []
        layer, where = callee.value, self._nodes[node.callee.number].place.code if node.callee else ""
        arrays = [(name, getattr(layer, name, None)) for name in ("weight", "bias")]
        weights = [self._argument(array, f"{where}.{name}") for name, array in arrays if array is not None]
        settings = {
            name: getattr(layer, name) for name in _OF_MODULES if isinstance(getattr(layer, name, None), int | float)
        }
        return type(layer).__name__.lower(), [*weights, *([settings] if settings else [])]

    def _changes(self, arguments: Sequence[Any]) -> list[int]:
        """New numbers of arrays among the arguments that the operation has changed in place."""
        held = [(self._objects[ref.value], ref.value) for ref in _refs(arguments)]
        return [self._take(kept, "") for kept, number in held if not _same(kept, self._values[number].array)]

    def _changed(self, number: int, node: Node, value: Any) -> None:
        arguments, _ = self._given(node)
        before = self._held.get(id(value))
        made = self._argument(value, node.place.target)
        if isinstance(made, Ref) and (before is None or before[1] != made.value):
            arguments = [_plain(one) for one in arguments]
            self._add(Operation(node.operation, number, arguments, {}, [made.value], in_place=True))
            self._give(node.place.target.partition("[")[0], made.value, node)
        self._last[number] = made

    def _argument(self, value: Any, name: str = "") -> Any:
        """A value as an operation's argument: arrays by their numbers."""
        if _is_array(value):
            held = self._held.get(id(value))
            if held is not None and held[0] is value and _same(value, self._values[held[1]].array):
                return Ref(held[1])
            return Ref(self._take(value, name))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, list | tuple) and len(value) <= 4096:
            return [self._argument(one) for one in value]
        return _Other(value)

    def _take(self, value: Any, name: str) -> int:
        array = to_float64(value)
        self._bytes += array.nbytes
        number = len(self._values)
        self._values.append(Value(array, dtype_name(value), name))
        self._held[id(value)] = value, number
        self._objects.append(value)
        return number


class _Other:
    """What is no array and no scalar: only layers among these say something."""

    def __init__(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        self.is_layer = torch is not None and isinstance(value, torch.nn.Module)
        self.value = value if self.is_layer else None


def _plain(argument: Any) -> Any:
    """An argument as a recording holds it: what is neither an array nor a scalar is only named."""
    if isinstance(argument, list | tuple):
        return type(argument)(_plain(one) for one in argument)
    if argument is None or isinstance(argument, Ref | bool | int | float | str):
        return argument
    return None if isinstance(argument, _Other) else repr(argument)


def _is_array(value: Any) -> bool:
    if isinstance(value, np.generic):
        return isinstance(value, np.floating)
    return isinstance(value, np.ndarray) or is_tensor(value)


def _same(value: Any, array: Array) -> bool:
    """Whether an array still holds what it held."""
    with contextlib.suppress(Exception):
        now = to_float64(value)
        return now.shape == array.shape and bool(np.array_equal(now, array, equal_nan=now.dtype.kind == "f"))
    return True


def _refs(argument: Any) -> Iterator[Ref]:
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, list | tuple):
        for one in argument:
            yield from _refs(one)
