"""Faults of biases beside a cache."""

from __future__ import annotations

from qkv.faults.caching import held
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import BIAS, CACHE
from qkv.oracle import Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "bias-dropped-in-decode",
    Stage.BIAS,
    title="the bias is left out where a cache is used",
    explanation=(
        "Alibi, or another number that is added to the scores, belongs to every call. Here the path for new tokens "
        "leaves it out, since it has the shape of a whole text. The first call is right, the calls after it are wrong."
    ),
    repair="attn_scores = attn_scores + bias[..., start : start + query_len, : start + query_len]",
    needs=[BIAS, CACHE],
)
def bias_dropped_in_decode(spec: AttentionSpec) -> Ways:
    """``s`` for ``s + b`` in every call but the first."""

    def unbiased(run: Run) -> Run:
        held(run)  # impossible where nothing stands in a cache
        return run

    if spec.alibi is not None or spec.relative_bias is not None:
        yield {Stage.BIAS: unbiased}
