"""Faults of the backward pass between the weights and the scores: scale, softcap, bias, mask, softmax, sinks."""

from __future__ import annotations

import math
from collections.abc import Callable

from qkv.faults.fault import Need
from qkv.faults.gradient import BackwardWays, after, before, changed_in, gradient_fault, times
from qkv.faults.masking import without
from qkv.faults.needs import CAUSAL, MASK, SINKS, SOFTCAP
from qkv.faults.replacing import fitting, impossible
from qkv.masks import Causal, Documents, Everything, Mask, Padding, SlidingWindow
from qkv.oracle import Array, Backward, BackwardReplacements, Run
from qkv.oracle.backward import delta, less_the_mean, summed_to
from qkv.oracle.stages import allowed, softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

# --- scale ------------------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-scale",
    Stage.SCALE,
    title="the scale is missing, or used twice, in the gradient of query or key",
    explanation=(
        "The scores are scale * (query @ key^T), so query and key both get the scale once on the way back. A kernel "
        "that scales the query in advance, or works in powers of two, must still pass that factor on, once to each. "
        "All of dq or dk is off by one factor; dv is right."
    ),
    repair="dq = scale * (ds @ key)\ndk = scale * (ds.transpose(-1, -2) @ query)  # query without the scale",
    commonness=3,
)
def gradient_scale(spec: AttentionSpec) -> BackwardWays:
    """``dq`` or ``dk`` off by ``1/scale``, ``scale`` or a factor of the exponential's base."""
    roles = {"dq and dk": ("query", "key"), "dq": ("query",), "dk": ("key",)}
    factors: dict[str, Callable[[float], float]] = {
        "the scale is missing in {}": lambda scale: 1 / scale,
        "the scale stands twice in {}": lambda scale: scale,
        "log2(e), which belongs to powers of two, is left in {}": lambda scale: 1 / math.log(2),
        "ln(2), which turns powers of two back, is twice in {}": lambda scale: math.log(2),
        "the scale and log2(e) both stand once too often in {}": lambda scale: scale / math.log(2),
        "half of the scale's root is missing in {}": lambda scale: scale**-0.5,
        "the root of the scale stands once too often in {}": lambda scale: scale**0.5,
    }
    for note, factor in factors.items():
        for words, names in roles.items():
            yield note.format(words), {Stage.SCORES: _scaled(factor, names)}


def _scaled(factor: Callable[[float], float], names: tuple[str, ...]) -> Callable[[Backward], Backward]:
    def scaled(back: Backward) -> Backward:
        scale = back.run.spec.scale_for(back.run.query.shape[-1])
        if scale <= 0 or factor(scale) == 1.0:
            raise impossible("the scale is one, or none that has a root")
        return after(Stage.SCORES, times(factor(scale), *names))[Stage.SCORES](back)

    return scaled


# --- softcap and bias -------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-softcap",
    Stage.SOFTCAP,
    title="the derivative of the softcap is missing or wrong",
    explanation=(
        "c * tanh(s / c) rises with the slope 1 - tanh(s / c)^2, which is below one wherever a score is not near zero. "
        "Without that factor, dq and dk are right for small scores and too large for large ones; dv is right."
    ),
    repair="ds = ds * (1 - (capped_scores / cap) ** 2)  # capped_scores before bias and mask",
    needs=[SOFTCAP],
)
def gradient_softcap(spec: AttentionSpec) -> BackwardWays:
    """No derivative, or one of another form."""
    if spec.softcap is None:
        return
    cap = spec.softcap

    def by(slope: Callable[[Run, Array], Array]) -> BackwardReplacements:
        return {
            Stage.SOFTCAP: lambda back: back.but(
                scores=back.scores * slope(back.run, back.run.before[Stage.SOFTCAP].scores)
            )
        }

    yield "it is missing", {Stage.SOFTCAP: lambda back: back}
    yield "1 - tanh for 1 - tanh^2", by(lambda run, x: 1 - run.xp.tanh(x / cap))
    yield "1 - (c tanh)^2 for 1 - tanh^2", by(lambda run, x: 1 - (cap * run.xp.tanh(x / cap)) ** 2)
    yield "the slope is taken at the capped score", by(lambda run, x: 1 - run.xp.tanh(run.xp.tanh(x / cap)) ** 2)
    yield "divided by c once more", by(lambda run, x: (1 - run.xp.tanh(x / cap) ** 2) / cap)
    yield "times c once more", by(lambda run, x: (1 - run.xp.tanh(x / cap) ** 2) * cap)


