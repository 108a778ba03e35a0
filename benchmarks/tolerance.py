"""The tolerance's margin: how near right implementations come to it, and how far past it the faults are.

Run: ``python -m benchmarks.tolerance``. Right implementations are torch's own arithmetic in each precision: a plain
softmax, a fused ``scaled_dot_product_attention``, float64 candidates with a softmax in float32. What counts is their
largest error over the tolerance, which must stay below 1. Faults are those of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from qkv.adapters.abilities import Abilities
from qkv.comparison import Expectation, expectation
from qkv.diagnosis import twin
from qkv.faults import CATALOGUE
from qkv.masks import Causal
from qkv.oracle import Run, run_stages
from qkv.probes import Setting, probes_for
from qkv.spec import AttentionSpec

SPECS = {"full": AttentionSpec(6, 6, 8), "causal": AttentionSpec(6, 6, 8, mask=Causal(), query_offset="top_left")}
SEEDS = range(40)
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]


def eager(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(-1) @ value


def fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=causal)


def float32_inside(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    return eager(query.float(), key.float(), value.float(), causal).to(query.dtype)


CANDIDATES: tuple[tuple[str, str, Attention], ...] = (
    ("eager", "float32", eager),
    ("fused", "float32", fused),
    ("float32 inside", "float64", float32_inside),
    ("eager", "bfloat16", eager),
    ("fused", "bfloat16", fused),
    ("eager", "float16", eager),
    ("fused", "float16", fused),
)


def output(attention: Attention, run: Run, dtype: str) -> np.ndarray:
    """What an implementation gives on a run's inputs, as the judge sees it."""
    inputs = run.inputs
    tensors = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in (inputs.query, inputs.key, inputs.value)]
    context = attention(*tensors, run.spec.masks(Causal)).double().numpy()  # type: ignore[misc]  # three tensors
    return context.transpose(0, 2, 1, 3).reshape(run.output.shape)


def nearest_fault(run: Run, expected: Expectation) -> float:
    """The smallest error, in units of the tolerance, of a fault that differs at all on a probe."""
    errors = []
    for fault in CATALOGUE.values():
        for variant in fault.variants(run.spec):
            given = twin(run, variant.replacements)
            if given is not None and given.output.shape == run.output.shape:
                errors.append(expected.compare(given.output).worst)
    return min((error for error in errors if error > 1e-3), default=float("nan"))


def main() -> None:
    for name, spec in SPECS.items():
        able = Abilities(6, 6, 8, 8, free_lengths=True, free_sizes=True)
        for label, dtype, attention in CANDIDATES:
            errors = []
            for seed in SEEDS:
                for probe in probes_for(Setting(spec, able, seed)):
                    with np.errstate(all="ignore"):
                        run = run_stages(spec, probe.inputs)
                        expected = expectation(run, dtype)
                        errors.append(expected.compare(output(attention, run, dtype)).worst)
            with np.errstate(all="ignore"):
                run = run_stages(spec, next(probes_for(Setting(spec, able))).inputs)
                nearest = nearest_fault(run, expectation(run, dtype))
            alarms = sum(error > 1 for error in errors)
            print(
                f"{name:8} {label:15} {dtype:9} {len(errors)} right runs: median {np.median(errors):.3f} of the bar, "
                f"most {max(errors):.3f}, false alarms {alarms}; the nearest fault is at {nearest:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
