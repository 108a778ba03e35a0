"""The gradients that a candidate gives: the cotangent in its own axes, and what comes back in qkv's.

Nothing here knows a layout. Every number of the inputs is replaced by its place, the places are handed over as the
numbers would be, and where they arrive tells which gradient belongs to which number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from qkv.adapters.calling import Array, Caller, found
from qkv.adapters.messages import Cotangent, Reply
from qkv.oracle import Inputs

Memory = Literal["contiguous", "strided", "expanded"]

FIRST = 2.0**40
"""The first place: larger than any number of an input, and exact up to a thousand times as far."""


class Differentiable(Protocol):
    """What is asked of a reading."""

    @property
    def caller(self) -> Caller:
        """Who calls the candidate."""

    def bound(self, inputs: Inputs) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call with these inputs."""

    def shaped(self, inputs: Inputs) -> tuple[Callable[[Array], Array | None], str]:
        """What turns an array of the output's own shape into ``(batch, query, width)``, and the shape in words."""


@dataclass(frozen=True)
class Learned:
    """The learned arrays of a candidate, and what of them the oracle's parameters are.

    Attributes:
        shapes: the shape of each, by its name in the state.
        places: by the oracle's names (``q_proj.weight``): the place in the state of each entry.
    """

    shapes: Mapping[str, tuple[int, ...]]
    places: Mapping[str, Array]

    def named(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The oracle's gradients as those of the candidate's own arrays; arrays that it uses in part are left out."""
        own = numbered(self.shapes)
        sums = Sums(sum(places.size for places in own.values()))
        for name, places in self.places.items():
            if name in gradients:
                sums.add(places, gradients[name])
        return {name: sums.at(places) for name, places in own.items() if sums.reached(places).all()}

    def holding(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """The candidate's own arrays when they hold these parameters, by the oracle's names, and zeros elsewhere."""
        own = numbered(self.shapes)
        numbers = np.zeros(sum(places.size for places in own.values()))
        for name, array in parameters.items():
            numbers[_index(self.places[name])] = array
        return {name: numbers[_index(places)] for name, places in own.items()}


@dataclass(frozen=True)
class Gradients:
    """What a candidate's backward pass gave.

    Attributes:
        of: the gradients by name: an input's as the oracle has it, a learned array's as the candidate has it. Zeros
            where nothing came back.
        missing: names of those to which nothing came back.
    """

    of: Mapping[str, Array]
    missing: frozenset[str]


def named_arrays(inputs: Inputs) -> Iterator[tuple[str, Array]]:
    """Every array of numbers that gradients are of, by the oracle's name for it."""
    for name in ("query", "key", "value", "x", "source", "value_source", "bias", "sinks"):
        if getattr(inputs, name) is not None:
            yield name, getattr(inputs, name)
    for part in ("q_proj", "k_proj", "v_proj", "out_proj", "q_norm", "k_norm"):
        held = getattr(inputs.parameters, part, None)
        for name in ("weight", "bias"):
            if getattr(held, name, None) is not None:
                yield f"{part}.{name}", getattr(held, name)


def _index(places: Array) -> np.ndarray[Any, np.dtype[np.intp]]:
    return (places - FIRST).astype(np.intp)


def numbered(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The place of each entry of arrays of these shapes, counted through all of them."""
    next_place = _counted()
    return {name: next_place(np.zeros(shape)) for name, shape in shapes.items()}


def _counted() -> Callable[[Array], Array]:
    """A function that turns array after array into its places; what holds no floating numbers stays as it is."""
    start = FIRST

    def places(array: Array) -> Array:
        nonlocal start
        if array.dtype.kind != "f":
            return array
        first, start = start, start + array.size
        return first + np.arange(array.size, dtype=np.float64).reshape(array.shape)

    return places


class Sums:
    """Gradients summed up by place, since one number may have gone several ways."""

    def __init__(self, size: int) -> None:
        self._total, self._reached = np.zeros(size), np.zeros(size, dtype=bool)

    def add(self, places: Array, gradient: Array) -> None:
        """Nothing; adds a gradient whose entries belong to these places."""
        np.add.at(self._total, _indices(places), gradient)
        self._reached[_indices(places)] = True

    def at(self, places: Array) -> Array:
        """What came to these places."""
        return self._total[_indices(places)]

    def reached(self, places: Array) -> Array:
        """Which of these places anything came to."""
        return self._reached[_indices(places)]


def _indices(places: Array) -> Array:
    return (places - FIRST).astype(np.intp)


def gradients(
    reading: Differentiable, inputs: Inputs, cotangent: Array, memory: Memory, learned: Learned | None, seed: int
) -> Gradients:
    """What the candidate's backward pass gives for these inputs and this cotangent, ``(batch, query, width)``.

    Raises:
        CandidateError: it can't be called, or its backward pass fails.
    """
    args, kwargs = reading.bound(inputs)
    reply, _ = reading.caller.call(args, kwargs, strided=inputs.strided, seed=seed)
    path, own = _in_own_axes(reading, inputs, reply, cotangent)
    where = inputs.map(_counted())
    places = _handed_places(*reading.bound(where))
    shapes = {} if learned is None else learned.shapes
    wanted = Cotangent(path, own, memory, tuple(places), tuple(shapes))
    reply, _ = reading.caller.call(args, kwargs, strided=inputs.strided, seed=seed, cotangent=wanted)
    of, missing = _of_inputs(where, places, _by_path(args, kwargs), reply)
    missing |= shapes.keys() - reply.of_arrays.keys()
    of |= {name: reply.of_arrays.get(name, np.zeros(shape)) for name, shape in shapes.items()}
    return Gradients(of, frozenset(missing))


def _in_own_axes(reading: Differentiable, inputs: Inputs, reply: Reply, cotangent: Array) -> tuple[str, Array]:
    """Where the output stands in what was returned, and the cotangent in its axes."""
    shaped, words = reading.shaped(inputs)
    path = found(reply, shaped, words).path
    shape = next(one.array.shape for one in reply.returned if one.path == path and shaped(one.array) is not None)
    places = shaped(numbered({path: shape})[path])
    assert places is not None
    own = np.zeros(places.size)
    own[_indices(places)] = cotangent
    return path, own.reshape(shape)


def _by_path(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {str(place): value for place, value in enumerate(args)} | dict(kwargs)


def _handed_places(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Array]:
    """The arguments that hold numbers of the inputs, which were handed over as their places: which ones."""
    return {
        path: value
        for path, value in _by_path(args, kwargs).items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size and (value >= FIRST).all()
    }


def _of_inputs(
    where: Inputs, places: Mapping[str, Array], handed: Mapping[str, Any], reply: Reply
) -> tuple[dict[str, Array], set[str]]:
    """The gradients of the inputs that were handed over, and the names of those to which nothing came back."""
    known = dict(named_arrays(where))
    size = sum(array.size for array in where.arrays() if array.dtype.kind == "f")
    asked, came = Sums(size), Sums(size)
    # One array in several arguments is one tensor, whose gradient is the whole one in each.
    for path in {id(handed[path]): path for path in places}.values():
        asked.add(places[path], np.zeros(places[path].shape))
        if path in reply.of_arguments:
            came.add(places[path], reply.of_arguments[path])
    of = {name: came.at(at) for name, at in known.items() if asked.reached(at).all()}
    return of, {name for name in of if not came.reached(known[name]).any()}
