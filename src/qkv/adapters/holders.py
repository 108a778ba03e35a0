"""The candidate ready to be called in a dtype, always from the same state, and never the user's own object.

A function is called as it is. An object is copied, the copy cast; a copy that a call has changed (a cache it fills) is
not used again. What can't be copied is cast in place and put back after every call.
"""

from __future__ import annotations

import copy
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.adapters.caches.contents import contents
from qkv.adapters.messages import Array, DType
from qkv.adapters.parts import Slot, is_module, own_attributes, parts, slots
from qkv.adapters.values import is_tensor, to_float64
from qkv.errors import CandidateError, nearest


class FunctionHolder:
    """A function: it has no state."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.value = function
        self.device: Any = "cpu"

    def state(self) -> dict[str, Array]:
        """Nothing: a function holds no arrays."""
        return {}

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing, unless there is something to assign.

        Raises:
            CandidateError: arrays were given.
        """
        if arrays:
            raise CandidateError("a function has no weights to assign", hint="give them as arguments of the call")

    def kept(self, dtype: DType) -> dict[str, int]:
        """Nothing: a function keeps nothing."""
        return {}

    @contextmanager
    def ready(self, dtype: DType) -> Iterator[Callable[..., Any]]:
        """The function, whatever the dtype."""
        yield self.value


class ObjectHolder:
    """A module, or any other object that can be called or has a ``forward``."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._assigned: dict[str, Array] = {}
        self._copies: dict[DType, Any] = {}
        self._marks: dict[DType, list[Mark]] = {}
        self._copyable = True
        tensors = [slot.value for slot in slots(value) if is_tensor(slot.value)]
        self.device: Any = tensors[0].device if tensors else "cpu"

    def state(self) -> dict[str, Array]:
        """Every array of real numbers that it holds, by name, floating ones as float64.

        Raises:
            CandidateError: one of them has a shape and no numbers.
        """
        held = {}
        for slot in slots(self.value):
            if is_tensor(slot.value) and slot.value.is_complex():
                continue
            try:
                held[slot.name] = to_float64(slot.value)
            except CandidateError as error:
                raise CandidateError(f"its array {slot.name} {error.message}", hint=error.hint) from None
        return held | self._assigned

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Nothing; from now on calls are made with these values.

        Raises:
            CandidateError: it holds no array of that name, or one of another shape.
        """
        shapes = {slot.name: tuple(slot.value.shape) for slot in slots(self.value)}
        given = {name: np.array(array) for name, array in arrays.items()}
        for name, array in given.items():
            if name not in shapes:
                hint = nearest(name, shapes) if shapes else "it holds no arrays"
                raise CandidateError(f"the candidate holds no array named {name!r}", hint=hint)
            if array.shape != shapes[name]:
                raise CandidateError(f"{name} has the shape {shapes[name]}, and {array.shape} was given for it")
        self._assigned |= given
        self._copies.clear()

    @contextmanager
    def ready(self, dtype: DType) -> Iterator[Callable[..., Any]]:
        """What is to be called, cast to the dtype, in evaluation mode."""
        held = self._copy(dtype)
        if held is None:
            with _put_back(self.value):
                self._prepare(self.value, dtype)
                yield _called(self.value)
            return
        try:
            yield _called(held)
        finally:
            if not _same_marks(self._marks[dtype], _marks(held)):
                del self._copies[dtype]

    def kept(self, dtype: DType) -> dict[str, int]:
        """What it holds that the calls have changed since it was made ready, by name, with a number for its contents.

        Nothing where it could not be copied: its state can't be told from the one before.
        """
        held = self._copies.get(dtype)
        if held is None:
            return {}
        before = {mark.name: mark for mark in self._marks[dtype]}
        changed = [mark for mark in _marks(held) if not mark.same(before.get(mark.name))]
        return {mark.name: zlib.crc32(repr(contents(mark.value)).encode()) for mark in changed}

    def _copy(self, dtype: DType) -> Any:
        if dtype not in self._copies and self._copyable:
            try:
                held = copy.deepcopy(self.value)
            except Exception:  # noqa: BLE001 - locks, generators, tensors in a graph, a __deepcopy__ that is wrong
                self._copyable = False
                return None
            self._prepare(held, dtype)
            self._copies[dtype], self._marks[dtype] = held, _marks(held)
        return self._copies.get(dtype)

    def _prepare(self, held: Any, dtype: DType) -> None:
        cast: dict[int, Any] = {}
        for slot in slots(held):
            _cast(slot, dtype, cast, self._assigned.get(slot.name))
        for _, part in parts(held):
            if is_module(part):
                part.training = False
        if is_module(held):
            held.eval()