@gradient_fault(
    "gradient-bias",
    Stage.BIAS,
    title="the gradient of the bias is wrong, or not summed where it was broadcast",
    explanation=(
        "A bias is added to the scores, so its gradient is theirs. An entry that served many scores, because the bias "
        "has an axis of size one for batch, head or query, gets the sum over all of them, not one of them and not "
        "their mean. dq, dk and dv are right."
    ),
    repair="dbias = ds.sum(dim=[axis for axis, size in enumerate(bias.shape) if size == 1], keepdim=True)",
    needs=[Need("no bias handed over", lambda spec, inputs: inputs.bias is not None)],
)
def gradient_bias(spec: AttentionSpec) -> BackwardWays:
    """The first or last of the summed entries, their mean, nothing, or the scale once too often."""

    def of(change: Callable[[Run, Array, Array], Array]) -> BackwardReplacements:
        def changed(back: Backward) -> Backward:
            given = back.run.inputs.bias
            if given is None:
                raise impossible("no bias is handed over")
            return back.done(bias=summed_to(back.run, change(back.run, back.scores, given), given.shape))

        return {Stage.BIAS: changed}

    yield "only the first of those it served", of(lambda run, x, given: _one_of(run, x, given, 0))
    yield "only the last of those it served", of(lambda run, x, given: _one_of(run, x, given, -1))
    yield "the mean for the sum", of(lambda run, x, given: x * math.prod(given.shape) / math.prod(x.shape))
    yield "nothing comes back", of(lambda run, x, given: 0 * x)
    yield "the scale is in it", of(lambda run, x, given: x * run.spec.scale_for(run.query.shape[-1]))


def _one_of(run: Run, scores: Array, given: Array, place: int) -> Array:
    """The gradient of the scores, only one of those along each axis that the bias was broadcast over."""
    for axis, size in enumerate((1,) * (scores.ndim - given.ndim) + tuple(given.shape)):
        if size == 1:
            there = run.xp.arange(scores.shape[axis]) == place % scores.shape[axis]
            scores = scores * run.xp.reshape(run.xp.astype(there, scores.dtype), (-1, *(1,) * (scores.ndim - axis - 1)))
    return scores


# --- mask -------------------------------------------------------------------------------------------------------------

HOW = {
    "with the row sums of the forward pass": (False, False),
    "with row sums of their own": (True, False),
    "with row sums and outputs of their own": (True, True),
}
"""How weights are made anew on the way back: whether each row is summed anew, and whether ``o`` is made from them."""


def recomputed(back: Backward, before_softmax: Run, own_sum: bool, own_output: bool) -> Backward:
    """The backward pass gone on with weights that are made anew from other scores."""
    run, xp = back.run, back.run.xp
    scores = fitting(run.before[Stage.SOFTMAX].scores, before_softmax.scores)
    weights = softmax(before_softmax.but(inputs=run.inputs, spec=run.spec)).weights
    if not own_sum:
        weights = xp.exp(scores - log_sums(run))
    context = xp.matmul(weights, run.value) if own_output else run.before[Stage.MERGE].context
    changed = {Stage.SOFTMAX: before_softmax, Stage.MERGE: run.before[Stage.MERGE].but(context=context)}
    anew = run.but(weights=weights, may_attend=before_softmax.may_attend, before={**run.before, **changed})
    return back.but(run=anew)


