"""Faults of the softcap ``c * tanh(scores / c)``: left out, at the wrong place, or with the wrong number."""

from __future__ import annotations

from qkv.faults.constants import named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import BIAS, MASK, SOFTCAP
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import additive_bias, allowed
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _capped(run: Run, scores: Array, cap: float) -> Array:
    return cap * run.xp.tanh(scores / cap)


def _nothing(run: Run) -> Run:
    return run


@fault(
    "softcap-missing",
    Stage.SOFTCAP,
    title="the softcap is left out",
    explanation=(
        "This attention bends large scores with c * tanh(scores / c), so that none goes beyond c. Without it small "
        "scores stay nearly as they were and large ones are too large: rows with large scores are too sharp, and "
        "the difference is easily missed on small random inputs. Rows with a single visible key are right."
    ),
    repair="attn_scores = softcap * torch.tanh(attn_scores / softcap)",
    needs=[SOFTCAP],
    commonness=3,
)
def softcap_missing(spec: AttentionSpec) -> Ways:
    """``softmax(a s)`` for ``softmax(c tanh(a s / c))``."""
    if spec.softcap is not None:
        yield {Stage.SOFTCAP: _nothing}


@fault(
    "softcap-after-mask",
    Stage.SOFTCAP,
    title="the softcap comes after the mask and lets hidden keys back in",
    explanation=(
        "A hidden score is minus infinity, and tanh makes -c of it: a finite score, which keeps a weight. Every row "
        "that has hidden keys takes something of them, the more the smaller c is; rows that see every key are "
        "right."
    ),
    repair=(
        "attn_scores = softcap * torch.tanh(attn_scores / softcap)\n"
        "attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))  # the mask comes last"
    ),
    needs=[SOFTCAP, MASK],
    commonness=2,
)
def softcap_after_mask(spec: AttentionSpec) -> Ways:
    """``c tanh((a s + b + m) / c)`` with ``m`` minus infinity where a key is hidden: its score is ``-c``."""
    cap = spec.softcap
    if cap is None:
        return

    def mask_then_cap(run: Run) -> Run:
        may_attend = allowed(run)
        scores = run.xp.where(may_attend, _capped(run, run.scores, cap), run.array(-cap))
        return run.but(may_attend=may_attend, scores=scores)

    def cap_then_bias(run: Run) -> Run:
        added = additive_bias(run)
        hidden = run.array(-cap) if added is None else added - cap
        may_attend = allowed(run)
        return run.but(may_attend=may_attend, scores=run.xp.where(may_attend, run.scores, hidden))

    yield "", {Stage.SOFTCAP: _nothing, Stage.MASK: mask_then_cap}
    yield "the bias is added after both", {Stage.MASK: cap_then_bias}


@fault(
    "softcap-after-bias",
    Stage.SOFTCAP,
    title="the softcap also bends the bias",
    explanation=(
        "The softcap belongs to the scores of query and key alone; here the bias is added first and bent with them. "
        "Where score and bias are small together the difference is small; rows with a single visible key are right."
    ),
    repair="attn_scores = softcap * torch.tanh(attn_scores / softcap) + bias",
    needs=[SOFTCAP, BIAS],
    commonness=1,
)
def softcap_after_bias(spec: AttentionSpec) -> Ways:
    """``c tanh((a s + b) / c)`` for ``c tanh(a s / c) + b``."""
    cap = spec.softcap
    if cap is None:
        return

    def bias_then_cap(run: Run) -> Run:
        added = additive_bias(run)
        return run.but(scores=_capped(run, run.scores if added is None else run.scores + added, cap))

    yield {Stage.SOFTCAP: _nothing, Stage.BIAS: bias_then_cap}


@fault(
    "softcap-before-scale",
    Stage.SCALE,
    title="the softcap comes before the scale",
    explanation=(
        "The softcap is meant for scaled scores. On the raw products, which are sqrt(head_dim) times larger, it "
        "cuts much earlier, and the scale then shrinks what is left: the weights are too flat. Rows with a single "
        "visible key are right."
    ),
    repair="attn_scores = softcap * torch.tanh(attn_scores * scale / softcap)",
    needs=[SOFTCAP],
    commonness=2,
)
def softcap_before_scale(spec: AttentionSpec) -> Ways:
    """``a c tanh(s / c)`` for ``c tanh(a s / c)``."""
    cap = spec.softcap
    if cap is None:
        return

    def cap_then_scale(run: Run) -> Run:
        return run.but(scores=_capped(run, run.scores, cap) * run.spec.scale_for(run.query.shape[-1]))

    yield {Stage.SCALE: cap_then_scale, Stage.SOFTCAP: _nothing}


def _with_cap(cap: float) -> Replacements:
    return {Stage.SOFTCAP: lambda run: run.but(scores=_capped(run, run.scores, cap))}


def _cap_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    right = spec.softcap or 1.0
    names = {"2 * softcap": 2 * right, "softcap / 2": right / 2, "1/softcap": 1 / right, "softcap squared": right**2}
    return f"the softcap is {named(abs(value), names)}"


@fault(
    "softcap-other-constant",
    Stage.SOFTCAP,
    title="the softcap has another number or another form",
    explanation=(
        "The softcap divides by c, takes tanh and multiplies by the same c again, so that small scores stay as they "
        "are and none goes beyond c. With another c, or with one of the two steps left out, the scores bend too "
        "early or too late. Rows with a single visible key are right."
    ),
    repair="attn_scores = softcap * torch.tanh(attn_scores / softcap)",
    needs=[SOFTCAP],
    families=[Family(_with_cap, (10.0, 1.0, 30.0, 3.0, 100.0, 0.3, 0.1, 300.0), _cap_note)],
    commonness=2,
)
def softcap_other_constant(spec: AttentionSpec) -> Ways:
    """``c' tanh(s / c')``; ``tanh(s / c)``; ``c tanh(s)``; ``tanh(s)``; or cut off hard at ``c``."""
    cap = spec.softcap
    if cap is None:
        return

    def scores(form: str) -> Replacements:
        def bent(run: Run) -> Run:
            xp, s = run.xp, run.scores
            match form:
                case "no outer":
                    return run.but(scores=xp.tanh(s / cap))
                case "no inner":
                    return run.but(scores=cap * xp.tanh(s))
                case "neither":
                    return run.but(scores=xp.tanh(s))
                case "swapped":
                    return run.but(scores=xp.tanh(s * cap) / cap)
            return run.but(scores=xp.clip(s, -cap, cap))

        return {Stage.SOFTCAP: bent}

    yield "the result is not multiplied by c again", scores("no outer")
    yield "the scores are not divided by c first", scores("no inner")
    yield "c is used nowhere", scores("neither")
    yield "multiplied by c first and divided after", scores("swapped")
    yield "cut off at c instead of bent", scores("cut")
    for other in (50.0, 30.0, 20.0):
        if other != cap:
            yield f"the softcap is {other:g}", _with_cap(other)
