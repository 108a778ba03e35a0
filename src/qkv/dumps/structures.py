"""Structures: the specs that a dump may follow, but for their numbers, and which masks its output can have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from qkv.comparison import EPSILON, Bools, Floats
from qkv.dumps.inside import shaped
from qkv.dumps.observed import DumpReading
from qkv.masks import Causal, Everything, Mask, Positions, Prefix, SlidingWindow
from qkv.oracle import Inputs
from qkv.positions import Alibi, Rope
from qkv.spec import AttentionSpec

BASES = (10000.0, 500000.0, 1000000.0, 100.0, 1000.0, 100000.0, 150000.0, 5000000.0, 10000000.0)
"""Bases of rope that models have, the commonest first."""

FIRST = 4
"""Masks of each family that are tried first: the narrowest that the output can have come from."""

ROWS = 12
"""Queries whose context is looked at to exclude masks."""


@dataclass(frozen=True)
class Sight:
    """One mask.

    Attributes:
        mask: the mask.
        offset: where the first query stands.
        allowed: who sees whom, ``(query, key)``.
        family: how many masks it is made of, so that plain ones come first; 0 for one in which no number stands.
    """

    mask: Mask
    offset: int
    allowed: Bools

    family: int

    @property
    def seen(self) -> int:
        """How many keys all queries see together."""
        return int(self.allowed.sum())

    @property
    def ahead(self) -> bool:
        """Whether any query sees a key behind its own position."""
        query, key = np.nonzero(self.allowed)
        return bool((key > query + self.offset).any())


def positions(head_dim: int) -> Iterator[dict[str, Any]]:
    """Fields of the spec for every usual way of telling positions, none first."""
    yield {}
    yield {"alibi": Alibi()}
    yield {"alibi": Alibi(signed=True)}
    parts = [None, *(dims for dims in (head_dim // 2, head_dim // 4) if dims >= 2 and dims % 2 == 0)]
    for base in BASES:
        for pairing in ("halves", "adjacent"):
            for dims in parts if base == BASES[0] else parts[:1]:
                if head_dim % 2 == 0 or dims:
                    yield {"rope": Rope(pairing, base=base, dims=dims)}


def sights(reading: DumpReading, inputs: Inputs, output: Floats) -> list[Sight]:
    """The masks that the output can have come from, the likeliest first: of each family the narrowest ones.

    A context vector lies in the span of the values that its query sees: where these are fewer than the channels of a
    value, most masks are excluded whatever the scores are.
    """
    every = list(_all_sights(*inputs.lengths))
    seen = _seen_in_weights(reading)
    if seen is not None:
        same = [sight for sight in every if (sight.allowed == seen).all()]
        if same:
            return same
    spans = _Spans(reading, inputs, output)
    possible = [sight for sight in every if spans.allow(sight.allowed)]
    possible.sort(key=lambda sight: (sight.family, sight.seen))
    families = {sight.family: [one for one in possible if one.family == sight.family] for sight in possible}
    first = [sight for family in families.values() for sight in family[:FIRST]]
    return [*first, *(sight for sight in possible if sight not in first)]


SHORT = 512
"""Keys up to which every size of a window is tried; each is a matrix of all queries by all keys."""

USUAL = frozenset({*range(1, 17), *(base << power for base in (1, 3) for power in range(4, 16))})
"""Sizes of windows and prefixes that are tried where there are more."""


def _all_sights(query_len: int, key_len: int) -> Iterator[Sight]:
    known: set[bytes] = set()
    for offset in dict.fromkeys((key_len - query_len, 0)):
        at = Positions(query=np.arange(query_len)[:, None] + offset, key=np.arange(key_len)[None, :])
        for mask in _masks(key_len):
            allowed = np.broadcast_to(mask.allows(at) & at.everywhere, (query_len, key_len))
            print_of_it = blake2b(allowed.tobytes()).digest()
            if print_of_it not in known and allowed.any():
                known.add(print_of_it)
                family = 0 if mask in (Causal(), Everything()) else len(list(mask.parts()))
                yield Sight(mask, offset, allowed, family)


def _masks(key_len: int) -> Iterator[Mask]:
    yield Everything()
    yield Causal()
    sizes = [size for size in range(1, key_len) if key_len <= SHORT or size in USUAL]
    yield from (Causal() & SlidingWindow(size) for size in sizes)
    yield from (SlidingWindow(size) for size in sizes)
    yield from (Causal() | Prefix(length) for length in sizes)
    if key_len <= 32:
        yield from (
            (Causal() & SlidingWindow(size)) | Prefix(length) for size in range(1, key_len) for length in range(1, 6)
        )


def _seen_in_weights(reading: DumpReading) -> Bools | None:
    """Who sees whom by the dump's own weights; None where it has none."""
    if "weights" not in reading.dump.tensors:
        return None
    weights = shaped(reading, "weights", ())
    return None if weights is None else np.asarray((weights > 0).any(axis=(0, 1)))


class _Spans:
    """Which sets of keys a context vector can be a mixture of, as far as that can be told.

    Args:
        reading: how the dump was read.
        inputs: the part that is looked at.
        output: its output, ``(batch, query, head, channel)``.
    """

    def __init__(self, reading: DumpReading, inputs: Inputs, output: Floats) -> None:
        assert inputs.value is not None
        group, heads = reading.arrangement.num_heads // reading.arrangement.kv_heads, output.shape[2]
        self._rows = np.unique(np.linspace(0, output.shape[1] - 1, ROWS).astype(int))
        self._pairs = [(inputs.value[0, head // group], output[0, :, head]) for head in {0, heads - 1}]
        self._least = 8 * EPSILON[max((reading.dtype, "float32"), key=lambda one: EPSILON[one])]
        self._known: dict[tuple[int, bytes], bool] = {}

    def allow(self, allowed: Bools) -> bool:
        """Whether each context vector that is looked at lies in the span of the values that its query sees."""
        return all(self._in_span(int(row), allowed[row]) for row in self._rows)

    def _in_span(self, row: int, seen: Bools) -> bool:
        # Most masks share most of their rows.
        asked = (row, seen.tobytes())
        if asked not in self._known:
            self._known[asked] = all(self._is_mixture(value[seen], got[row]) for value, got in self._pairs)
        return self._known[asked]

    def _is_mixture(self, values: Floats, got: Floats) -> bool:
        if not 0 < len(values) < values.shape[1] or not np.isfinite(got).all():
            return True
        left = got - values.T @ np.linalg.lstsq(values.T, got, rcond=None)[0]
        return bool(np.abs(left).max() <= self._least * max(np.abs(values).max(), np.abs(got).max()))


def structures(spec: AttentionSpec, seen: Sequence[Sight], stated: frozenset[str]) -> Iterator[AttentionSpec]:
    """Every structure: the spec with each mask, position encoding and normalisation that was not stated."""
    assert spec.head_dim is not None
    fixed = stated & {"rope", "alibi", "relative_bias"}
    for sight in seen if "mask" not in stated else seen[:1]:
        here = spec if "mask" in stated else spec.but(mask=sight.mask, query_offset=sight.offset)
        for fields in [{}] if fixed else positions(spec.head_dim):
            if isinstance(fields.get("alibi"), Alibi) and fields["alibi"].signed and not sight.ahead:
                continue
            for norm in (spec.qk_norm,) if "qk_norm" in stated else (None, "head"):
                yield here.but(**fields, qk_norm=norm)
