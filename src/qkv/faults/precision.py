"""Softmax in low precision: scores or weights rounded to bfloat16 or float16 on the way.

A candidate that rounds in other places too is not reproduced to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable

from qkv.faults.as_if import quietly
from qkv.faults.fault import Ways, fault
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.rounding import rounded
from qkv.oracle.stages import mix, scores, softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

BFLOAT16, FLOAT16 = "bfloat16", "float16"


def _rounding(to: str, *, of_scores: bool, of_weights: bool) -> Replacements:
    def low(run: Run) -> Run:
        seen = run.but(scores=rounded(run.xp, run.scores, to)) if of_scores else run
        done = softmax(seen)
        return run.but(weights=rounded(run.xp, done.weights, to) if of_weights else done.weights)

    return {Stage.SOFTMAX: quietly(low)}


def _step_by_step(to: str, *, scores_too: bool = True) -> Replacements:
    """Every step of softmax rounded, as kernels do that keep everything in the low precision."""

    def low(run: Run) -> Run:
        xp, near = run.xp, _rounder(run, to)
        rounded_scores = near(run.scores) if scores_too else run.scores
        top = xp.max(rounded_scores, axis=-1, keepdims=True)
        shares = near(xp.exp(near(rounded_scores - xp.where(xp.isfinite(top), top, xp.zeros_like(top)))))
        total = near(xp.sum(shares, axis=-1, keepdims=True))
        weights = near(shares / xp.where(total == 0, xp.ones_like(total), total))
        return run.but(weights=xp.where(total == 0, softmax(run).weights, weights))

    return {Stage.SOFTMAX: quietly(low)}


def _all_of_it(to: str) -> Replacements:
    """Query, key and value rounded, and weights and context on the way; sums in float32, as fused kernels do it."""
    near = _rounder

    def low_scores(run: Run) -> Run:
        return scores(run.but(query=near(run, to)(run.query), key=near(run, to)(run.key)))

    def low_mix(run: Run) -> Run:
        mixed = mix(run.but(weights=near(run, to)(run.weights), value=near(run, to)(run.value)))
        return mixed.but(context=near(run, to)(mixed.context))

    return {Stage.SCORES: quietly(low_scores), Stage.MIX: quietly(low_mix)}


def _rounder(run: Run, to: str) -> Callable[[Array], Array]:
    return lambda x: rounded(run.xp, x, to)


@fault(
    "softmax-low-precision",
    Stage.SOFTMAX,
    title="softmax is computed in low precision",
    explanation=(
        "bfloat16 has about 2 or 3 decimal digits, float16 about 3. Scores rounded to that, or weights, are off by "
        "up to 0.4 % (bfloat16) for each unit of the score. All rows with more than one visible key are a little "
        "wrong; the larger the scores, the more. Softmax belongs in float32, whatever the dtype around it."
    ),
    repair="attn_weights = torch.softmax(attn_scores.float(), dim=-1).to(query.dtype)",
    commonness=2,
    rounds=True,
)
def softmax_low_precision(spec: AttentionSpec) -> Ways:
    """``softmax(round(s))``, ``round(softmax(s))``, both, or rounded at every step."""
    for to in (BFLOAT16, FLOAT16):
        yield f"scores and weights in {to}", _rounding(to, of_scores=True, of_weights=True)
        yield f"scores in {to}", _rounding(to, of_scores=True, of_weights=False)
        yield f"weights in {to}", _rounding(to, of_scores=False, of_weights=True)
        if not spec.sinks:
            yield f"every step in {to}", _step_by_step(to)
            yield f"every step from exp() on in {to}", _step_by_step(to, scores_too=False)
        yield f"query, key and value in {to}, and so all of it", _all_of_it(to)
