"""Faults of the mix: the weights are applied to the wrong vectors, or what comes out is changed."""

from __future__ import annotations

from qkv.errors import ShapeError
from qkv.faults.as_if import unless
from qkv.faults.constants import factor_names, named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import SEVERAL_HEADS
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import mix
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _mixed(run: Run, weights: Array, vectors: Array) -> Run:
    if vectors.shape[-2] != weights.shape[-1]:
        raise ShapeError(f"{weights.shape[-1]} weights a row can't be applied to {vectors.shape[-2]} vectors")
    if vectors.shape[-1] != run.value.shape[-1]:
        raise ShapeError("what the weights are applied to has another width than the value")
    return run.but(context=run.xp.matmul(weights, vectors))


@fault(
    "weights-times-key",
    Stage.MIX,
    title="the weights are applied to the key (or the query), not to the value",
    explanation=(
        "Query and key decide how much each token counts; what is taken from it is its value. With weights @ key "
        "the value is never used. Every row is wrong, the first one too: it is key 0 and should be value 0."
    ),
    repair="context = attn_weights @ value",
    commonness=2,
)
def weights_times_key(spec: AttentionSpec) -> Ways:
    """``sum_j w_ij k_j``, or ``sum_j w_ij q_j``."""
    yield "weights @ key", {Stage.MIX: lambda run: _mixed(run, run.weights, run.key)}
    yield "weights @ query", {Stage.MIX: lambda run: _mixed(run, run.weights, run.query)}


@fault(
    "weights-out-of-step",
    Stage.MIX,
    title="each weight is applied to a neighbouring token's value",
    explanation=(
        "Weight j belongs to value j. Where one of the two is counted from another place, each value gets its "
        "neighbour's weight: an index one off, or a sink's column that is cut off at the wrong end. Every row is "
        "wrong, though all weights are right."
    ),
    repair="context = attn_weights @ value  # with the sink's column in front: attn_weights[..., 1:] @ value",
    commonness=1,
)
def weights_out_of_step(spec: AttentionSpec) -> Ways:
    """``sum_j w_ij v_(j - 1)``, ``sum_j w_ij v_(j + 1)``; with a sink in front ``sum_j w_i(j - 1) v_j``."""
    for by, words in ((1, "the value before, the first one to the last"), (-1, "the value after")):
        yield words, {Stage.MIX: lambda run, by=by: _mixed(run, run.weights, run.xp.roll(run.value, by, axis=-2))}  # type: ignore[misc]
    if spec.sinks:
        yield "the sink's column stands in front, and the last one is cut off", {Stage.MIX: _cut_off_behind}


def _cut_off_behind(run: Run) -> Run:
    of_sink = 1 - run.xp.sum(run.weights, axis=-1, keepdims=True)
    return _mixed(run, run.xp.concat([of_sink, run.weights[..., :-1]], axis=-1), run.value)


@fault(
    "weights-transposed",
    Stage.MIX,
    title="the weights are transposed before they are applied",
    explanation=(
        "Row i of the weights says what query i takes from each key. Transposed, row i says what each query takes "
        "from key i, so tokens give where they should receive. Under a causal mask the last row sees only itself, "
        "and earlier rows see later tokens. Every row is wrong."
    ),
    repair="context = attn_weights @ value  # attn_weights is (query, key)",
    commonness=1,
)
def weights_transposed(spec: AttentionSpec) -> Ways:
    """``sum_i w_ij v_i``."""

    def transposed(run: Run) -> Run:
        query_len, key_len = run.inputs.lengths
        unless(query_len != key_len, "weights that are not square can't be transposed")
        return _mixed(run, run.xp.matrix_transpose(run.weights), run.value)

    yield {Stage.MIX: transposed}


@fault(
    "weights-averaged-over-heads",
    Stage.MIX,
    title="all heads use the mean of their weights",
    explanation=(
        "Each head has weights of its own; nn.MultiheadAttention returns their mean for looking at, not for use. "
        "Every row with more than one visible key is wrong in every head, since no head can look where it wants to."
    ),
    repair="attn_output, attn_weights = attn(x, x, x, average_attn_weights=False)",
    needs=[SEVERAL_HEADS],
    commonness=1,
)
def weights_averaged_over_heads(spec: AttentionSpec) -> Ways:
    """``sum_j mean_h(w_hij) v_hj``."""

    def averaged(run: Run) -> Run:
        weights = run.xp.mean(run.weights, axis=1, keepdims=True)
        return _mixed(run, run.xp.broadcast_to(weights, run.weights.shape), run.value)

    if spec.num_heads > 1:
        yield {Stage.MIX: averaged}


def _multiplied(factor: float) -> Replacements:
    return {Stage.MIX: lambda run: (done := mix(run)).but(context=done.context * factor)}


def _factor_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    return f"the context is multiplied by {named(value, factor_names(spec, inputs))}"


@fault(
    "quantised-scale",
    Stage.MIX,
    title="the whole context is multiplied by a constant",
    explanation=(
        "Every context vector has the right direction and the wrong length, by one and the same factor: the scale "
        "of a quantised value is dropped or applied twice, or a division meant for the scores is done here. Every "
        "row and head is wrong."
    ),
    repair="context = attn_weights @ (value_int8 * value_scale)",
    families=[Family(_multiplied, (2.0, 0.5, 0.1, 10.0, 0.01, 100.0, -1.0), _factor_note)],
    commonness=1,
)
def quantised_scale(spec: AttentionSpec) -> Ways:
    """``f * sum_j w_ij v_j``."""
    factors = {"2": 2.0, "1/2": 0.5}
    if spec.num_heads > 1:
        factors |= {"num_heads": float(spec.num_heads), "1/num_heads": 1 / spec.num_heads}
    for note, factor in factors.items():
        yield f"the context is multiplied by {note}", _multiplied(factor)
