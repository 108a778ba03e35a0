"""Dropout that stays on in evaluation. A candidate's is told by its mean (``randomness.py``); this is an example."""

from __future__ import annotations

import numpy as np

from qkv.faults.fault import Ways, fault
from qkv.oracle import Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "dropout-in-eval",
    Stage.DROPOUT,
    title="dropout is on in evaluation",
    explanation=(
        "Dropout sets random weights to zero while a model is trained, and scales up the others. In evaluation it "
        "must be off. Here two runs on the same input differ, and random entries in all rows are wrong. F.dropout "
        "and scaled_dot_product_attention don't know about model.eval()."
    ),
    repair=(
        "attn_weights = self.dropout(attn_weights)  # an nn.Dropout, which model.eval() turns off\n"
        "# or: torch.dropout(attn_weights, p, train=self.training)"
    ),
    commonness=3,
)
def dropout_in_eval(spec: AttentionSpec) -> Ways:
    """``w_ij m_ij / (1 - p)`` with ``m`` 0 or 1 at random; always the same ``m`` here."""
    p = 0.3

    def dropped(run: Run) -> Run:
        kept = np.random.default_rng(0).random(tuple(run.weights.shape)) >= p
        return run.but(weights=run.weights * run.array(kept / (1 - p)))

    yield f"p is {p}", {Stage.DROPOUT: dropped}
