"""Check the corpus against itself: right variants give the source's output, planted faults and pairs give another.

Run as `python -m benchmarks.styles.selfcheck [STYLE ...]`.
"""

from __future__ import annotations

import collections
import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import torch

from benchmarks.styles import Variant, load, style_name, styles, variants

EXACT = 1e-9
ROUNDED = 1e-5  # for variants that say they round in float32
FAULT = 1e-4
EMPTY_ROWS = {"causal-strict", "causal-inverted", "empty-row", "causal-corner"}

ISSUE_FAULTS = """
value-is-key key-value-swapped projection-transposed fused-qkv-layout heads-split-by-view heads-merged-by-view
attends-over-batch kv-heads-tiled kv-head-divisor strided-read-as-contiguous rope-layout rope-layout-mixed rope-sign
rope-offset-lost rope-frequencies rope-partial-ignored scores-transposed scale-missing scale-by-model-width
scale-inverted scale-twice scale-after-softmax scale-other-constant softcap-missing softcap-after-mask
softcap-before-scale causal-missing causal-strict causal-one-ahead causal-inverted causal-corner mask-added-as-number
masked-scores-zeroed mask-after-softmax mask-fill-too-small padding-missing padding-on-queries padding-wrong-side
window-off-by-one window-missing documents-leak empty-row alibi-slopes alibi-sign bias-scaled softmax-over-queries
softmax-over-heads-or-batch softmax-low-precision sink-missing weights-times-key dropout-in-eval
output-projection-missing bias-term qk-norm-missing qk-norm-axis
""".split()  # noqa: SIM905


def outputs_of(style: ModuleType, source: str) -> list[np.ndarray]:
    """The outputs of the style's example, as float64 arrays."""
    torch.manual_seed(0)
    found: Any = style.example(load(source))
    return [np.asarray(output.detach() if torch.is_tensor(output) else output, dtype=np.float64) for output in found]


def difference(outputs: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference, each output measured by its own size; infinite where NaN or shapes disagree."""
    worst = 0.0
    for output, right in zip(outputs, expected, strict=True):
        if output.shape != right.shape or bool((np.isnan(output) != np.isnan(right)).any()):
            return float("inf")
        size = max(1.0, float(np.nanmax(np.abs(right))))
        worst = max(worst, float(np.nanmax(np.abs(output - right), initial=0.0)) / size)
    return worst


def check_variant(style: ModuleType, variant: Variant, known: dict[str, list[np.ndarray]]) -> str | None:
    """What is wrong with one variant, or None; its outputs join `known`."""
    expected = known["as written"]
    try:
        outputs = outputs_of(style, variant.source)
    except Exception as error:  # noqa: BLE001  whatever the code raises is reported
        return f"crashed with {type(error).__name__}: {error}"
    known[variant.label] = outputs
    moved = difference(outputs, expected)
    if variant.kind == "right":
        allowed = ROUNDED if "float32" in variant.label else EXACT
        return None if moved <= allowed else f"is meant to be right but differs by {moved:.2e}"
    if moved <= FAULT:
        return f"is meant to be a fault but differs only by {moved:.2e}"
    if any(np.isnan(output).any() for output in outputs) and not EMPTY_ROWS & set(variant.faults):
        return "gives NaN"
    if variant.kind == "pair":
        for fault in variant.faults:
            if difference(outputs, known[fault]) <= FAULT:
                return f"is a pair that gives the same as {fault} alone"
    return None


def check_style(style: ModuleType, counts: collections.Counter[str]) -> list[str]:
    """The complaints about one style; every fault seen is counted."""
    complaints = []
    try:
        found = list(variants(style))
        known = {"as written": outputs_of(style, style.SOURCE)}
    except Exception as error:  # noqa: BLE001  whatever the code raises is reported
        return [f"{type(error).__name__}: {error}"]
    if any(np.isnan(output).any() for output in known["as written"]):
        complaints.append("the source gives NaN")
    for variant in found:
        complaint = check_variant(style, variant, known)
        if complaint is not None:
            complaints.append(f"{variant.label}: {complaint}")
    counts.update({fault for variant in found for fault in variant.faults})
    return complaints


def main(names: list[str]) -> int:
    """Check the named styles, or all; print counts and complaints; 0 when there are none."""
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    totals: collections.Counter[str] = collections.Counter()
    bad = 0
    for style in styles():
        name = style_name(style)
        if names and name not in names:
            continue
        complaints = check_style(style, counts)
        kinds = {"right": len(style.RIGHT_VARIANTS) + 1, "pair": len(style.PAIRS)}
        kinds["fault"] = len(style.FAULTS) + len(getattr(style, "MORE_FAULTS", {}))
        totals.update(kinds)
        print(f"{name:28s} {kinds['right']:3d} right {kinds['fault']:3d} faults {kinds['pair']:3d} pairs")
        for complaint in complaints:
            bad += 1
            print(f"    {complaint}")
    print(f"{'all':28s} {totals['right']:3d} right {totals['fault']:3d} faults {totals['pair']:3d} pairs")
    if not names:
        thin = [f"{fault} ({counts[fault]})" for fault in ISSUE_FAULTS if counts[fault] < 2]
        extra = sorted(set(counts) - set(ISSUE_FAULTS))
        print("in fewer than two styles:", ", ".join(thin) or "none")
        print("beyond the list:", ", ".join(extra) or "none")
    print("complaints:", bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
