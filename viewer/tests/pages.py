"""Writes the pages that the browser tests open into a folder: ``python pages.py FOLDER``."""

import sys
from pathlib import Path

import numpy as np

from qkv.masks import Causal
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads, given_heads
from qkv.spec import AttentionSpec

HOSTILE = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "\u202egnp.exe", " \n\t", "", "😀", "שלום"]


def drawn(num_heads: int, length: int, head_dim: int = 8, *, seed: int = 0, sharp: float = 1.0, value_dim: int = 3):
    """Heads of causal attention over random queries, keys and values."""
    rng = np.random.default_rng(seed)
    query, key = sharp * rng.normal(size=(2, 1, num_heads, length, head_dim))
    value = rng.normal(size=(1, num_heads, length, value_dim))
    return computed_heads(AttentionSpec(num_heads=num_heads, mask=Causal()), Inputs(*[None] * 4, query, key, value))


def article() -> AttentionView:
    """Six words, one head, values of three numbers, all stages."""
    words = "Your journey starts with one step".split()
    return AttentionView(layers=[LayerWeights("layer 0", drawn(1, 6))], tokens=words, title="Your journey")


def heads() -> AttentionView:
    """Four layers of six heads."""
    rng = np.random.default_rng(1)
    words = [f"word{at}" for at in range(40)]
    layers = [
        LayerWeights(f"layer {at}", drawn(6, 40, seed=at, sharp=float(rng.uniform(0.5, 2)))) for at in range(4)
    ]
    return AttentionView(layers=layers, tokens=words, title="Four layers of six heads")


def hostile() -> AttentionView:
    """Tokens that would be markup, and a note that would."""
    return AttentionView(
        layers=[LayerWeights("<b>layer</b>", drawn(2, len(HOSTILE)))], tokens=HOSTILE, title="<i>hostile</i>", notes=["<u>note</u>"]
    )


def wrong() -> AttentionView:
    """A head that lacks its scale beside the right one."""
    (right,) = drawn(1, 8, sharp=1.5)
    (unscaled,) = given_heads(np.where(np.tri(8, dtype=bool), 0.0, np.nan))
    rows = right.rows(slice(0, 8))
    scores = np.where(rows.may_attend, np.log(np.where(rows.may_attend, rows.weights, 1)) * np.sqrt(8), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = np.where(rows.may_attend, weights / weights.sum(-1, keepdims=True), np.nan)
    (unscaled,) = given_heads(weights, names=["head 0"])
    layers = [LayerWeights("candidate", [unscaled.but(against="1.0")]), LayerWeights("right", [right])]
    return AttentionView(layers=layers, title="A forgotten scale")


def long() -> AttentionView:
    """4,096 tokens."""
    words = [f"w{at}" for at in range(4096)]
    return AttentionView(layers=[LayerWeights("layer 0", drawn(1, 4096, sharp=2))], tokens=words, title="4,096 tokens")


def step() -> AttentionView:
    """One query over 64 keys, as in decoding."""
    weights = np.random.default_rng(2).dirichlet(np.full(64, 0.2), size=(1, 1))
    return AttentionView(layers=[LayerWeights("layer 0", given_heads(weights))], title="One step")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for view in (article, heads, hostile, wrong, long, step):
        view().save(folder / f"{view.__name__}.html")
