"""The backward pass of attention: what each stage passes back, as its definition; the last stage comes first.

Every function takes the gradients of what its stage gave and adds those of what the stage was given. ``stages.py`` says
what the stages do, this file what *right* means for their gradients. No automatic differentiation is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from qkv.oracle import stages
from qkv.oracle.inputs import Array, Linear, Norm
from qkv.oracle.run import Run
from qkv.positions import rotate
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class Backward:
    """The gradients made so far: of ``sum(output * cotangent)``, by every tensor of a finished run.

    Attributes:
        run: the finished run.
        output: gradient of the run's output, which is the cotangent, ``(batch, query, width)``.
        context: of each head's context vectors once ``merge`` is passed, ``(batch, head, query, value_dim)``.
        weights: ``(batch, head, query, key)``.
        scores: likewise; from ``softmax`` on back to ``scores``.
        query: like the run's query of the stage that was passed last.
        key: likewise; one for each query head until ``heads`` is passed.
        value: likewise.
        of: the gradients that are done, by the name of what they are of: ``query``, ``bias``, ``q_proj.weight``.
    """

    run: Run
    output: Array
    context: Array = None
    weights: Array = None
    scores: Array = None
    query: Array = None
    key: Array = None
    value: Array = None
    of: Mapping[str, Array] = field(default_factory=dict)

    def but(self, **changes: Any) -> Backward:
        """The same with some gradients replaced."""
        # As in Run.but: dataclasses.replace is slow, and the diagnosis does this often.
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def done(self, **gradients: Array) -> Backward:
        """The same with more gradients that are done; a name's second underscore stands for its dot."""
        named = {name.replace("__", "."): gradient for name, gradient in gradients.items() if gradient is not None}
        return self.but(of={**self.of, **named})


BackwardStage = Callable[[Backward], Backward]
"""What a stage is on the way back."""

BackwardReplacements = Mapping[Stage, BackwardStage]
"""Some stages passed another way. A fault of gradients is one of these."""


def run_backward(run: Run, cotangent: Array, replacements: BackwardReplacements = MappingProxyType({})) -> Backward:
    """The backward pass through a finished run.

    Args:
        run: what ``run_stages`` gave.
        cotangent: the gradient of the output, ``(batch, query, width)``.
        replacements: stages passed another way than the right one.
    """
    back = Backward(run, cotangent)
    for stage in reversed(list(BACKWARD)):
        back = replacements.get(stage, BACKWARD[stage])(back)
    return back


def gradients_of(run: Run, cotangent: Array) -> dict[str, Array]:
    """The gradients of ``sum(output * cotangent)``, each of the shape of what it is of.

    Args:
        run: what ``run_stages`` gave.
        cotangent: the gradient of the output, ``(batch, query, width)``.

    Returns:
        By name: ``query``, ``key`` and ``value``, or ``x``, ``source``, ``value_source`` and the projections' arrays
        (``q_proj.weight``, ``out_proj.bias``); ``q_norm.weight``, ``bias`` and ``sinks`` where there are such.
    """
    return dict(run_backward(run, cotangent).of)


def output(back: Backward) -> Backward:
    """Back through the output projection, where there is one."""
    parameters = back.run.inputs.parameters
    if parameters is None or parameters.out_proj is None or not back.run.spec.out_proj:
        return back.but(context=back.output)
    context, weight, bias = linear(back.run, back.output, back.run.before[Stage.OUTPUT].context, parameters.out_proj)
    return back.but(context=context).done(out_proj__weight=weight, out_proj__bias=bias)


def merge(back: Backward) -> Backward:
    """Each head's part of the merged gradient."""
    return back.but(context=stages.split_heads(back.run, back.context, back.run.spec.num_heads))


def mix(back: Backward) -> Backward:
    """A value gets what its contexts got, by weight; a weight gets how well its value fits that: ``do @ value^T``."""
    xp, run = back.run.xp, back.run
    return back.but(
        weights=xp.matmul(back.context, xp.matrix_transpose(run.value)),
        value=xp.matmul(xp.matrix_transpose(run.weights), back.context),
    )


def dropout(back: Backward) -> Backward:
    """Nothing: there is none in evaluation."""
    return back


def softmax(back: Backward) -> Backward:
    """``weight * (gradient of the weight - delta)``, where the row's delta is ``sum(do * o)``.

    A row's weights sum to one, so only what a weight's gradient has above the row's mean counts; by weight, that mean
    is ``sum_j w_j dw_j = do · sum_j w_j v_j = do · o`` (Dao et al. 2022, "FlashAttention", section B.2).
    """
    return less_the_mean(back, delta(back))