def _called(value: Any) -> Callable[..., Any]:
    return value if callable(value) else value.forward


def _cast(slot: Slot, dtype: DType, cast: dict[int, Any], assigned: Array | None) -> None:
    """Nothing; replaces the slot's array by one of the dtype, if it is floating, with the assigned values if any."""
    value = slot.value
    # One array that stands in two places (tied weights) stays one.
    if assigned is None and id(value) in cast:
        slot.container[slot.key] = cast[id(value)]
        return
    cast[id(value)] = slot.container[slot.key] = _as(value, dtype, assigned)


def _as(value: Any, dtype: DType, assigned: Array | None) -> Any:
    if not is_tensor(value):
        array = value if assigned is None else assigned
        return array.astype(dtype if value.dtype.kind == "f" and dtype != "bfloat16" else value.dtype)
    torch = sys.modules["torch"]
    target = getattr(torch, dtype) if value.is_floating_point() else value.dtype
    data = value.data.to(target) if assigned is None else torch.tensor(assigned).to(value.device, target)
    if isinstance(value, torch.nn.Parameter):
        # In place, so that whoever else refers to the parameter sees it cast too, as Module.to does.
        value.data = data
        return value
    return data.requires_grad_(value.requires_grad) if value.requires_grad else data


# --- has a call changed it? -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """What would tell that an attribute has changed: the object that it is, and a count of that one's changes."""

    name: str
    value: Any
    count: Any

    def same(self, other: Mark | None) -> bool:
        """Whether nothing has changed since the other mark was set."""
        return other is not None and self.value is other.value and self.count == other.count


def _marks(value: Any) -> list[Mark]:
    """What would differ after a change: every attribute of every part, and what stands in it."""
    marks = []
    for path, part in parts(value):
        own = dict(getattr(part, "_buffers", {})) | own_attributes(part) | dict(getattr(part, "_parameters", {}))
        for key, one in own.items():
            name = f"{path}.{key}" if path else key
            marks.append(Mark(name, one, _count(one)))
            marks += [Mark(f"{name}.{place}", item, _count(item)) for place, item in _inner(one).items()]
    return marks


def _inner(one: Any) -> dict[Any, Any]:
    if isinstance(one, dict):
        return one
    if isinstance(one, list | tuple):
        return dict(enumerate(one))
    return vars(one) if hasattr(one, "__dict__") and not callable(one) and not isinstance(one, type) else {}


def _count(one: Any) -> Any:
    if is_tensor(one):
        return one._version if not one.is_inference() else 0
    if isinstance(one, np.ndarray):
        return one.tobytes()
    return len(one) if isinstance(one, dict | list | tuple | set) else None


def _same_marks(before: list[Mark], after: list[Mark]) -> bool:
    return len(before) == len(after) and all(new.same(old) for old, new in zip(before, after, strict=True))


# --- what can't be copied ---------------------------------------------------------------------------------------------


@contextmanager
def _put_back(value: Any) -> Iterator[None]:
    """Nothing; whatever happens to the object meanwhile, afterwards it is as it was."""
    saved = []
    for _, part in parts(value):
        kept = own_attributes(part)
        if is_module(part):
            kept |= {name: vars(part)[name] for name in ("_parameters", "_buffers")}
        inner = {name: one.copy() for name, one in kept.items() if isinstance(one, dict | list)}
        saved.append((part, dict(vars(part)), inner))
    data = [
        (slot.value, slot.value.data if is_tensor(slot.value) else None, _clone(slot.value)) for slot in slots(value)
    ]
    try:
        yield
    finally:
        for part, attributes, inner in saved:
            vars(part).clear()
            vars(part).update(attributes)
            for name, contents in inner.items():
                container = attributes[name]
                if isinstance(container, dict):
                    container.clear()
                    container.update(contents)
                else:
                    container[:] = contents
        for array, own, values in data:
            _restore(array, own, values)


def _clone(array: Any) -> Any:
    return array.detach().clone() if is_tensor(array) else array.copy()


def _restore(array: Any, own: Any, values: Any) -> None:
    if own is None:
        array[...] = values
    else:
        array.data = own
        own.copy_(values)
