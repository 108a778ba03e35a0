"""The stages of attention, each as its definition. Slow where that is clearer; this file says what *right* means.

Every function takes the run so far and gives the run after its stage. Shapes are named in :class:`qkv.oracle.run.Run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qkv.errors import ShapeError
from qkv.oracle.inputs import Array, Linear, Norm
from qkv.oracle.run import Run, StageFunction
from qkv.positions import rotate
from qkv.vocabulary import Stage


def linear(run: Run, x: Array, projection: Linear) -> Array:
    """``x @ weight.T + bias``."""
    projected = run.xp.matmul(x, run.xp.permute_dims(projection.weight, (1, 0)))
    return projected if projection.bias is None else projected + projection.bias


def normalise(run: Run, x: Array, norm: Norm) -> Array:
    """``x`` normalised over its last axis."""
    xp = run.xp
    if norm.kind == "layer":
        x = x - xp.mean(x, axis=-1, keepdims=True)
    square = xp.sum(x * x, axis=-1, keepdims=True)
    if norm.kind == "l2":
        x = x / xp.where(square > norm.eps**2, xp.sqrt(square), norm.eps * xp.ones_like(square))
    else:
        x = x / xp.sqrt(square / x.shape[-1] + norm.eps)
    if norm.weight is not None:
        x = x * (1 + norm.weight if norm.plus_one else norm.weight)
    return x if norm.bias is None else x + norm.bias


def split_heads(run: Run, x: Array, num_heads: int) -> Array:
    """``(batch, token, head*dim)`` to ``(batch, head, token, dim)``."""
    batch, length, width = x.shape
    return run.xp.permute_dims(run.xp.reshape(x, (batch, length, num_heads, width // num_heads)), (0, 2, 1, 3))


def merge_heads(run: Run, x: Array) -> Array:
    """``(batch, head, token, dim)`` to ``(batch, token, head*dim)``: the heads side by side."""
    batch, heads, length, dim = x.shape
    return run.xp.reshape(run.xp.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * dim))


def share_heads(run: Run, x: Array) -> Array:
    """Each key/value head repeated for the query heads that read it: query head ``h`` reads ``h // group_size``."""
    return run.xp.repeat(x, run.spec.group_size, axis=1)


def project(run: Run) -> Run:
    """``x`` to query, key and value; normalised over their whole width where the spec says so."""
    inputs, parameters = run.inputs, run.inputs.parameters
    if inputs.query is not None:
        return run.but(query=inputs.query, key=inputs.key, value=inputs.value)
    if parameters is None:
        raise ShapeError("the oracle was given x without parameters: pass Inputs(x=…, parameters=Parameters(…))")
    source = inputs.x if inputs.source is None else inputs.source
    value_source = source if inputs.value_source is None else inputs.value_source
    return run.but(
        query=linear(run, inputs.x, parameters.q_proj),
        key=linear(run, source, parameters.k_proj),
        value=linear(run, value_source, parameters.v_proj),
    )


def heads(run: Run) -> Run:
    """Split into heads, normalised where the spec says so; key and value shared by their group of query heads."""
    spec, query, key, value = run.spec, run.query, run.key, run.value
    if spec.qk_norm == "width":
        if query.ndim == 4:  # handed over in heads already
            query, key, value = (merge_heads(run, x) for x in (query, key, value))
        query, key = _normalised(run, query, key)
    if query.ndim == 3:
        query = split_heads(run, query, spec.num_heads)
        key, value = split_heads(run, key, spec.kv_heads), split_heads(run, value, spec.kv_heads)
    if spec.qk_norm == "head":
        query, key = _normalised(run, query, key)
    return run.but(query=query, key=share_heads(run, key), value=share_heads(run, value))


def _normalised(run: Run, query: Array, key: Array) -> tuple[Array, Array]:
    parameters = run.inputs.parameters
    q_norm = parameters.q_norm if parameters and parameters.q_norm else Norm()
    k_norm = parameters.k_norm if parameters and parameters.k_norm else Norm()
    return normalise(run, query, q_norm), normalise(run, key, k_norm)


def position(run: Run) -> Run:
    """Rope on query and key, at their absolute positions."""
    rope = run.spec.rope
    if rope is None:
        return run
    frequencies = run.array(rope.frequencies(run.query.shape[-1]))
    query_at, key_at = (run.array(at) for at in run.token_positions())
    return run.but(
        query=rotate(run.query, query_at, frequencies, rope.pairing, rope.attention_factor),
        key=rotate(run.key, key_at, frequencies, rope.pairing, rope.attention_factor),
    )


def scores(run: Run) -> Run:
    """``query @ key^T``: one row per query, one column per key."""
    return run.but(scores=run.xp.matmul(run.query, run.xp.matrix_transpose(run.key)))


def scale(run: Run) -> Run:
    """Times the scale, ``1/sqrt(head_dim)`` if the spec names no other."""
    return run.but(scores=run.scores * run.spec.scale_for(run.query.shape[-1]))


