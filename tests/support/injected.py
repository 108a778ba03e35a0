"""Faults put into the oracle, as if a candidate had made them: for tests of what the judge says of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.comparison import Expectation, expectation
from qkv.diagnosis import Observation, under
from qkv.faults import Variant
from qkv.oracle import Linear, Norm, Parameters, run_stages
from qkv.probes import Probe, Setting, probes_for
from qkv.spec import AttentionSpec, spec_from_mapping


@dataclass(frozen=True)
class Case:
    """An attention that faults are put into.

    Attributes:
        spec: what it should compute.
        abilities: what it can be given.
    """

    spec: AttentionSpec
    abilities: Abilities

    @property
    def expected(self) -> tuple[tuple[Probe, Expectation], ...]:
        """Every probe that the judge makes for it, and the right output, each made once."""
        return _expected(self)

    def observations(self, *variants: Variant) -> list[Observation]:
        """What the judge sees of a candidate with these faults. Where one can't be made, the candidate is right."""
        with np.errstate(all="ignore"):
            return [
                Observation(probe, right, under(variants, right.run).output if variants else right.run.output)
                for probe, right in self.expected
            ]

    def __hash__(self) -> int:
        return id(self)


@cache
def _expected(case: Case) -> tuple[tuple[Probe, Expectation], ...]:
    probes = list(probes_for(Setting(case.spec, case.abilities)))
    with np.errstate(all="ignore"):
        return tuple((probe, expectation(run_stages(case.spec, probe.inputs), "float64")) for probe in probes)


EXTRAS = frozenset({"mask", "padding", "bias", "documents"})


def function(*, takes: frozenset[Any] = EXTRAS, max_tokens: int | None = 40, cached: Any = "", **fields: Any) -> Case:
    """An attention that is given query, key and value, every axis of another size."""
    fields = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "value_dim": 10, **fields}
    spec = spec_from_mapping(fields)
    able = Abilities(
        spec.num_heads,
        spec.kv_heads,
        spec.head_dim or 8,
        spec.value_dim or 10,
        takes=takes,
        free_lengths=True,
        free_sizes=True,
        cached=cached,
        max_tokens=max_tokens,
    )
    return Case(spec, able)


def module(
    *, embed_dim: int = 56, takes: frozenset[Any] = EXTRAS, fused: str = "", cross: bool = False, **fields: Any
) -> Case:
    """An attention that is given tokens and has projections of its own."""
    spec = spec_from_mapping({"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "embed_dim": embed_dim, **fields})
    rng = np.random.default_rng(11)
    head_dim = spec.head_dim or 8
    value_dim = spec.value_dim or head_dim

    def linear(rows: int, columns: int) -> Linear:
        return Linear(
            rng.normal(size=(rows, columns)) / columns**0.5, rng.normal(size=rows) if spec.projection_bias else None
        )

    q, k, v = (linear(heads * dim, embed_dim) for heads, dim in (
        (spec.num_heads, head_dim), (spec.kv_heads, head_dim), (spec.kv_heads, value_dim)))  # fmt: skip
    out = linear(embed_dim, spec.num_heads * value_dim) if spec.out_proj else None
    norms = {}
    if spec.qk_norm:
        widths = (spec.num_heads, spec.kv_heads) if spec.qk_norm == "width" else (1, 1)
        norms = {
            name: Norm(weight=rng.normal(size=count * head_dim), eps=1e-5)
            for name, count in zip(("q_norm", "k_norm"), widths, strict=True)
        }
    parameters = Parameters(q, k, v, out, fused=_fused(fused, spec, q, k, v), **norms)
    takes = takes | {"source"} if cross else takes
    able = Abilities(
        spec.num_heads,
        spec.kv_heads,
        head_dim,
        value_dim,
        embed_dim,
        parameters,
        takes=takes,
        free_lengths=cross,
        max_tokens=40,
    )
    return Case(spec, able)


def _fused(how: str, spec: AttentionSpec, *projections: Linear) -> Linear | None:
    if not how:
        return None
    blocks = spec.kv_heads if how == "per head" else 1

    def joined(arrays: list[Any]) -> Any:
        pieces = [array.reshape(blocks, -1, *array.shape[1:]) for array in arrays]
        whole = np.concatenate(pieces, axis=1)
        return whole.reshape(-1, *whole.shape[2:])

    biases = [projection.bias for projection in projections]
    weight = joined([projection.weight for projection in projections])
    return Linear(weight, None if biases[0] is None else joined(biases))


CASES: dict[str, Case] = {
    "grouped rope window softcap": function(
        causal=True, window=5, softcap=3.0, rope={"pairing": "halves"}, embed_dim=56
    ),
    "partial rope": function(
        causal=True,
        rope={
            "pairing": "adjacent",
            "dims": 6,
            "base": 500.0,
            "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 16},
        },
    ),
    "alibi": function(num_heads=6, causal=True, alibi=True, value_dim=8),
    "sinks": function(causal=True, sinks=True, window=4),
    "documents": function(documents=True, causal=True),
    "two-sided window": function(window=4, softcap=2.0),
    "prefix": function(mask="causal & window(5) | prefix(3)"),
    "encoder": function(num_heads=4, num_kv_heads=4, value_dim=8),
    "top left": function(causal=True, query_offset="top_left", rope={"pairing": "halves"}),
    "square module": module(
        num_heads=4, num_kv_heads=4, head_dim=8, embed_dim=32, causal=True, projection_bias=True, fused="blocks"
    ),
    "per-head fused": module(
        causal=True, projection_bias=True, qk_norm="head", rope={"pairing": "halves"}, fused="per head"
    ),
    "width norm": module(causal=True, qk_norm="width", rope={"pairing": "adjacent"}, num_kv_heads=3),
    "scale and bias": function(num_heads=4, num_kv_heads=2, head_dim=6, value_dim=6, scale=0.6, max_tokens=12),
    "cache rope window": function(causal=True, rope={"pairing": "halves"}, window=4, cached="kept", max_tokens=13),
    "cache alibi": function(num_heads=6, causal=True, alibi=True, value_dim=8, cached="handed", max_tokens=13),
    "cross": module(
        num_heads=4, num_kv_heads=4, embed_dim=32, projection_bias=True, cross=True, takes=frozenset({"padding"})
    ),
}
