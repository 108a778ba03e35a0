"""The recorder: operations as they come, and the values that they take and make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, Literal

import numpy as np

from qkv.adapters.messages import Array
from qkv.adapters.recording import Operation, Recording, Ref, Value
from qkv.adapters.values import dtype_name
from qkv.adapters.watching.arguments import arrays_in, told
from qkv.adapters.watching.numbers import Numbers
from qkv.adapters.watching.places import Places
from qkv.adapters.watching.snapshots import address, copied, memory, same, size_of
from qkv.adapters.watching.spelling import spelled

MOST_OPERATIONS = 20_000
MOST_BYTES = 64 << 20
"""Of values in one recording. Where building is recorded, half of each is left for the call."""
PUTTING = frozenset({"setitem", "array", "asarray", "tensor", "as_tensor", "full", "fill"})
"""Operations that put single numbers into an array."""
LARGEST = MOST_BYTES // 4
"""Bytes of one value; larger arrays are told by their name and shape, and what makes them is left out."""


@dataclass
class _Taken:
    """A value before its name is known for good."""

    numbers: Array
    dtype: str
    name: str = ""


@dataclass
class _Draft:
    """An operation of which further results may still be seen."""

    name: str
    place: int | None
    arguments: list[Any]
    keywords: dict[str, Any]
    results: list[int]
    in_place: bool
    during: Literal["build", "call"]
    calls: list[int]
    computed_with: list[int]


@dataclass
class _Begun:
    """An operation before it ran."""

    name: str
    arguments: list[Any]
    keywords: dict[str, Any]
    operands: list[Any]
    in_place: bool


@dataclass
class Recorder:
    """Takes down what is done with arrays. It never raises for what it can't take down, and then leaves it out.

    Attributes:
        places: where operations stand.
        during: whether the candidate is being built or called.
        complete: whether nothing was cut off so far.
        full: whether nothing more is taken down.
    """

    places: Places
    during: Literal["build", "call"] = "call"
    complete: bool = True
    full: bool = False
    _values: list[_Taken] = field(default_factory=list)
    _drafts: list[_Draft] = field(default_factory=list)
    # By id, the array itself with it: what is kept alive keeps its id and its memory.
    _names: dict[int, tuple[Any, str]] = field(default_factory=dict)
    _numbers: dict[int, tuple[Any, int]] = field(default_factory=dict)
    _at: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    _changed_by: dict[int, _Draft] = field(default_factory=dict)
    _made: dict[str, int] = field(default_factory=dict)
    _loose: Numbers = field(default_factory=Numbers)
    _bytes_left: int = MOST_BYTES
    _operations_left: int = MOST_OPERATIONS
    _busy: bool = False

    def record(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], run: Callable[[], Any],
        frame: FrameType | None,
    ) -> Any:  # fmt: skip
        """What ``run`` returns; takes it down as one operation.

        Args:
            name: the framework's name for it.
            args: the arrays and all else that it is given, as the user's code has them.
            kwargs: likewise by name.
            run: does it.
            frame: where it is called.
        """
        if self.full or self._busy:
            return run()
        users = self.places.users_frame(frame)
        if not self._wanted(frame, users):
            return run()
        begun = self._guarded(partial(self._begin, name, args, kwargs))
        result = run()
        if begun is not None:
            self._guarded(partial(self._end, begun, result, users))
        return result

    def name(self, array: Any, name: str) -> None:
        """Nothing; an array that no operation has made will have this name, unless it has one already."""
        self._names.setdefault(id(array), (array, name))

    def built(self, arrays: Mapping[str, Any]) -> None:
        """Nothing; what holds the same under the same name from now on is the value that building has made."""
        for name, array in arrays.items():
            self.name(array, name)
            number = self._guarded(partial(self.known, array))
            if number is not None:
                self._made[name] = number

    def fork(self) -> Recorder:
        """A recorder that goes on from here by itself."""
        drafts = {id(one): replace(one, results=list(one.results)) for one in self._drafts}
        return replace(
            self,
            places=self.places.fork(),
            during="call",
            full=False,
            _names=dict(self._names),
            _values=list(self._values),
            _drafts=list(drafts.values()),
            _numbers=dict(self._numbers),
            _at=dict(self._at),
            _loose=self._loose.fork(),
            _changed_by={key: drafts[id(one)] for key, one in self._changed_by.items()},
        )

    def number(self, array: Any) -> int:
        """The number of the value that an array now holds."""
        known = self._numbers.get(id(array))
        if known is None:
            return self._first_seen(array)
        number = known[1]
        if not same(self._values[number].numbers, array):
            number = self._take(array)
            changer = self._changed_by.get(memory(array))
            if changer is not None:
                changer.results.append(number)
        return number

    def known(self, array: Any) -> int | None:
        """The number of the value that an array holds; None where no operation has had to do with it or its memory."""
        seen = id(array) in self._numbers or (address(array), tuple(array.shape)) in self._at
        return self.number(array) if seen else None

    def recording(self, returned: Any = None) -> Recording:
        """All of it, with the numbers of the arrays in what was returned."""
        numbers = self._guarded(lambda: [self.number(array) for array in arrays_in(returned)]) or []
        values = [Value(one.numbers, one.dtype, one.name) for one in self._values]
        operations = [Operation(**vars(draft)) for draft in self._drafts]
        return Recording(values, operations, list(self.places.found), numbers, self.complete)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """What an action of the recorder's own gives; None where it fails: no candidate may fail of being watched."""
        self._busy = True
        try:
            # Memory that nobody has written to may hold anything.
            with np.errstate(all="ignore"):
                return action()
        except _Full:
            self.complete, self.full = False, True
        except Exception:  # noqa: BLE001 - arrays without numbers: batched, on no device, of another library's classes
            return None
        finally:
            self._busy = False

    def _wanted(self, frame: FrameType | None, users: FrameType | None) -> bool:
        """Whether an operation is the user's, and not a layer of torch's that gives its weights their first values."""
        if self.during == "call":
            return True
        while frame is not None and frame is not users:
            if frame.f_code.co_filename.endswith(("nn/init.py", "nn\\init.py")) or _of_layers(frame):
                return False
            frame = frame.f_back
        return True

    def _begin(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Begun:
        operands: list[Any] = []
        name, args, in_place = spelled(name, args)
        of_array = partial(self._operand, operands)
        arguments = [told(one, of_array) for one in args]
        keywords = {key: told(one, of_array) for key, one in kwargs.items() if not key.startswith("_")}
        in_place = in_place or kwargs.get("out") is not None
        return _Begun(name, arguments, keywords, operands, in_place)

    def _operand(self, operands: list[Any], array: Any) -> Any:
        """An array as an operation has it among its arguments; it joins the operands."""
        if isinstance(array, np.generic) and id(array) not in self._numbers:
            return array.item() if array.dtype.kind != "c" else repr(array.item())
        if not self._is_taken(array):
            return f"{self._names.get(id(array), (None, 'an array'))[1]} {tuple(array.shape)}"
        operands.append(array)
        return Ref(self.number(array))

    def _end(self, begun: _Begun, result: Any, users: FrameType | None) -> None:
        made = [one for one in arrays_in(result) if self._is_taken(one)]
        changed = [one for one in begun.operands if not self._is_as_before(one)]
        if begun.in_place and not made and not changed:
            changed = begun.operands[:1]
        made += [one for one in changed if not any(one is other for other in made)]
        if not made:
            if users is not None and _holds_number(result):
                for one in begun.operands:
                    self._loose.give(self.number(one), self.places.frames(users))
            return
        self._operations_left -= 1
        if self._operations_left < self._kept(MOST_OPERATIONS):
            raise _Full
        numbers = [self._take(one) for one in made]
        place = None if users is None else self.places.number(users)
        calls = [] if users is None else self.places.calls(users)
        behind = self._computed_with(begun, users)
        draft = _Draft(begun.name, place, begun.arguments, begun.keywords, numbers,
                       begun.in_place or bool(changed), self.during, calls, behind)  # fmt: skip
        self._drafts.append(draft)
        for one, number in zip(made, numbers, strict=True):
            if isinstance(one, np.generic) and users is not None:
                self._loose.give(number, self.places.frames(users))
        if draft.in_place:
            self._changed_by |= {memory(one): draft for one in changed or made}

    def _computed_with(self, begun: _Begun, users: FrameType | None) -> list[int]:
        """The values that the numbers may be computed with which an operation puts into an array."""
        put = begun.name in PUTTING and any(map(_holds_number, begun.arguments[-1:] + begun.arguments[:1]))
        return [] if users is None or not put else self._loose.behind(users)

    def _is_taken(self, array: Any) -> bool:
        """Whether the contents of an array are taken down: they are not where they alone would fill the recording."""
        taken = size_of(array) <= LARGEST
        self.complete &= taken
        return taken

    def _is_as_before(self, array: Any) -> bool:
        return same(self._values[self._numbers[id(array)][1]].numbers, array)

    def _first_seen(self, array: Any) -> int:
        """The number of an array that no operation has given.

        It may be another object over the same memory, or what building has made, cast since.
        """
        _, name = self._names.get(id(array), (None, ""))
        for number in (self._at.get((address(array), tuple(array.shape))), self._made.get(name)):
            if number is not None and same(self._values[number].numbers, array):
                self._numbers[id(array)] = array, number
                return number
        return self._take(array, name)

    def _take(self, array: Any, name: str = "") -> int:
        """A new number for what an array now holds."""
        self._bytes_left -= size_of(array)
        if self._bytes_left < self._kept(MOST_BYTES):
            raise _Full
        number = len(self._values)
        self._values.append(_Taken(copied(array), dtype_name(array), name))
        self._numbers[id(array)] = array, number
        self._at[address(array), tuple(array.shape)] = number
        return number

    def _kept(self, most: int) -> int:
        """How much of a limit is kept for later."""
        return most // 2 if self.during == "build" else 0


def _holds_number(argument: Any) -> bool:
    """Whether an argument is a number that no operation has given, or a list with one in it."""
    return isinstance(argument, float) or (isinstance(argument, list | tuple) and any(map(_holds_number, argument)))


class _Full(Exception):  # noqa: N818 - a signal rather than an error
    """The recording would grow too large."""


def _of_layers(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("torch.nn.modules")


def caller(depth: int = 1) -> FrameType:
    """The frame that called the function that asks, or one further out."""
    return sys._getframe(depth + 1)
