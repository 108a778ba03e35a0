"""Faults of a bias that is there where it shouldn't be."""

from __future__ import annotations

from qkv.faults.as_if import as_if, unless
from qkv.faults.fault import Ways, fault
from qkv.oracle import Run
from qkv.oracle.stages import bias
from qkv.positions import Alibi
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "bias-extra",
    Stage.BIAS,
    title="a bias is added that doesn't belong there",
    explanation=(
        "The scores get a number for each pair of query and key that nobody meant them to have: alibi in a layer "
        "without it, or the bias of the call once more. Every row with more than one visible key is wrong."
    ),
    repair="attn_weights = torch.softmax(attn_scores, dim=-1)  # without a bias, or with it added once",
    commonness=1,
)
def bias_extra(spec: AttentionSpec) -> Ways:
    """``softmax(a s - m |i - j|)`` for ``softmax(a s)``; ``softmax(a s + 2 b)`` for ``softmax(a s + b)``."""
    if spec.alibi is None:
        yield "alibi where none is meant", {Stage.BIAS: as_if(bias, alibi=Alibi())}
        if spec.num_heads > 1:
            equal = Alibi((1.0,) * spec.num_heads)
            yield "the distance itself is taken off", {Stage.BIAS: as_if(bias, alibi=equal)}

    def again(run: Run) -> Run:
        unless(run.inputs.bias is None, "no bias came with the call")
        done = bias(run)
        return done.but(scores=done.scores + run.inputs.bias)

    yield "the bias given with the call is added twice", {Stage.BIAS: again}
    if spec.relative_bias is not None:
        yield "the relative bias is added twice", {Stage.BIAS: lambda run: _relative(bias(run))}


def _relative(run: Run) -> Run:
    return as_if(bias, lambda inputs: inputs.but(bias=None), alibi=None)(run)