def softcap(run: Run) -> Run:
    """``c * tanh(scores / c)``: no score beyond ``c``."""
    cap = run.spec.softcap
    return run if cap is None else run.but(scores=cap * run.xp.tanh(run.scores / cap))


def additive_bias(run: Run) -> Array | None:
    """The sum of everything that is added to the scores; None where nothing is."""
    spec, total = run.spec, run.inputs.bias
    if spec.alibi is not None or spec.relative_bias is not None:
        query, key = run.token_positions()
        distance = key[None, :] - query[:, None]
        if spec.alibi is not None:
            slopes = run.array(spec.alibi.slopes_for(spec.num_heads))
            ahead = distance if spec.alibi.signed else -run.xp.abs(distance)
            alibi = slopes[:, None, None] * run.array(ahead)
            total = alibi if total is None else total + alibi
        if spec.relative_bias is not None:
            reach = spec.relative_bias.reach
            table = run.array(spec.relative_bias.table)
            index = run.xp.clip(distance, -reach, reach) + reach
            relative = run.xp.reshape(
                run.xp.take(table, run.xp.reshape(index, (-1,)), axis=1), (spec.num_heads, *index.shape)
            )
            total = relative if total is None else total + relative
    return total


def bias(run: Run) -> Run:
    """Plus alibi, relative bias and any bias that came with the call."""
    added = additive_bias(run)
    return run if added is None else run.but(scores=run.scores + added)


def allowed(run: Run) -> Array:
    """Where the spec's mask, the call's own and the padding all allow the key, ``(batch, head, query, key)``."""
    at = run.positions()
    may_attend = run.spec.mask.allows(at)
    if at.key_is_token is not None:
        may_attend = may_attend & at.key_is_token
    if run.inputs.may_attend is not None:
        may_attend = may_attend & run.inputs.may_attend
    return run.xp.broadcast_to(may_attend, run.scores.shape)


def mask(run: Run) -> Run:
    """Keys that a query may not attend to get the score minus infinity, so that no weight is left for them."""
    may_attend = allowed(run)
    hidden = run.array(-float("inf"))
    return run.but(may_attend=may_attend, scores=run.xp.where(may_attend, run.scores, hidden))


def softmax(run: Run) -> Run:
    """Scores to weights: over the keys of each query they sum to one (with a sink, to less)."""
    return run.but(weights=weights_from(run, run.scores))


def weights_from(run: Run, masked_scores: Array) -> Array:
    """Softmax of each row, with the spec's sinks and its rule for a row without any key."""
    xp = run.xp
    top = xp.max(masked_scores, axis=-1, keepdims=True)
    sinks = run.inputs.sinks if run.spec.sinks else None
    if sinks is not None:
        sinks = xp.reshape(sinks, (1, -1, 1, 1))
        top = xp.maximum(top, sinks)
    finite_top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    shares = xp.exp(masked_scores - finite_top)
    total = xp.sum(shares, axis=-1, keepdims=True)
    if sinks is not None:
        total = total + xp.exp(sinks - finite_top)
    empty = top == -float("inf")
    weights = shares / xp.where(empty, xp.ones_like(total), total)
    return xp.where(empty, empty_row_weight(run), weights)


def empty_row_weight(run: Run) -> Array:
    """The weight of every key in a row that may attend to nothing."""
    key_len = run.scores.shape[-1]
    return run.array({"zero": 0.0, "nan": float("nan"), "uniform": 1.0 / max(key_len, 1)}[run.spec.empty_row])


def dropout(run: Run) -> Run:
    """Nothing: the oracle evaluates, and dropout belongs to training."""
    return run


def mix(run: Run) -> Run:
    """``weights @ value``: one row of weights, one context vector."""
    return run.but(context=run.xp.matmul(run.weights, run.value))


def merge(run: Run) -> Run:
    """The heads' context vectors side by side."""
    return run.but(context=merge_heads(run, run.context))


def output(run: Run) -> Run:
    """Through the output projection, where there is one."""
    parameters = run.inputs.parameters
    if parameters is None or parameters.out_proj is None or not run.spec.out_proj:
        return run.but(output=run.context)
    return run.but(output=linear(run, run.context, parameters.out_proj))


STAGES: Mapping[Stage, StageFunction] = MappingProxyType(
    {
        Stage.PROJECT: project,
        Stage.HEADS: heads,
        Stage.POSITION: position,
        Stage.SCORES: scores,
        Stage.SCALE: scale,
        Stage.SOFTCAP: softcap,
        Stage.BIAS: bias,
        Stage.MASK: mask,
        Stage.SOFTMAX: softmax,
        Stage.DROPOUT: dropout,
        Stage.MIX: mix,
        Stage.MERGE: merge,
        Stage.OUTPUT: output,
    }
)
"""What each stage does when it is right."""