def log_sums(run: Run) -> Array:
    """The logarithm of each row's sum in the forward pass, which kernels keep for the way back."""
    scores, xp = run.before[Stage.SOFTMAX].scores, run.xp
    top = xp.max(scores, axis=-1, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    total = xp.sum(xp.exp(scores - top), axis=-1, keepdims=True)
    if run.spec.sinks and run.inputs.sinks is not None:
        total = total + xp.exp(xp.reshape(run.inputs.sinks, (1, -1, 1, 1)) - top)
    return xp.log(total) + top


def masked_anew(may_attend: Callable[[Run], Array], own_sum: bool, own_output: bool) -> BackwardReplacements:
    """The way back with weights made anew under another mask."""

    def change(back: Backward) -> Backward:
        given = back.run.before[Stage.MASK]
        kept = given.xp.broadcast_to(may_attend(given), given.scores.shape)
        hidden = given.xp.where(kept, given.scores, given.array(-float("inf")))
        return recomputed(back, given.but(scores=hidden, may_attend=kept), own_sum, own_output)

    return before(Stage.MIX, change)


def _allowed_by(mask: Mask | None, *, padding: bool = True) -> Callable[[Run], Array]:
    """Who may attend to whom by another mask than the spec's."""

    def kept(run: Run) -> Array:
        inputs = run.inputs if padding else run.inputs.but(is_token=None)
        return allowed(run.but(spec=run.spec if mask is None else run.spec.but(mask=mask), inputs=inputs))

    return kept


@gradient_fault(
    "gradient-mask-missing",
    Stage.MASK,
    title="the backward pass makes the weights anew without the mask",
    explanation=(
        "A fused kernel doesn't keep the weights; its backward pass makes them anew from the scores, and must hide the "
        "same keys. Otherwise hidden keys get gradients: dk and dv of tokens that no query should see, and dq of every "
        "row with hidden keys. The output is right, so only a test of gradients shows it."
    ),
    repair="p = torch.exp(attn_scores - lse)\np = p.masked_fill(hidden, 0.0)  # the mask of the forward pass",
    needs=[MASK],
    commonness=3,
)
def gradient_mask_missing(spec: AttentionSpec) -> BackwardWays:
    """``exp(s - lse)`` without the mask, or without one part of it."""
    missing: dict[str, Callable[[Run], Array]] = {"no key is hidden": lambda run: run.positions().everywhere}
    for kind, word in ((Causal, "causal mask"), (SlidingWindow, "window"), (Documents, "documents")):
        if spec.masks(kind):
            missing[f"the {word} is missing"] = _allowed_by(without(spec.mask, kind))
    missing["the padding is missing"] = _allowed_by(without(spec.mask, Padding), padding=False)
    missing["the mask handed over is missing"] = lambda run: allowed(run.but(inputs=run.inputs.but(may_attend=None)))
    if spec.mask != Everything():
        missing["the spec's mask is missing"] = _allowed_by(Everything())
    for note, kept in missing.items():
        for how, (own_sum, own_output) in HOW.items():
            yield f"{note}, {how}", masked_anew(kept, own_sum, own_output)


@gradient_fault(
    "gradient-mask-moved",
    Stage.MASK,
    title="the backward pass masks from another corner than the forward pass",
    explanation=(
        "With fewer queries than keys, a causal mask may start at the top left or end at the bottom right. Forward and "
        "backward must agree, or the backward pass hides keys that were seen and gives gradients to keys that were "
        "not. With as many queries as keys all is right, unless the diagonal itself is counted otherwise."
    ),
    repair="may_attend = key_index <= query_index + (key_len - query_len)  # in both passes",
    needs=[CAUSAL],
)
def gradient_mask_moved(spec: AttentionSpec) -> BackwardWays:
    """The other causal corner, or one diagonal too many or too few."""
    if not spec.masks(Causal):
        return
    for corner in ("top_left", "bottom_right"):
        moved = _moved(lambda run, corner=corner: run.spec.but(query_offset=corner).offset_for(*run.inputs.lengths))  # type: ignore[misc]
        for how, (own_sum, own_output) in HOW.items():
            yield f"the corner is {corner.replace('_', ' ')}, {how}", masked_anew(moved, own_sum, own_output)
    for by, words in ((1, "one key too many"), (-1, "one key too few")):
        moved = _moved(lambda run, by=by: run.spec.offset_for(*run.inputs.lengths) + by)  # type: ignore[misc]
        for how, (own_sum, own_output) in HOW.items():
            yield f"each row sees {words}, {how}", masked_anew(moved, own_sum, own_output)


def _moved(offset: Callable[[Run], int]) -> Callable[[Run], Array]:
    return lambda run: allowed(run.but(spec=run.spec.but(query_offset=offset(run))))


# --- softmax ----------------------------------------------------------------------------------------------------------


@gradient_fault(
    "gradient-softmax-delta-missing",
    Stage.SOFTMAX,
    title="the backward pass of softmax leaves out what all weights of a row share",
    explanation=(
        "The weights of a row sum to one: if one rises, the others fall. So the gradient of a score is weight * (dp - "
        "delta), where delta = sum(weight * dp) over the row. Without delta dq and dk are wrong in every row that sees "
        "more than one key, and in those that see one key they are not zero; dv is right."
    ),
    repair="delta = (d_out * out).sum(-1, keepdim=True)  # the same as (p * dp).sum(-1)\nds = p * (dp - delta)",
    commonness=3,
)
def gradient_softmax_delta_missing(spec: AttentionSpec) -> BackwardWays:
    """``ds = p * dp``."""
    yield "", {Stage.SOFTMAX: lambda back: less_the_mean(back, 0 * delta(back))}


def _of_each_weight(back: Backward) -> Array:
    return back.run.weights * back.weights


@gradient_fault(
    "gradient-softmax-delta-wrong",
    Stage.SOFTMAX,
    title="delta, which softmax's backward pass takes off a row, is made from the wrong numbers",
    explanation=(
        "delta is one number for each query of each head: the sum of d_out * out over the channels, which equals the "
        "sum of p * dp over the keys. Made from another tensor, over another axis, or for another row, it leaves dq "
        "and dk wrong in nearly every row; dv is right."
    ),
    repair="delta = (d_out * out).sum(-1, keepdim=True)  # out as it leaves the heads, before out_proj",
)
def gradient_softmax_delta_wrong(spec: AttentionSpec) -> BackwardWays:
    """Other sums for ``sum(do * o)``."""

    def with_delta(of: Callable[[Backward], Array]) -> BackwardReplacements:
        return {Stage.SOFTMAX: lambda back: less_the_mean(back, of(back))}

    def total(back: Backward, x: Array, axis: int = -1) -> Array:
        return back.run.xp.sum(x, axis=axis, keepdims=True)

    yield "d_out * d_out is summed", with_delta(lambda back: total(back, back.context * back.context))
    yield "dp is summed without the weights", with_delta(lambda back: total(back, back.weights))
    yield "the mean over the keys, not the sum", with_delta(lambda back: delta(back) / back.weights.shape[-1])
    yield "the mean over the channels, not the sum", with_delta(lambda back: delta(back) / back.context.shape[-1])
    yield "the mean of dp over the keys", with_delta(lambda b: total(b, b.weights) / b.weights.shape[-1])
    yield "summed over the queries", with_delta(lambda back: total(back, _of_each_weight(back), -2))
    yield "summed over the heads too", with_delta(lambda back: total(back, delta(back), 1))
    yield "added, not taken off", with_delta(lambda back: -delta(back))
    yield "the scale is in it", with_delta(lambda b: delta(b) * b.run.spec.scale_for(b.run.query.shape[-1]))
    yield "the first row's for every row", with_delta(lambda b: b.run.xp.zeros_like(delta(b)) + delta(b)[:, :, :1])
    yield "the first head's for every head", with_delta(lambda b: b.run.xp.zeros_like(delta(b)) + delta(b)[:, :1])
    yield "the first sequence's for every one", with_delta(lambda b: b.run.xp.zeros_like(delta(b)) + delta(b)[:1])
    yield "d_out * value is summed", with_delta(lambda b: total(b, b.context * fitting(b.context, b.run.value)))


@gradient_fault(
    "gradient-softmax-diagonal",
    Stage.SOFTMAX,
    title="softmax is differentiated entry by entry, as if it were a sigmoid",
    explanation=(
        "p * (1 - p) is only the diagonal of softmax's Jacobian, diag(p) - p p^T: how a weight changes with its own "
        "score. It changes with every other score of the row too. dq and dk are wrong in every row that sees more than "
        "one key; dv is right."
    ),
    repair="ds = p * (dp - (p * dp).sum(-1, keepdim=True))",
)
def gradient_softmax_diagonal(spec: AttentionSpec) -> BackwardWays:
    """``ds = p * (1 - p) * dp``."""
    yield "", {Stage.SOFTMAX: lambda back: less_the_mean(back, _of_each_weight(back))}


@gradient_fault(
    "gradient-sinks",
    Stage.SOFTMAX,
    title="the gradient of the sinks is missing or wrong",
    explanation=(
        "A sink has a score and no value: its gradient is -(weight of the sink) * delta, summed over all queries of "
        "all sequences. dq, dk and dv can be right without it, so a learned sink never moves, or moves the wrong way."
    ),
    repair="d_sinks = -(torch.exp(sinks - lse) * delta).sum(dim=(0, 2))",
    needs=[SINKS],
)
def gradient_sinks(spec: AttentionSpec) -> BackwardWays:
    """Nothing, the other sign, one sequence's, the mean of all, or without the sink's weight."""
    if not spec.sinks:
        return

    def by(change: Callable[[Backward, Array], Array]) -> BackwardReplacements:
        def changed(back: Backward) -> Backward:
            left = 1.0 - back.run.xp.sum(back.run.weights, axis=-1)
            each_row = -left * delta(back)[..., 0]
            return changed_in(less_the_mean(back, delta(back)), "sinks", change(back, each_row))

        return {Stage.SOFTMAX: changed}

    def total(back: Backward, rows: Array) -> Array:
        return back.run.xp.sum(rows, axis=(0, 2))

    yield "nothing comes back", by(lambda back, rows: 0 * total(back, rows))
    yield "with the other sign", by(lambda back, rows: -total(back, rows))
    yield "only of the first sequence", by(lambda back, rows: total(back, rows[:1]))
    yield "only of the last sequence", by(lambda back, rows: total(back, rows[-1:]))
    yield "the mean over the sequences", by(lambda back, rows: total(back, rows) / rows.shape[0])
    yield "without the sink's own weight", by(lambda back, rows: -total(back, delta(back)[..., 0]))