def less_the_mean(back: Backward, mean: Array) -> Backward:
    """The gradients of scores and sinks, where ``mean`` is what is taken off the gradient of a row's weights."""
    xp = back.run.xp
    scores = back.run.weights * (back.weights - mean)
    empty = xp.max(back.run.before[Stage.SOFTMAX].scores, axis=-1, keepdims=True) == -float("inf")
    back = back.but(scores=xp.where(empty, xp.zeros_like(scores), scores))
    if not back.run.spec.sinks or back.run.inputs.sinks is None:
        return back
    # The sink has the weight that the keys leave, and the value zero.
    left = 1.0 - xp.sum(back.run.weights, axis=-1, keepdims=True)
    return back.done(sinks=-xp.sum(left * mean, axis=(0, 2, 3)))


def delta(back: Backward) -> Array:
    """The sum of ``do * o`` over the channels, ``(batch, head, query, 1)``."""
    return back.run.xp.sum(back.context * back.run.before[Stage.MERGE].context, axis=-1, keepdims=True)


def mask(back: Backward) -> Backward:
    """Nothing for hidden scores: they were replaced by a constant."""
    xp = back.run.xp
    return back.but(scores=xp.where(back.run.may_attend, back.scores, xp.zeros_like(back.scores)))


def bias(back: Backward) -> Backward:
    """The scores' gradient is the bias's too, summed where one entry of the bias served several scores."""
    given = back.run.inputs.bias
    return back if given is None else back.done(bias=summed_to(back.run, back.scores, given.shape))


def softcap(back: Backward) -> Backward:
    """Times ``1 - tanh(scores / c)^2``: a score near the cap hardly moves.

    The tanh is the capped score over ``c``, as libraries have it: where that is rounded, so is the slope near the cap.
    """
    cap = back.run.spec.softcap
    if cap is None:
        return back
    return back.but(scores=back.scores * (1 - (back.run.before[Stage.BIAS].scores / cap) ** 2))


def scale(back: Backward) -> Backward:
    """Times the scale, once, on the way to query and key."""
    return back.but(scores=back.scores * back.run.spec.scale_for(back.run.query.shape[-1]))


def scores(back: Backward) -> Backward:
    """A query gets the sum of its keys, a key the sum of its queries, each by the gradient of their score."""
    xp, given = back.run.xp, back.run.before[Stage.SCORES]
    return back.but(
        query=xp.matmul(back.scores, given.key),
        key=xp.matmul(xp.matrix_transpose(back.scores), given.query),
    )


def position(back: Backward) -> Backward:
    """Turned back: by the same angle the other way."""
    run, rope = back.run, back.run.spec.rope
    if rope is None:
        return back
    frequencies = run.array(rope.frequencies(back.query.shape[-1]))
    query_at, key_at = (run.array(at) for at in run.token_positions())
    return back.but(
        query=rotate(back.query, -query_at, frequencies, rope.pairing, rope.attention_factor),
        key=rotate(back.key, -key_at, frequencies, rope.pairing, rope.attention_factor),
    )


def heads(back: Backward) -> Backward:
    """Key and value get the sum over the query heads that read them; then back through the norms and the split."""
    run, given, norm_over = back.run, back.run.before[Stage.HEADS], back.run.spec.qk_norm
    back = back.but(key=group_sums(run, back.key), value=group_sums(run, back.value))
    if norm_over == "head":
        back = normalised(back, *_in_heads(run, given))
    if given.query.ndim == 3 or norm_over == "width":
        back = back.but(**{name: stages.merge_heads(run, getattr(back, name)) for name in ("query", "key", "value")})
    if norm_over == "width":
        back = normalised(back, *_side_by_side(run, given))
    return back if back.query.ndim == given.query.ndim else back.but(**_split(run, back))


def _in_heads(run: Run, given: Run) -> tuple[Array, Array]:
    if given.query.ndim == 4:
        return given.query, given.key
    return stages.split_heads(run, given.query, run.spec.num_heads), stages.split_heads(
        run, given.key, run.spec.kv_heads
    )


def _side_by_side(run: Run, given: Run) -> tuple[Array, Array]:
    if given.query.ndim == 3:
        return given.query, given.key
    return stages.merge_heads(run, given.query), stages.merge_heads(run, given.key)


def _split(run: Run, back: Backward) -> dict[str, Array]:
    counts = {"query": run.spec.num_heads, "key": run.spec.kv_heads, "value": run.spec.kv_heads}
    return {name: stages.split_heads(run, getattr(back, name), count) for name, count in counts.items()}


