"""Faults of the way scores are hidden: added, multiplied, filled with the wrong number, or after softmax."""

from __future__ import annotations

from collections.abc import Callable

from qkv.faults.as_if import unless
from qkv.faults.constants import named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.masking import PARTS, Part, hidden_by, in_words, split
from qkv.faults.needs import MASK
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import additive_bias, scale, softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Form = Callable[[Run, Array], Array]
"""What becomes of the scores, given which keys one part of the mask allows."""


def _instead(form: Form, part: Part) -> Replacements:
    """One part of the mask turned into other scores, where the mask belongs; the rest hides as it should."""

    def masked(run: Run) -> Run:
        own, rest = split(run, part)
        return hidden_by(run.but(scores=form(run, own)), rest).but(may_attend=own & rest)

    return {Stage.MASK: masked}


def _before_the_scale(form: Form, part: Part) -> Replacements:
    """The same, done to the raw products: scale, softcap and bias then change the hidden scores too."""

    def scaled(run: Run) -> Run:
        own, _ = split(run, part)
        return scale(run.but(scores=form(run, own)))

    def masked(run: Run) -> Run:
        own, rest = split(run, part)
        return hidden_by(run, rest).but(may_attend=own & rest)

    return {Stage.SCALE: scaled, Stage.MASK: masked}


def _filled(value: float) -> Form:
    return lambda run, own: run.xp.where(own, run.scores, run.array(value))


def _added(value: float) -> Form:
    """``value`` added where a key is hidden."""
    return lambda run, own: run.xp.where(own, run.scores, run.scores + value)


def _kept_plus_one(run: Run, own: Array) -> Array:
    return run.xp.where(own, run.scores + 1, run.scores)


def _added_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    return f"hidden scores have {named(value, {'1': 1.0, '-1': -1.0})} added"


@fault(
    "mask-added-as-number",
    Stage.MASK,
    title="a mask of ones and zeros is added to the scores",
    explanation=(
        "A boolean mask becomes 1 and 0 when it's added, and a score that is 1 lower still gets more than a third "
        "of the weight. Hidden keys are made a little less likely (or more, when True means hide) and not removed. "
        "Rows that may see everything are right, all others wrong."
    ),
    repair="attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))",
    needs=[MASK],
    families=[
        Family(
            lambda value: _instead(_added(value), "whole"),
            (-1.0, 1.0, -5.0, -10.0, 5.0, -0.1, 0.1, -30.0),
            _added_note,
            accepts=lambda value: value > -2,
        )
    ],
    commonness=3,
)
def mask_added_as_number(spec: AttentionSpec) -> Ways:
    """``a s_ij + [j in A(i)]``, or ``a s_ij + [j not in A(i)]``; also before the scale."""
    for part in PARTS:
        yield in_words("1 is added where a key may be seen", part), _instead(_kept_plus_one, part)
        yield in_words("1 is added where a key is hidden", part), _instead(_added(1.0), part)
    yield "1 is added where a key may be seen, before the scale", _before_the_scale(_kept_plus_one, "whole")
    yield "1 is added where a key is hidden, before the scale", _before_the_scale(_added(1.0), "whole")


@fault(
    "masked-scores-zeroed",
    Stage.MASK,
    title="hidden scores are set to zero, which is not nothing",
    explanation=(
        "Softmax makes exp(0) = 1 of a zero, so a hidden key keeps the weight of an ordinary one. Multiplying the "
        "scores by the mask does this, as do tril() alone and a fill like 1e-9 where -1e9 was meant. Rows that may "
        "see everything are right, all others wrong."
    ),
    repair="attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))  # not 0, and not 1e-9",
    needs=[MASK],
    commonness=3,
)
def masked_scores_zeroed(spec: AttentionSpec) -> Ways:
    """``s_ij [j in A(i)]``: the score of a hidden key is 0, its weight ``exp(0)`` over the row's sum."""

    def before_the_bias(run: Run) -> Run:
        own, rest = split(run, "whole")
        added = additive_bias(run)
        unless(added is None, "nothing is added to the scores")
        scores = run.xp.where(own, run.scores, run.xp.broadcast_to(added, run.scores.shape))
        return run.but(scores=scores, may_attend=own & rest)

    for part in PARTS:
        yield in_words("", part), _instead(_filled(0.0), part)
    yield "the bias is added after", {Stage.MASK: before_the_bias}
    yield "the fill is 1e-9, for -1e9", _instead(_filled(1e-9), "whole")


