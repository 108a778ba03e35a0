"""The margin of the bar for gradients: how near right backward passes come to it, and how far past it the faults are.

Run: ``python -m benchmarks.gradients``. Right backward passes are torch's own differentiation, in each precision, of a
plain softmax and of the fused ``scaled_dot_product_attention``. What counts is their largest error over the tolerance,
which must stay below 1. Faults are those of the catalogue of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from benchmarks.tolerance import CANDIDATES, SPECS, Attention
from qkv.adapters.abilities import Abilities
from qkv.adapters.pullback import Gradients
from qkv.comparison import Floats
from qkv.diagnosis import IMPOSSIBLE
from qkv.faults import GRADIENT_FAULTS
from qkv.gradients.comparison import GradientExpectation, off
from qkv.gradients.probes import gradient_probes, wide_heads
from qkv.masks import Causal
from qkv.oracle import run_stages
from qkv.probes import Setting

SEEDS = range(10)
WIDE = {"head_dim": 256, "value_dim": 256}


def same(of: Mapping[str, Floats]) -> Mapping[str, Floats]:
    return of


def differentiated(attention: Attention, expected: GradientExpectation, dtype: str) -> Gradients:
    """What torch gives for an implementation on a run's inputs, as the judge sees it."""
    run, names = expected.run, ("query", "key", "value")
    leaves = [torch.from_numpy(getattr(run.inputs, name)).to(getattr(torch, dtype)) for name in names]
    output = attention(*(leaf.requires_grad_() for leaf in leaves), run.spec.masks(Causal))  # type: ignore[misc]
    batch, heads, queries, dim = output.shape
    cotangent = expected.cotangent.reshape(batch, queries, heads, dim).swapaxes(1, 2)
    given = torch.autograd.grad(output, leaves, torch.from_numpy(cotangent.copy()).to(output.dtype))
    return Gradients({name: one.double().numpy() for name, one in zip(names, given, strict=True)}, frozenset())


def worst(expected: GradientExpectation, of: Mapping[str, Floats]) -> float:
    """The largest error of any row, in units of the tolerance."""
    return max(
        float(np.max(off(of[name], array).max(axis=-1, initial=0.0) / expected.tolerance[name]))
        for name, array in expected.right.items()
    )


def nearest_fault(expected: GradientExpectation) -> float:
    """The smallest error, in units of the tolerance, of a fault that differs at all."""
    errors = []
    for fault in GRADIENT_FAULTS.values():
        for variant in fault.variants(expected.run.spec):
            try:
                errors.append(worst(expected, expected.under(variant.backward)))
            except IMPOSSIBLE:
                continue
    return min((error for error in errors if error > 1e-3), default=float("nan"))


def main() -> None:
    for name, spec in SPECS.items():
        able = Abilities(6, 6, 8, 8, free_lengths=True, free_sizes=True)
        wide = Abilities(6, 6, 256, 256, free_lengths=True, free_sizes=True)
        for label, dtype, attention in CANDIDATES:
            errors, nearest = [], float("nan")
            for seed in SEEDS:
                probes = [(spec, probe) for probe in gradient_probes(Setting(spec, able, seed))]
                probes += [(spec.but(**WIDE), probe) for probe in wide_heads(Setting(spec.but(**WIDE), wide, seed))]
                for own, probe in probes:
                    with np.errstate(all="ignore"):
                        run = run_stages(own, probe.probe.inputs)
                        if not run.may_attend.any(axis=-1).all():
                            continue
                        held_to = "float32" if dtype == "float64" else dtype
                        expected = GradientExpectation(run, probe.cotangent_for(run.output.shape), same, held_to)
                        errors.append(worst(expected, differentiated(attention, expected, dtype).of))
                        nearest = nearest_fault(expected) if len(errors) == 1 else nearest
            alarms = sum(error > 1 for error in errors)
            print(
                f"{name:8} {label:15} {dtype:9} {len(errors)} right backward passes: median {np.median(errors):.3f} of "
                f"the bar, most {max(errors):.3f}, false alarms {alarms}; the nearest fault is at {nearest:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