def group_sums(run: Run, gradient: Array) -> Array:
    """The sum over each group of query heads, ``(batch, num_kv_heads, key, dim)``."""
    batch, num_heads, length, dim = gradient.shape
    group = run.spec.group_size
    return run.xp.sum(run.xp.reshape(gradient, (batch, num_heads // group, group, length, dim)), axis=2)


def normalised(back: Backward, query: Array, key: Array) -> Backward:
    """Back through the norms of query and key, which were given these."""
    parameters = back.run.inputs.parameters
    q_norm = parameters.q_norm if parameters and parameters.q_norm else Norm()
    k_norm = parameters.k_norm if parameters and parameters.k_norm else Norm()
    d_query, q_weight, q_bias = norm(back.run, back.query, query, q_norm)
    d_key, k_weight, k_bias = norm(back.run, back.key, key, k_norm)
    return back.but(query=d_query, key=d_key).done(
        q_norm__weight=q_weight, q_norm__bias=q_bias, k_norm__weight=k_weight, k_norm__bias=k_bias
    )


def norm(run: Run, gradient: Array, x: Array, by: Norm) -> tuple[Array, Array | None, Array | None]:
    """The gradients of what was normalised, of the norm's weight and of its bias.

    The length of ``x`` was divided out, so what points along ``x`` changes nothing and is taken off.
    """
    xp = run.xp
    if by.kind == "layer":
        x = x - xp.mean(x, axis=-1, keepdims=True)
    square = xp.sum(x * x, axis=-1, keepdims=True)
    if by.kind == "l2":
        length = xp.where(square > by.eps**2, xp.sqrt(square), by.eps * xp.ones_like(square))
        share = xp.where(
            square > by.eps**2, xp.ones_like(square), xp.zeros_like(square)
        )  # a constant divides below eps
    else:
        length = xp.sqrt(square / x.shape[-1] + by.eps)
        share = xp.ones_like(square) / x.shape[-1]
    unit = x / length
    weight = None if by.weight is None else summed_to(run, gradient * unit, by.weight.shape)
    bias = None if by.bias is None else summed_to(run, gradient, by.bias.shape)
    inner = gradient if by.weight is None else gradient * (1 + by.weight if by.plus_one else by.weight)
    inner = (inner - unit * share * xp.sum(inner * unit, axis=-1, keepdims=True)) / length
    if by.kind == "layer":
        inner = inner - xp.mean(inner, axis=-1, keepdims=True)
    return inner, weight, bias


def project(back: Backward) -> Backward:
    """Back through the projections to the tokens, which get the sum over all that was made of them."""
    run, inputs, parameters = back.run, back.run.inputs, back.run.inputs.parameters
    if inputs.query is not None or parameters is None:
        return back.done(query=back.query, key=back.key, value=back.value)
    source = inputs.x if inputs.source is None else inputs.source
    value_source = source if inputs.value_source is None else inputs.value_source
    x, q_weight, q_bias = linear(run, back.query, inputs.x, parameters.q_proj)
    of_key, k_weight, k_bias = linear(run, back.key, source, parameters.k_proj)
    of_value, v_weight, v_bias = linear(run, back.value, value_source, parameters.v_proj)
    back = back.done(
        q_proj__weight=q_weight, q_proj__bias=q_bias, k_proj__weight=k_weight, k_proj__bias=k_bias,
        v_proj__weight=v_weight, v_proj__bias=v_bias,
    )  # fmt: skip
    if inputs.value_source is None:
        of_key, of_value = of_key + of_value, None
    if inputs.source is None:
        x, of_key = x + of_key, None
    return back.done(x=x, source=of_key, value_source=of_value)


def linear(run: Run, gradient: Array, x: Array, projection: Linear) -> tuple[Array, Array, Array | None]:
    """The gradients of what was projected, of the weight and of the bias."""
    xp = run.xp
    by_row, rows = xp.reshape(gradient, (-1, gradient.shape[-1])), xp.reshape(x, (-1, x.shape[-1]))
    bias = None if projection.bias is None else xp.sum(by_row, axis=0)
    return xp.matmul(gradient, projection.weight), xp.matmul(xp.permute_dims(by_row, (1, 0)), rows), bias


def summed_to(run: Run, gradient: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of that shape that was broadcast: the sum over all the places where an entry went."""
    first = gradient.ndim - len(shape)
    repeated = [first + axis for axis, size in enumerate(shape) if size == 1]
    return run.xp.reshape(run.xp.sum(gradient, axis=(*range(first), *repeated)), shape)


BACKWARD: Mapping[Stage, BackwardStage] = MappingProxyType(
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
"""What each stage passes back when it is right."""
