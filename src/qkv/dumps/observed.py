"""One dump under one spec, as the judge's own parts see it: the one observation there is, and how it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.adapters.calling import Outcome
from qkv.adapters.doubts import Doubt
from qkv.adapters.dump import Array, dtype_named
from qkv.adapters.messages import Facts
from qkv.adapters.pullback import Gradients, Memory
from qkv.comparison import EPSILON, Bools, Expectation, Floats, expectation
from qkv.diagnosis import Observation
from qkv.dumps.arrangements import Arrangement
from qkv.dumps.handed import Handed
from qkv.dumps.tensors import Dump
from qkv.errors import CandidateError
from qkv.oracle import Inputs, Run, run_stages
from qkv.probes import Probe
from qkv.spec import AttentionSpec

NAME = "dump"
"""What the one input is called in reports."""


@dataclass(frozen=True)
class Part:
    """A part of a dump that is an attention of its own: one sequence, the heads of one key/value head, first tokens.

    Attributes:
        sequence: the only sequence looked at; None for all.
        kv_head: the only key/value head looked at; None for all.
        tokens: how many first queries and keys are looked at; None for all.
    """

    sequence: int | None = None
    kv_head: int | None = None
    tokens: int | None = None

    def of(self, array: Array, axes: str, group_size: int) -> Array:
        """What this part has of an array, whose axes are B, H (query heads), G (key/value heads), Q, K and others."""
        places = {
            "B": _one(self.sequence, 1),
            "G": _one(self.kv_head, 1),
            "H": _one(self.kv_head, group_size),
            "Q": slice(self.tokens),
            "K": slice(self.tokens),
        }
        whole = slice(None)
        return array[tuple(whole if size == 1 else places.get(axis, whole)
                           for axis, size in zip(axes, array.shape, strict=True))]  # fmt: skip


def _one(place: int | None, size: int) -> slice:
    return slice(None) if place is None else slice(place * size, (place + 1) * size)


AXES = {"may_attend": "BHQK", "bias": "BHQK", "is_token": "BK", "document": "BK", "sinks": "H"}


@dataclass
class DumpReading:
    """A dump together with one way of reading its axes and masks; a `settling.Reading` that can't be called again.

    Attributes:
        dump: the tensors.
        spec: what they are held to, with the sizes found here.
        arrangement: the order of axes.
        handed: how masks and the like were read.
        facts: what little a dump says of itself.
        doubts: what may be read wrongly.
        part: the sequences, key/value heads and tokens that are looked at; everything by default.
    """

    dump: Dump
    spec: AttentionSpec
    arrangement: Arrangement
    handed: Handed
    facts: Facts
    doubts: Sequence[Doubt] = ()
    part: Part = Part()

    @property
    def abilities(self) -> Abilities:
        """Its sizes. It takes nothing."""
        spec, sizes = self.spec, self.arrangement.sizes
        head_dim, value_dim = sizes["head_dim"], sizes["value_dim"]
        return Abilities(spec.num_heads, spec.kv_heads, head_dim, value_dim, max_tokens=0, batched=False)

    @property
    def assumptions(self) -> list[str]:
        """How it was read, in sentences."""
        names = ", ".join(f"{role} {tensor.name}" for role, tensor in self.dump.tensors.items())
        place = f"of {self.dump.place}: " if self.dump.place else ""
        read = [f"tensors {place}{names}", f"axes are {self.arrangement}", *self.handed.assumptions]
        return read + [tensor.not_numbers for role, tensor in self.dump.tensors.items()
                       if role in ("query", "key", "value", "output") and tensor.not_numbers]  # fmt: skip

    def observe(self, inputs: Inputs, *, seed: int = 0) -> Outcome:
        """Nothing: a dump holds one input and its output.

        Raises:
            CandidateError: always.
        """
        raise CandidateError("a dump can't be called with other inputs")

    def gradients(self, inputs: Inputs, cotangent: Array, memory: Memory, *, seed: int = 0) -> Gradients:
        """Nothing, as for `observe`: see `backward` for the gradients that a dump holds.

        Raises:
            CandidateError: always.
        """
        raise CandidateError("a dump can't be called with other inputs")

    def named(self, of: Mapping[str, Array]) -> Mapping[str, Array]:
        """The oracle's gradients, as they are."""
        return of

    def inputs(self) -> Inputs:
        """What was attended with; entries that are no number are 0 here (see `untouched`)."""
        arrays: dict[str, Any] = {name: np.nan_to_num(self._heads(name), nan=0.0, posinf=0.0, neginf=0.0)
                  for name in ("query", "key", "value")}  # fmt: skip
        fields: dict[str, Any] = {name: self._of(array, AXES[name]) for name, array in self.handed.fields.items()}
        return Inputs(**arrays, **fields)

    def _heads(self, role: str) -> Floats:
        array = self.dump.tensors[role].array
        if role == "query":
            return self._of(self.arrangement.query(array), "BHQD")
        return self._of(self.arrangement.key(array), "BGKD")

    def _of(self, array: Array, axes: str) -> Array:
        return self.part.of(array, axes, self.arrangement.num_heads // self.arrangement.kv_heads)

    def output(self) -> Floats:
        """The output, ``(batch, query, num_heads * value_dim)``."""
        return merged(self._of(self.arrangement.output(self.dump.tensors["output"].array), "BHQD"))

    def untouched(self, run: Run) -> Bools:
        """The rows that no NaN or infinity of the inputs can reach by right, ``(batch, query, head)``."""
        broken_query = ~np.isfinite(self._heads("query")).all(axis=-1)
        broken_key = ~(np.isfinite(self._heads("key")).all(axis=-1) & np.isfinite(self._heads("value")).all(axis=-1))
        broken_key = np.repeat(broken_key, run.spec.group_size, axis=1)
        reached = (run.may_attend & broken_key[:, :, None, :]).any(axis=-1)
        rows: Bools = ~(broken_query | reached).transpose(0, 2, 1)
        return rows

    @property
    def dtype(self) -> str:
        """The precision it is held to: the coarsest that an input or the output is stored in.

        Numbers in fp8 are exact once they are stored, and programs that read them compute in 16 bits at least.
        """
        stored = [self.dump.tensors[role].dtype for role in ("query", "key", "value", "output")]
        return max(("bfloat16" if one not in EPSILON else one for one in stored), key=lambda one: EPSILON[one])

    def observation(self, judge_empty_rows: bool) -> Observation:
        """The dump's numbers beside the oracle's."""
        inputs = self.inputs()
        with np.errstate(all="ignore"):
            run = run_stages(self.spec, inputs)
            expected = expectation(run, self.dtype, judge_empty_rows=judge_empty_rows)
        judged = expected.judged & self.untouched(run)
        expected = replace(expected, judged=judged, tolerance=expected.tolerance + self._stored_rounding(expected))
        return Observation(Probe(NAME, "what this one input shows", inputs), expected, self.output())

    def _stored_rounding(self, expected: Expectation) -> Floats:
        """How far storing the right output in fp8 takes each row from it; 0 for wider dtypes, which are computed in."""
        dtype = self.dump.tensors["output"].dtype
        if dtype in EPSILON:
            return np.zeros(expected.tolerance.shape)
        with np.errstate(all="ignore"):
            off: Any = np.abs(expected.rows.astype(dtype_named(dtype)).astype(np.float64) - expected.rows)
        # The nearest number may lie on the other side once the computation has rounded too.
        return 2 * np.nan_to_num(off, nan=0.0, posinf=0.0).max(axis=-1)


def merged(context: Floats) -> Floats:
    """``(batch, head, query, dim)`` as ``(batch, query, head * dim)``."""
    batch, heads, queries, dim = context.shape
    return np.ascontiguousarray(context.transpose(0, 2, 1, 3)).reshape(batch, queries, heads * dim)


def narrowed(reading: DumpReading, part: Part) -> DumpReading:
    """The reading of a part of the dump, its spec with the numbers that belong to these heads."""
    spec = reading.spec
    if part.kv_head is not None:
        heads = slice(part.kv_head * spec.group_size, (part.kv_head + 1) * spec.group_size)
        alibi, table = spec.alibi, spec.relative_bias
        if alibi is not None:
            alibi = replace(alibi, slopes=tuple(alibi.slopes_for(spec.num_heads)[heads]))
        if table is not None:
            table = replace(table, table=table.table[heads])
        spec = spec.but(num_heads=spec.group_size, num_kv_heads=1, alibi=alibi, relative_bias=table)
    return replace(reading, spec=spec, part=part)


def spec_here(spec: AttentionSpec, arrangement: Arrangement) -> AttentionSpec:
    """The spec with the sizes that the dump has. Nothing is projected in a dump of heads."""
    sizes = arrangement.sizes
    return spec.but(
        num_heads=arrangement.num_heads,
        num_kv_heads=arrangement.kv_heads,
        head_dim=sizes["head_dim"],
        value_dim=sizes["value_dim"],
        out_proj=False,
    )