@fault(
    "mask-after-softmax",
    Stage.MASK,
    title="the mask comes after softmax",
    explanation=(
        "The weights are shared out among all keys first, hidden ones too, and then set to zero where they are "
        "hidden. What is left no longer sums to 1, so the context is too small. Rows that may see everything are "
        "right, all others too small. (Dividing by the new sum would make it right again.)"
    ),
    repair=(
        "attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))\n"
        "attn_weights = torch.softmax(attn_scores, dim=-1)"
    ),
    needs=[MASK],
    commonness=3,
)
def mask_after_softmax(spec: AttentionSpec) -> Ways:
    """``w_ij [j in A(i)]`` with ``w`` the softmax over all keys."""

    def rest_hidden(part: Part) -> Callable[[Run], Run]:
        def masked(run: Run) -> Run:
            own, rest = split(run, part)
            return hidden_by(run, rest).but(may_attend=own & rest)

        return masked

    def then(part: Part, value: float) -> Callable[[Run], Run]:
        def hidden(run: Run) -> Run:
            own, _ = split(run, part)
            done = softmax(run)
            return done.but(weights=run.xp.where(own, done.weights, run.array(value)))

        return hidden

    for part in PARTS:
        yield in_words("", part), {Stage.MASK: rest_hidden(part), Stage.SOFTMAX: then(part, 0.0)}
    filled = {Stage.MASK: rest_hidden("whole"), Stage.SOFTMAX: then("whole", -1e9)}
    yield "weights are filled with -1e9, as scores should be", filled


def _fill_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    numbers = (-1, -2, -5, -10, -20, -50, -100, -1000, -10000)
    return f"hidden scores are {named(value, {str(number): float(number) for number in numbers})}"


_FILLS = (-1.0, -5.0, -10.0, -20.0, -100.0, -1e3, -1e4)


@fault(
    "mask-fill-too-small",
    Stage.MASK,
    title="hidden scores get a number that doesn't hide them",
    explanation=(
        "A hidden score must be so low that exp() makes zero of it. With -5 or -10, or a larger number that is "
        "scaled down afterwards, hidden keys keep weight, most where the visible scores are low. Rows that may see "
        "everything are right. Minus infinity, or the dtype's lowest number, always hides."
    ),
    repair="attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))",
    needs=[MASK],
    families=[
        Family(
            lambda value: _instead(_filled(value), "whole"),
            (-5.0, -1.0, -10.0, -20.0, 1.0, -0.1, 0.1, 5.0, -50.0),
            _fill_note,
        ),
        Family(
            lambda value: _instead(_added(value), "whole"),
            (-5.0, -10.0, -20.0, -50.0),
            _added_note,
            accepts=lambda value: value <= -2,
        ),
    ],
    commonness=2,
)
def mask_fill_too_small(spec: AttentionSpec) -> Ways:
    """Hidden scores are ``f``, or ``a f`` where they're filled before the scale, or ``f`` is added to them."""
    for value in _FILLS:
        number = f"{value:g}"
        yield f"hidden scores are {number}", _instead(_filled(value), "whole")
        yield f"hidden scores are {number}, before the scale", _before_the_scale(_filled(value), "whole")
        for part in PARTS:
            if part != "whole":
                yield in_words(f"hidden scores are {number}", part), _instead(_filled(value), part)
        if value != -1:  # mask-added-as-number: 1 more for the keys that may be seen is 1 less for the hidden ones
            yield f"hidden scores have {number} added", _instead(_added(value), "whole")
            yield f"hidden scores have {number} added, before the scale", _before_the_scale(_added(value), "whole")
    yield "the fill is +1e9: the minus is missing", _instead(_filled(1e9), "whole")
