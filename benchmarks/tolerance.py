"""The tolerance's margin: how near right implementations come to it, and how far past it the faults are.

Run: ``python -m benchmarks.tolerance``. Right implementations are torch's own arithmetic in each precision: a plain
softmax, a fused ``scaled_dot_product_attention``, a flash-style loop over blocks of keys, float64 candidates with a
softmax in float32. What counts is their largest error over the tolerance, which must stay below 1. Faults are those of
the catalogue: how near the nearest one is, and how many of them show in each precision on the ordinary probes.

The second table holds the same implementations to the bar of long sequences, on rows with all the keys of the length.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from qkv.adapters.abilities import Abilities
from qkv.comparison import Expectation, as_seen, expectation
from qkv.diagnosis import twin
from qkv.faults import CATALOGUE, Variant
from qkv.masks import Causal
from qkv.oracle import Inputs, Run, resume, run_stages
from qkv.oracle.blocks import all_heads
from qkv.probes import Setting, probes_for
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

SPECS = {"full": AttentionSpec(6, 6, 8), "causal": AttentionSpec(6, 6, 8, mask=Causal(), query_offset="top_left")}
SEEDS = range(40)
LENGTHS = (8, 64, 512, 4096, 16_384, 65_536)
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


def blocked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    """As flash attention does it: blocks of 64 keys, scores and sums in float32, products in the given precision."""
    top = torch.full((*query.shape[:-1], 1), -torch.inf)
    total, context = torch.zeros_like(top), torch.zeros(*query.shape[:-1], value.shape[-1])
    at = torch.arange(query.shape[-2])[:, None]
    for start in range(0, key.shape[-2], 64):
        scores = (query @ key[..., start : start + 64, :].transpose(-2, -1)).float() / query.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.arange(start, start + scores.shape[-1]) > at, -torch.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shares, kept = (scores - higher).exp(), (top - higher).exp()
        total = total * kept + shares.sum(-1, keepdim=True)
        context = context * kept + (shares.to(value.dtype) @ value[..., start : start + 64, :]).float()
        top = higher
    return (context / total).to(query.dtype)


def numpy_float32(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    q, k, v = (tensor.numpy() for tensor in (query, key, value))
    scores = q @ k.swapaxes(-1, -2) / np.float32(q.shape[-1] ** 0.5)
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return torch.from_numpy(weights / weights.sum(-1, keepdims=True) @ v)


CANDIDATES: tuple[tuple[str, str, Attention], ...] = (
    ("eager", "float32", eager),
    ("fused", "float32", fused),
    ("blocked", "float32", blocked),
    ("numpy", "float32", numpy_float32),
    ("float32 inside", "float64", float32_inside),
    ("eager", "bfloat16", eager),
    ("fused", "bfloat16", fused),
    ("blocked", "bfloat16", blocked),
    ("eager", "float16", eager),
    ("fused", "float16", fused),
    ("blocked", "float16", blocked),
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


def faults_shown(spec: AttentionSpec, able: Abilities, dtype: str) -> str:
    """How many faults of the catalogue show on some ordinary probe, of those that show in float64."""
    shown: dict[str, set[str]] = {dtype: set(), "float64": set()}
    for precision, ids in shown.items():
        for probe in probes_for(Setting(spec, able)):
            with np.errstate(all="ignore"):
                run = run_stages(spec, as_seen(probe.inputs, precision))
                expected = expectation(run, precision)
                for fault in CATALOGUE.values():
                    if fault.id not in ids and any(_shows(run, expected, variant) for variant in fault.variants(spec)):
                        ids.add(fault.id)
    missed = sorted(shown["float64"] - shown[dtype])
    return f"{len(shown[dtype])} of {len(shown['float64'])} faults show; not {', '.join(missed) or 'missed any'}"


def _shows(run: Run, expected: Expectation, variant: Variant) -> bool:
    given = twin(run, variant.replacements)
    return given is not None and given.output.shape == run.output.shape and expected.agrees(given.output) is None


def at_length(attention: Attention, dtype: str, length: int) -> float:
    """The largest error over the bar of long sequences, in a few rows of two heads that see all the keys."""
    rng = np.random.default_rng(length)
    query, key, value = (
        as_seen(Inputs(query=rng.normal(size=(1, 2, n, 64))), dtype).query for n in (8, length, length)
    )
    spec = AttentionSpec(2, 2, 64, out_proj=False)
    block = all_heads(spec, Inputs(query=query, key=key, value=value))
    run = resume(block, {}, Stage.POSITION.order)
    return expectation(run, dtype).compare(output(attention, run, dtype)).worst


def at_lengths() -> None:
    for label, dtype, attention in CANDIDATES:
        worst = [f"{length:,}: {at_length(attention, dtype, length):.3f}" for length in LENGTHS]
        print(f"rows of length  {label:15} {dtype:9} error over the bar at {', '.join(worst)}", flush=True)


def main() -> None:
    able = Abilities(6, 6, 8, 8, free_lengths=True, free_sizes=True)
    for dtype in ("float32", "float16", "bfloat16"):
        print(f"causal   {dtype:9} {faults_shown(SPECS['causal'], able, dtype)}", flush=True)
    at_lengths()
    for name, spec in SPECS.items():
        for label, dtype, attention in CANDIDATES:
            errors = []
            for seed in SEEDS:
                for probe in probes_for(Setting(spec, able, seed)):
                    with np.errstate(all="ignore"):
                        run = run_stages(spec, as_seen(probe.inputs, dtype))
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
