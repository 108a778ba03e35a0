"""Known stretches: arrays of some queries and some keys that follow each other, as code makes that goes in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from qkv.adapters.recording import Operation, Recording, Ref
from qkv.oracle import Run
from qkv.oracle.inputs import Array
from qkv.recognition.arrangement import Names
from qkv.recognition.known import CONTEXT, PAIRS, Known
from qkv.recognition.known_masks import KnownMask
from qkv.vocabulary import Stage

Stretch = tuple[int, int]
"""From which token on, and up to which."""


@dataclass(frozen=True)
class Stretches:
    """The stretches in which something goes through the tokens, the whole of them included.

    Attributes:
        queries: those of the queries.
        keys: those of the keys.
    """

    queries: Sequence[Stretch]
    keys: Sequence[Stretch]

    @property
    def pairs(self) -> Iterator[tuple[Stretch, Stretch]]:
        """Each stretch of queries with each of keys."""
        yield from product(self.queries, self.keys)


def stretches_in(recording: Recording, axes: Mapping[int, Names], run: Run) -> Stretches | None:
    """The stretches of tokens that a candidate cuts out; None where it cuts out none, or goes token by token.

    Args:
        recording: what it did.
        axes: names of the axes of each value of which they are known, by its number.
        run: what it is meant to compute.
    """
    found: dict[str, set[Stretch]] = {"query": set(), "key": set()}
    for operation in recording.operations:
        of = operation.arguments[0] if operation.arguments else None
        names = axes.get(of.value, ()) if isinstance(of, Ref) else ()
        for axis, stretch in _cut_out(operation, recording, names):
            if names[axis] in found:
                found[names[axis]].add(stretch)
    lengths = dict(zip(found, run.inputs.lengths, strict=True))
    cut = {name: {one for one in found[name] if 0 < one[1] - one[0] < lengths[name]} for name in found}
    if not any(cut.values()) or any(len(one) >= lengths[name] - 1 for name, one in cut.items()):
        return None
    queries, keys = (sorted({*cut[name], (0, lengths[name])}) for name in found)
    return Stretches(queries, keys)


def _cut_out(operation: Operation, recording: Recording, names: Names) -> Iterator[tuple[int, Stretch]]:
    """On which axis of an array an operation cuts out which stretch."""
    if operation.name == "getitem" and names:
        shape = recording.values[operation.arguments[0].value].array.shape
        index = operation.arguments[1]
        parts = [index] if not isinstance(index, list | tuple) or index[:1] == ("slice",) else list(index)
        known = [one for one in parts if one is not None]
        if "Ellipsis" in known:
            place = known.index("Ellipsis")
            known[place : place + 1] = [("slice", None, None, None)] * (len(shape) - len(known) + 1)
        for axis, one in enumerate(known[: len(names)]):
            if isinstance(one, list | tuple) and one[:1] == ("slice",) and one[3] in (None, 1):
                start, end, _ = slice(*one[1:3]).indices(shape[axis])
                yield axis, (start, end)
    elif operation.name in ("split", "chunk", "tensor_split", "array_split") and names:
        starts = dict.fromkeys(range(len(names)), 0)
        shape = recording.values[operation.arguments[0].value].array.shape
        for value in operation.results:
            made = recording.values[value].array.shape
            for axis in [one for one in starts if len(made) == len(shape) and made[one] != shape[one]]:
                yield axis, (starts[axis], starts[axis] + made[axis])
                starts[axis] += made[axis]


def stretched(knowns: Iterable[Known], run: Run, stretches: Stretches) -> Iterator[Known]:
    """Each known array that has tokens, cut to each stretch; and what a softmax over a stretch of keys makes."""
    of_axis = {"query": stretches.queries, "key": stretches.keys}
    both = {*stretches.queries, *stretches.keys}
    of_axis["token"] = sorted(one for one in both if one[1] - one[0] > 2)  # 0 and 1 are many things
    for known in _hiding(knowns, run):
        axes = [name for name in of_axis if name in known.axes and not known.whole]
        for chosen in product(*(of_axis[name] for name in axes)):
            at = dict(zip(axes, chosen, strict=True))
            part = _taken(known.array, known.axes, at)
            if part.shape != np.shape(known.array):
                yield replace(known, array=part, maskable=False, stretch=at)
    for queries in stretches.queries:
        yield from _in_parts(run, queries, stretches.keys)


def _hiding(knowns: Iterable[Known], run: Run) -> Iterator[Known]:
    """The arrays, and of those that may be masked what they are then."""
    for known in knowns:
        yield known
        if known.maskable:
            yield replace(known, array=np.where(run.may_attend, known.array, -np.inf))


def stretched_masks(masks: Iterable[KnownMask], stretches: Stretches) -> Iterator[KnownMask]:
    """Each mask of queries and keys, of each stretch of these."""
    for (name, axes, mask), (queries, keys) in product(list(masks), stretches.pairs):
        at = {"query": queries, "key": keys}
        long = {one: at[one] for one in axes if one in at and mask.shape[axes.index(one)] > 1}
        yield name, axes, _taken(mask, axes, long)


def _taken(array: Array, axes: Names, at: Mapping[str, Stretch]) -> Array:
    return np.asarray(array)[tuple(slice(*at[name]) if name in at else slice(None) for name in axes)]


def _in_parts(run: Run, queries: Stretch, stretches: Sequence[Stretch]) -> Iterator[Known]:
    """What a softmax makes that goes through the keys in stretches: of each alone, and of all up to its end."""
    rows = {"query": queries}
    masked = _taken(run.before[Stage.SOFTMAX].scores, PAIRS, rows)
    for first, end in stretches:
        part, so_far = masked[..., first:end], masked[..., :end]
        at = {**rows, "key": (first, end)}
        for whole in (so_far, masked):
            weights = _weights(part, _log_sum(whole))
            yield Known("part of the context", Stage.MIX, CONTEXT, weights @ run.value[:, :, first:end], stretch=at)
        for start, stop in {(first, end), (0, first), (0, end)} - {(0, 0)}:
            for known in _of_keys(masked[..., start:stop], run.value[:, :, start:stop], (part, so_far), masked):
                yield replace(known, stretch={**rows, "key": (start, stop)})


def _of_keys(scores: Array, value: Array, beside: Sequence[Array], whole: Array) -> Iterator[Known]:
    """What a softmax makes of scores, with a number taken off each row that is the largest of them and of others."""
    for others in beside:
        top = _top(others)
        level = np.where(np.isfinite(top), top, 0.0)
        shares = np.exp(scores - level)
        yield from _of_rows("row's largest score", top)
        yield from _of_rows("row's decay", _top(scores) - level)
        yield from _of_rows("row's decay", np.exp(_top(scores) - level))
        yield from _of_rows("row's sum", shares.sum(axis=-1, keepdims=True))
        yield Known("scores below the largest", Stage.SOFTMAX, PAIRS, scores - level)
        yield Known("exp of the scores", Stage.SOFTMAX, PAIRS, shares)
        yield Known("context before its division", Stage.MIX, CONTEXT, shares @ value)
    for others in (*beside, whole):
        yield from _of_rows("row's share", _log_sum(scores) - _log_sum(others))
        yield from _of_rows("row's share", np.exp(_log_sum(scores) - _log_sum(others)))
    yield from _of_rows("log-sum-exp", _log_sum(scores))
    weights = _weights(scores, _log_sum(scores))
    yield Known("log of the weights", Stage.SOFTMAX, PAIRS, scores - _log_sum(scores))
    yield Known("attn_weights", Stage.SOFTMAX, PAIRS, weights)
    yield Known("context", Stage.MIX, CONTEXT, weights @ value)


def _of_rows(name: str, column: Array) -> Iterator[Known]:
    """A number for each row, also where rows without any key have 0 instead of what is no number."""
    for array in (column, np.where(np.isfinite(column), column, 0.0)):
        yield Known(name, Stage.SOFTMAX, PAIRS[:3], array[..., 0])


def _top(scores: Array) -> Array:
    return np.asarray(scores.max(axis=-1, keepdims=True))


def _log_sum(scores: Array) -> Array:
    level = np.where(np.isfinite(_top(scores)), _top(scores), 0.0)
    return np.asarray(np.log(np.exp(scores - level).sum(axis=-1, keepdims=True)) + level)


def _weights(scores: Array, log_sum: Array) -> Array:
    return np.asarray(np.exp(scores - np.where(np.isfinite(log_sum), log_sum, 0.0)))
