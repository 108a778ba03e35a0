"""Weights: those of one head, given or computed, which are read some queries at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from qkv.adapters.values import is_tensor, readable
from qkv.errors import CandidateError, ShapeError
from qkv.masks import Mask, Span, parse_mask
from qkv.oracle import Inputs, stages
from qkv.oracle.blocks import ALL, Block, each_head
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Array = np.ndarray
Queries = Any
"""Numbers of queries: a slice, or a rising array of them."""


class Rows(NamedTuple):
    """The weights of some queries.

    Attributes:
        keys: the keys that stand in it. The queries may attend to none of the others.
        weights: ``(query, key)``.
        may_attend: ``(query, key)`` booleans.
    """

    keys: slice
    weights: Array
    may_attend: Array


class Working(NamedTuple):
    """One stage on the way to the weights: ``numbers`` is ``(query_len, key_len)``."""

    name: str
    title: str
    numbers: Array


@dataclass(frozen=True, kw_only=True)
class HeadWeights(ABC):
    """The attention weights of one head.

    Attributes:
        name: what the head is called.
        value: what its weights mix, ``(key_len, value_dim)``; None where that isn't known.
        against: the id of the head that this one should equal, ``"layer.head"`` by their places; None for none.
        patterns: the share of its attention that follows each pattern, by name, where that was looked at.
    """

    name: str = "head 0"
    value: Array | None = None
    against: str | None = None
    patterns: Mapping[str, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``query_len`` and ``key_len``."""

    @property
    def first_query(self) -> int:
        """Position of the first query among the keys: the last one stands at the last key, if nothing else is known."""
        return self.shape[1] - self.shape[0]

    @abstractmethod
    def rows(self, queries: Queries) -> Rows:
        """The weights of these queries over the keys that any of them may attend to."""

    def workings(self) -> list[Working]:
        """The stages before the weights, where they are known; each holds all scores, so ask where these are few."""
        return []

    def but(self, **changes: Any) -> HeadWeights:
        """The same weights with another name, value or counterpart."""
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class GivenWeights(HeadWeights):
    """Weights that somebody else has computed, whatever they are.

    Attributes:
        weights: ``(query_len, key_len)``; NaN where a query may not attend.
        may_attend: ``(query_len, key_len)`` booleans, True = may attend; None where NaN alone says it.
    """

    weights: Array
    may_attend: Array | None = None

    def __post_init__(self) -> None:
        if self.weights.ndim != 2:
            raise ShapeError(f"the weights of a head are (query_len, key_len), and these are {self.weights.shape}")
        if self.may_attend is not None and self.may_attend.shape != self.weights.shape:
            raise ShapeError(
                f"may_attend is {self.may_attend.shape} for weights {self.weights.shape}; give it as large"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """``query_len`` and ``key_len``."""
        return self.weights.shape[0], self.weights.shape[1]

    def rows(self, queries: Queries) -> Rows:
        """The weights of these queries over all keys."""
        weights = self.weights[queries]
        if self.may_attend is None:
            may_attend = ~np.isnan(weights)
            may_attend |= ~may_attend.any(axis=1, keepdims=True)  # no mask leaves nothing: that row is broken
        else:
            may_attend = self.may_attend[queries]
        return Rows(slice(0, weights.shape[1]), weights, may_attend)


@dataclass(frozen=True, kw_only=True)
class ComputedWeights(HeadWeights):
    """Weights as the oracle computes them, each time some are asked for.

    Attributes:
        head: query and key of the one head, in their positions, beside its spec.
    """

    head: Block = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """``query_len`` and ``key_len``."""
        return self.head.query.shape[2], self.head.key.shape[2]

    @property
    def first_query(self) -> int:
        """Position of the first query among the keys, by the spec."""
        return int(self.head.token_positions()[0][0])

    def rows(self, queries: Queries) -> Rows:
        """The weights of these queries, computed, over the keys that any of them may attend to."""
        part = self.head.cut(queries, ALL)
        keys = _reached(part)
        run: Any = part.cut(ALL, keys)
        for stage in _STAGES:
            run = stages.STAGES[stage](run)
        return Rows(keys, run.weights[0, 0], run.may_attend[0, 0])

    def workings(self) -> list[Working]:
        """The scores after each stage that changes them."""
        run: Any = self.head
        found = []
        for stage in _STAGES[:-1]:
            before, run = run, stages.STAGES[stage](run)
            if run is not before:
                found.append(Working(*_named(stage, run), run.scores[0, 0]))
        return found


_STAGES = (Stage.SCORES, Stage.SCALE, Stage.SOFTCAP, Stage.BIAS, Stage.MASK, Stage.SOFTMAX)


def _reached(part: Block) -> slice:
    """From the first to the last key that any of these queries may attend to; all where some of them see none."""
    key_len = part.key.shape[2]
    query, _ = part.token_positions()
    reach = part.spec.mask.reach(Span(int(query[0]), int(query[-1]), 0, key_len - 1), part.at)
    if part.spec.empty_row == "uniform" or not reach.some:
        return slice(0, key_len)
    return slice(reach.some[0][0], reach.some[-1][1])


def _named(stage: Stage, run: Block) -> tuple[str, str]:
    """A working's name and title."""
    spec, head_dim = run.spec, run.query.shape[-1]
    root = f"1/sqrt({head_dim}) = " if spec.scale is None else ""
    return {
        Stage.SCORES: ("attn_scores", "query @ key.T"),
        Stage.SCALE: ("scaled", f"times {root}{spec.scale_for(head_dim):.4g}"),
        Stage.SOFTCAP: ("softcapped", f"{spec.softcap} * tanh(scores / {spec.softcap})"),
        Stage.BIAS: ("biased", "plus the bias"),
        Stage.MASK: ("masked", "minus infinity where a query may not attend"),
    }[stage]


# --- heads from arrays ------------------------------------------------------------------------------------------------


def as_array(value: Any, name: str) -> Array:
    """A tensor's or array's numbers for NumPy, as they are where that is possible; NaN where an array is masked.

    Raises:
        CandidateError: they are complex, or no numbers.
    """
    try:
        array = np.asarray(_unmasked(readable(value) if is_tensor(value) else value))
    except CandidateError as error:
        raise CandidateError(f"{name} {error.message}", hint=error.hint) from None
    # bfloat16 and the like, which NumPy can't compute with by itself.
    if array.dtype.kind == "V" and array.dtype.names is None:
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise CandidateError(f"{name} holds {array.dtype.name} values", hint="give attention weights as real numbers")
    return array


def given_heads(
    weights: Any, *, may_attend: Any = None, value: Any = None, names: Sequence[str] | None = None
) -> tuple[HeadWeights, ...]:
    """The heads of a layer from their weights.

    Args:
        weights: ``(num_heads, query_len, key_len)``, or ``(query_len, key_len)`` for one head; NaN is masked.
        may_attend: booleans that broadcast to the weights, True = may attend; a mask of :mod:`qkv.masks`; or None.
        value: ``(num_kv_heads, key_len, value_dim)``, or ``(key_len, value_dim)``.
        names: what the heads are called.

    Raises:
        ShapeError: the axes don't fit.
        CandidateError: the weights aren't real numbers.
    """
    array = as_array(weights, "weights")
    if array.ndim not in (2, 3):
        raise ShapeError(
            f"weights are {array.shape}; give (num_heads, query_len, key_len), of one sequence of the batch"
        )
    array = array if array.ndim == 3 else array[None]
    if may_attend is not None:
        may_attend = _broadcast(_truth_table(may_attend, array.shape), array.shape)
    heads = [
        GivenWeights(weights=one, may_attend=None if may_attend is None else may_attend[at])
        for at, one in enumerate(array)
    ]
    return _finished(heads, value, names)


def _unmasked(value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.filled(value.astype(np.promote_types(value.dtype, np.float32)), np.nan)
    return value


def _truth_table(mask: Any, shape: tuple[int, ...]) -> Array:
    """Who may attend to whom, as booleans.

    Raises:
        CandidateError: it is an array of other numbers: of an added mask, zero is what may be seen.
        SpecError: it is a text that is no mask.
    """
    mask = parse_mask(mask) if isinstance(mask, str) else mask
    if isinstance(mask, Mask):
        return mask.dense(*shape[-2:])
    table = as_array(mask, "the mask")
    if table.dtype.kind != "b":
        raise CandidateError(
            f"the mask holds {table.dtype.name} values, and must be boolean, True = may attend",
            hint="of a mask that is added to scores make mask == 0; of ones and zeros mask.astype(bool)",
        )
    return table


def computed_heads(
    spec: AttentionSpec, inputs: Inputs, *, sequence: int = 0, names: Sequence[str] | None = None
) -> tuple[HeadWeights, ...]:
    """The heads of a layer as the oracle computes them; nothing is computed before it is looked at.

    Args:
        spec: what to compute.
        inputs: what to compute it from; tensors are taken too.
        sequence: which sequence of the batch.
        names: what the heads are called.
    """
    inputs = inputs.map(lambda array: as_array(array, "an input"))
    heads = []
    for batch, head, one in each_head(spec, inputs):
        if batch == sequence:
            ready: Any = stages.position(one.but(spec=one.spec.but(mask=spec.mask.alone(batch, head))))
            heads.append(ComputedWeights(head=ready, value=one.value[0, 0]))
    return _finished(heads, None, names)


def _broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ShapeError(f"may_attend is {array.shape}, which doesn't broadcast to the weights' {shape}") from None


def _finished(heads: Sequence[HeadWeights], value: Any, names: Sequence[str] | None) -> tuple[HeadWeights, ...]:
    """The heads with their values and names."""
    if names is not None and len(names) != len(heads):
        raise ShapeError(f"there are {len(names)} names for {len(heads)} heads")
    values = [head.value for head in heads] if value is None else _values(as_array(value, "value"), heads)
    return tuple(
        head.but(name=f"head {at}" if names is None else names[at], value=values[at]) for at, head in enumerate(heads)
    )


def _values(value: Array, heads: Sequence[HeadWeights]) -> list[Array]:
    """Each head's value; query heads share those of their group."""
    value = value[None] if value.ndim == 2 else value
    if value.ndim != 3 or not len(value) or len(heads) % len(value) or any(value.shape[1] != h.shape[1] for h in heads):
        raise ShapeError(f"value is {value.shape}; give (num_kv_heads, key_len, value_dim) for {len(heads)} heads")
    return [value[at // (len(heads) // len(value))] for at in range(len(heads))]
