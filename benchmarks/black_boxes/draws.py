"""Drawing a black box: sizes, then one to four features that people combine, each with its numbers at random."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from benchmarks.black_boxes.drawn import LONGEST, Drawn, Rotation, Visible

HEAD_DIMS = (4, 5, 8, 8, 12, 16, 24, 32, 64)
FEATURES = {
    "mask": 14, "rope": 4, "slopes": 2, "distance_bias": 1, "place_bias": 1, "softcap": 2, "sinks": 2, "tiled": 2,
    "softmax_base": 1, "half_inside": 0.6, "dropout_p": 0.5, "head_order": 0.8, "channel_order": 0.8,
}  # fmt: skip
"""What is drawn, and how often beside the others."""

APART = (
    {"slopes", "distance_bias", "place_bias"},  # their sum is all that can be seen
    {"half_inside", "dropout_p"},  # each hides the digits that the other is read from
    {"tiled", "head_order"},  # the one is the other with the key/value heads in another order
)
"""Features of which a box has one at most."""


def draw_spec(rng: np.random.Generator, seed: int = 0) -> Drawn:
    """A black box drawn at random; ``seed`` is only kept, to name it by."""
    sizes = _sizes(rng)
    names = _features(rng)
    if "tiled" in names:
        sizes["num_heads"], sizes["num_kv_heads"] = [(4, 2), (6, 2), (6, 3), (8, 2), (8, 4)][rng.integers(5)]
    drawn = Drawn(seed, scale=_scale(rng, sizes), **sizes)
    for name in names:
        drawn = dataclasses.replace(drawn, **DRAWERS[name](rng, drawn))
    if drawn.rope or drawn.slopes or drawn.distance_bias is not None or drawn.visible.pairs is None:
        drawn = dataclasses.replace(drawn, offset=_offset(rng))
    if drawn.sinks is not None:
        # The sink takes the weight of a row without keys.
        drawn = dataclasses.replace(drawn, empty_row="zero")
    return drawn


def _features(rng: np.random.Generator) -> list[str]:
    weights = np.array(list(FEATURES.values()))
    count = rng.integers(1, 5)
    chosen = [str(name) for name in rng.choice(list(FEATURES), count, replace=False, p=weights / weights.sum())]
    for group in APART:
        for extra in [name for name in chosen if name in group][1:]:
            chosen.remove(extra)
    return chosen


def _sizes(rng: np.random.Generator) -> dict[str, Any]:
    num_heads = int(rng.integers(1, 9))
    head_dim = int(rng.choice(HEAD_DIMS))
    return {
        "layout": str(rng.choice(["BHTD", "BTHD"])),
        "num_heads": num_heads,
        "num_kv_heads": int(rng.choice([n for n in range(1, num_heads + 1) if num_heads % n == 0])),
        "head_dim": head_dim,
        "value_dim": head_dim if rng.random() < 0.6 else int(rng.choice([3, 6, 10, 20])),
    }


def _scale(rng: np.random.Generator, sizes: dict[str, Any]) -> float:
    head_dim = sizes["head_dim"]
    usual = head_dim**-0.5
    if rng.random() < 0.5:
        return usual
    stretched = 0.1 * math.log(float(rng.choice([4, 16, 40]))) + 1.0
    of_its_own = float(np.exp(rng.uniform(-3, 0)))
    others = [(sizes["num_heads"] * head_dim) ** -0.5, 1 / head_dim, 1.0, usual * stretched**2, of_its_own]
    return others[rng.integers(len(others))]


def _offset(rng: np.random.Generator) -> Any:
    kind = rng.random()
    return "top_left" if kind < 0.45 else "bottom_right" if kind < 0.85 else int(rng.integers(1, 5))


def _mask(rng: np.random.Generator, _: Drawn) -> dict[str, Any]:
    window, step = int(rng.choice([2, 3, 4, 5, 6, 9])), int(rng.integers(2, 5))
    prefix = int(rng.integers(1, 6))
    starts = tuple(sorted({int(start) for start in rng.integers(2, 9, size=rng.integers(1, 3))}))
    pairs = (rng.random((LONGEST, LONGEST)) < 0.6) | np.eye(LONGEST, dtype=bool)
    kinds = [
        Visible(causal=True), Visible(causal=True), Visible(causal=True),
        Visible(causal=True, window=window), Visible(causal=True, window=window), Visible(window=window),
        Visible(prefix=max(prefix, 2)), Visible(causal=True, prefix=prefix),
        Visible(causal=True, window=window, prefix=prefix),
        Visible(starts=starts), Visible(causal=True, starts=starts),
        Visible(step=step), Visible(causal=True, step=step), Visible(pairs=pairs),
    ]  # fmt: skip
    return {"visible": kinds[rng.integers(len(kinds))], "empty_row": str(rng.choice(["zero", "nan", "uniform"]))}


def _rope(rng: np.random.Generator, drawn: Drawn) -> dict[str, Any]:
    most = drawn.head_dim // 2 * 2
    dims = most if rng.random() < 0.6 else int(rng.integers(1, most // 2 + 1)) * 2
    base = [10000.0, 10000.0, 500000.0, float(np.exp(rng.uniform(4, 14)))][rng.integers(4)]
    factor = 1.0 if rng.random() < 0.7 else [2.0, 4.0, 8.0, 1.7][rng.integers(4)]
    return {"rope": Rotation("halves" if rng.random() < 0.5 else "adjacent", base, dims, factor)}


def _slopes(rng: np.random.Generator, drawn: Drawn) -> dict[str, Any]:
    heads, kind = drawn.num_heads, str(rng.choice(["paper", "paper", "geometric", "other"]))
    below = 2 ** int(math.log2(heads))
    slopes = {
        "paper": [2 ** (-8 * n / below) for n in range(1, below + 1)]
        + [2 ** (-4 * n / below) for n in range(1, 2 * (heads - below), 2)],
        "geometric": [2 ** (-8 * n / heads) for n in range(1, heads + 1)],
        "other": [float(slope) for slope in rng.uniform(0.02, 0.8, heads)],
    }[kind]
    return {"slopes": tuple(slopes), "slopes_name": kind, "signed": bool(rng.random() < 0.3)}


def _distance_bias(rng: np.random.Generator, drawn: Drawn) -> dict[str, Any]:
    return {"distance_bias": rng.normal(size=(drawn.num_heads, 2 * int(rng.integers(2, 7)) + 1))}


def _place_bias(rng: np.random.Generator, drawn: Drawn) -> dict[str, Any]:
    return {"place_bias": rng.normal(size=(drawn.num_heads, LONGEST, LONGEST))}


def _channel_order(rng: np.random.Generator, drawn: Drawn) -> dict[str, Any]:
    orders = [rng.permutation(drawn.value_dim) for _ in range(drawn.num_heads)]
    return {"channel_order": np.stack(orders if rng.random() < 0.3 else orders[:1] * drawn.num_heads)}


DRAWERS: dict[str, Any] = {
    "mask": _mask,
    "rope": _rope,
    "slopes": _slopes,
    "distance_bias": _distance_bias,
    "place_bias": _place_bias,
    "softcap": lambda rng, _: {"softcap": float(rng.choice([5.0, 15.0, 30.0, 50.0, rng.uniform(5, 60)]))},
    "sinks": lambda rng, drawn: {"sinks": tuple(float(sink) for sink in rng.normal(size=drawn.num_heads))},
    "tiled": lambda rng, _: {"tiled": True},
    "softmax_base": lambda rng, _: {"softmax_base": "2"},
    "half_inside": lambda rng, _: {"half_inside": True},
    "dropout_p": lambda rng, _: {"dropout_p": 0.1},
    "head_order": lambda rng, drawn: {"head_order": tuple(int(h) for h in rng.permutation(drawn.num_heads))},
    "channel_order": _channel_order,
}
