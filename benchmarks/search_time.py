"""What a search that finds nothing costs: the catalogue, then every estimated constant, then all pairs.

Nothing takes longer than that, since a search ends with the first kind of explanation that fits. The budget is three
seconds of CPU, pairs included.

    python -m benchmarks.search_time            the searches for typical specs
    python -m benchmarks.search_time gemma 25   the 25 functions that one of them spends most in
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.comparison import expectation
from qkv.diagnosis import Observation, diagnose
from qkv.faults import CATALOGUE
from qkv.oracle import Linear, Parameters, run_stages
from qkv.probes import Setting, probes_for
from qkv.spec import AttentionSpec, spec_from_mapping

BUDGET = 3.0
"""Seconds of CPU that a search may take."""

SPECS: Mapping[str, Mapping[str, Any]] = {
    "encoder": {"num_heads": 6, "head_dim": 8},
    "llama": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "causal": True, "rope": {"pairing": "halves"}},
    "gemma": {
        "num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "causal": True, "window": 5, "softcap": 3.0, "scale": 0.25,
        "rope": {"pairing": "halves"}, "qk_norm": "head",
    },
    "bloom": {"num_heads": 6, "head_dim": 8, "causal": True, "alibi": True},
    "prefix": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "mask": "causal & window(5) | prefix(3)"},
    "gpt2 module": {"num_heads": 4, "head_dim": 12, "embed_dim": 48, "causal": True, "projection_bias": True},
}  # fmt: skip


def main() -> None:
    chosen = [name for name in SPECS if not sys.argv[1:] or name.startswith(sys.argv[1])]
    if sys.argv[1:]:
        profiled(chosen[0], int(sys.argv[2]) if sys.argv[2:] else 20)
        return
    print(f"CPU seconds of a search that finds nothing; the budget is {BUDGET:g} with pairs\n")
    print(f"{'spec':>12} | {'ways':>5} | {'singles and families':>20} | {'and pairs':>9}")
    for name in chosen:
        seen = unexplained(name)
        ways = sum(1 for fault in CATALOGUE.values() for _ in fault.variants(seen[0].expected.run.spec))
        alone, together = seconds(seen, pairs=False), seconds(seen, pairs=True)
        over = "  over budget" if together > BUDGET else ""
        print(f"{name:>12} | {ways:>5} | {alone:>20.2f} | {together:>9.2f}{over}")


def seconds(seen: Sequence[Observation], *, pairs: bool) -> float:
    begin = time.process_time()
    assert diagnose(seen, pairs=pairs).best is None
    return time.process_time() - begin


def profiled(name: str, lines: int) -> None:
    seen = unexplained(name)
    with cProfile.Profile() as profile:
        diagnose(seen)
    pstats.Stats(profile).sort_stats("tottime").print_stats(lines)


def unexplained(name: str) -> list[Observation]:
    """A candidate that is wrong in every row and in no known way: each of its outputs has noise added."""
    spec = spec_from_mapping(SPECS[name])
    rng = np.random.default_rng(5)
    observations = []
    for probe in probes_for(Setting(spec, _abilities(spec))):
        with np.errstate(all="ignore"):
            expected = expectation(run_stages(spec, probe.inputs), "float32")
        right = expected.run.output
        observations.append(Observation(probe, expected, right + 1.0 * rng.normal(size=right.shape)))
    return observations


def _abilities(spec: AttentionSpec) -> Abilities:
    head_dim = spec.head_dim or 8
    sizes = (spec.num_heads, spec.kv_heads, head_dim)
    if spec.embed_dim is None:
        takes = frozenset({"mask", "padding", "bias"})
        return Abilities(*sizes, head_dim + 2, takes=takes, free_lengths=True, free_sizes=True)
    return Abilities(*sizes, head_dim, spec.embed_dim, _parameters(spec, spec.embed_dim, head_dim))


def _parameters(spec: AttentionSpec, embed_dim: int, head_dim: int) -> Parameters:
    rng = np.random.default_rng(6)

    def linear(rows: int, columns: int) -> Linear:
        return Linear(rng.normal(size=(rows, columns)) / columns**0.5, rng.normal(size=rows))

    width, kv_width = spec.num_heads * head_dim, spec.kv_heads * head_dim
    q_proj, k_proj, v_proj = linear(width, embed_dim), linear(kv_width, embed_dim), linear(kv_width, embed_dim)
    fused = Linear(
        np.concatenate([q_proj.weight, k_proj.weight, v_proj.weight]),
        np.concatenate([q_proj.bias, k_proj.bias, v_proj.bias]),
    )
    return Parameters(q_proj, k_proj, v_proj, linear(embed_dim, width), fused=fused)


if __name__ == "__main__":
    main()
