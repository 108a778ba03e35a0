"""Writes the pages that the browser tests open into a folder: ``python pages.py FOLDER NAME...``."""

import sys
from pathlib import Path

import numpy as np

from qkv.captures.assembling import assembled
from qkv.captures.embedded import view_of_embedded
from qkv.captures.patterns import named, scores_of
from qkv.masks import Causal
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights, Plan
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import HeadWeights, computed_heads, given_heads
from qkv.spec import AttentionSpec

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\u202egnp.exe",
    " \n\t",
    "",
    "😀",
    "שלום",
]


def drawn(
    num_heads: int, length: int, *, seed: int = 0, sharp: float = 1.0, scale: float | None = None
) -> tuple[HeadWeights, ...]:
    """Heads of causal attention over random queries, keys and values."""
    rng = np.random.default_rng(seed)
    query, key = sharp * rng.normal(size=(2, 1, num_heads, length, 8))
    value = rng.normal(size=(1, num_heads, length, 3))
    spec = AttentionSpec(num_heads=num_heads, mask=Causal(), scale=scale)
    return computed_heads(spec, Inputs(*[None] * 4, query, key, value))


def article() -> AttentionView:
    """Six words, one head, values of three numbers, all stages."""
    words = ["Your", "journey", "starts", "with", "one", "step"]
    return AttentionView(layers=[LayerWeights("layer 0", drawn(1, 6))], tokens=words, title="Your journey")


def heads() -> AttentionView:
    """Four layers of six heads, whose tokens have no texts."""
    sharpness = np.random.default_rng(1).uniform(0.5, 2, size=4)
    layers = [LayerWeights(f"layer {at}", drawn(6, 40, seed=at, sharp=sharp)) for at, sharp in enumerate(sharpness)]
    return AttentionView(layers=layers, title="Four layers of six heads")


def hostile() -> AttentionView:
    """Tokens that would be markup, and a note that would."""
    layers = [LayerWeights("<b>layer</b>", drawn(2, len(HOSTILE)))]
    return AttentionView(
        layers=layers,
        tokens=HOSTILE,
        title="<i>hostile</i>",
        notes=["<u>note</u>"],
    )


def wrong() -> AttentionView:
    """A head that lacks its scale, beside the right one."""
    (right,), (unscaled,) = (drawn(1, 8, scale=scale, sharp=1.5) for scale in (None, 1.0))
    layers = [LayerWeights("candidate", [unscaled.but(against="1.0")]), LayerWeights("right", [right])]
    return AttentionView(layers=layers, title="A forgotten scale")


def several() -> AttentionView:
    """Two heads, of which the second lacks its scale, beside the right ones."""
    right, unscaled = (drawn(2, 8, scale=scale, sharp=1.5) for scale in (None, 1.0))
    own = [right[0].but(against="1.0"), unscaled[1].but(against="1.1")]
    return assembled([LayerWeights("candidate", own), LayerWeights("right", right)], title="One wrong head", notes=[])


def sentence() -> AttentionView:
    """The embedded model, with heads that are called by what they look at, and many tiny weights."""
    view = view_of_embedded("ben hill said honey rain gold bread . the parrot said honey rain gold")
    return named(view, scores_of(view))


def long() -> AttentionView:
    """4,096 tokens."""
    words = [f"w{at}" for at in range(4096)]
    return AttentionView(layers=[LayerWeights("layer 0", drawn(1, 4096, sharp=2))], tokens=words, title="4,096 tokens")


def sink() -> AttentionView:
    """So many queries that the two largest weights of each are known: the first key's, then key 1's or key 2's."""
    weights = np.full((8200, 4), 0.05)
    weights[:, 0], weights[:4100, 1], weights[4100:, 2] = 0.7, 0.2, 0.2
    return AttentionView(layers=[LayerWeights("layer 0", given_heads(weights))], title="A sink")


def step() -> AttentionView:
    """One query over 64 keys, as in decoding."""
    weights = np.random.default_rng(2).dirichlet(np.full(64, 0.2), size=(1, 1))
    return AttentionView(layers=[LayerWeights("layer 0", given_heads(weights))], title="One step")


def sampled() -> AttentionView:
    """One of four queries, and only coarse pictures."""
    plan = Plan(one_of=4, whole=1)
    return AttentionView(layers=[LayerWeights("layer 0", drawn(1, 600))], title="Some of the queries", plan=plan)


VIEWS = {view.__name__: view for view in (article, heads, hostile, wrong, several, sentence, long, sink, step, sampled)}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        VIEWS[name]().save(folder / f"{name}.html")
