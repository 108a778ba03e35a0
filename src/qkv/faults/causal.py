"""Faults of the causal mask: a token must use itself and earlier tokens, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from qkv.errors import ShapeError
from qkv.faults.as_if import with_empty_rows
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by, masked_as, seen_from, with_changed, without
from qkv.faults.needs import CAUSAL, UNEQUAL_LENGTHS
from qkv.masks import Causal, Mask, Not, SlidingWindow
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import allowed
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _causal_as(spec: AttentionSpec, change: Callable[[Causal], Mask]) -> Replacements:
    return masked_as(with_changed(spec.mask, Causal, change))


@fault(
    "causal-missing",
    Stage.MASK,
    title="the causal mask is missing",
    explanation=(
        "Every token also looks at the tokens after it, which a model that predicts the next token must not see. "
        "The last row is right, since nothing comes after it; every other row is wrong."
    ),
    repair=(
        "may_attend = torch.ones(query_len, key_len).tril(key_len - query_len).bool()\n"
        "attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))"
    ),
    needs=[CAUSAL],
    commonness=3,
)
def causal_missing(spec: AttentionSpec) -> Ways:
    """``A(i)`` without ``j <= i``; window, prefix, documents and padding stay."""
    if not spec.masks(Causal):
        return
    yield masked_as(without(spec.mask, Causal))
    if spec.masks(SlidingWindow):
        rest = without(spec.mask, Causal)
        past = with_changed(rest, SlidingWindow, lambda window: Not(Causal(-window.size)))
        yield "the window only ends the past", masked_as(past)
    if spec.mask == Causal():
        everything_seen = {Stage.MASK: lambda run: hidden_by(run, run.positions().everywhere)}
        yield "the mask is not applied at all, padding included", everything_seen


@fault(
    "causal-strict",
    Stage.MASK,
    title="the causal mask hides a token from itself",
    explanation=(
        "A token uses itself and earlier tokens. Here the diagonal is hidden too (j < i for j <= i), so each token "
        "uses earlier ones only. Every row is wrong, and the first row has no key at all: NaN, zeros or a plain "
        "mean."
    ),
    repair="hidden = torch.ones(length, length).triu(diagonal=1).bool()  # diagonal=0 hides the token itself",
    needs=[CAUSAL],
    commonness=3,
)
def causal_strict(spec: AttentionSpec) -> Ways:
    """``j < i`` for ``j <= i``."""
    if spec.masks(Causal):
        yield from with_empty_rows(spec, _causal_as(spec, lambda part: Causal(part.ahead - 1)))


@fault(
    "causal-one-ahead",
    Stage.MASK,
    title="the causal mask lets each token see the next one",
    explanation=(
        "The mask starts one diagonal too late (j <= i + 1 for j <= i), so every token sees the one after it, which "
        "is the very token it should predict. The last row is right, every other row is wrong. With two tokens this "
        "is the same as no causal mask."
    ),
    repair="hidden = torch.ones(length, length).triu(diagonal=1).bool()  # diagonal=2 lets the next token through",
    needs=[CAUSAL],
    commonness=3,
)
def causal_one_ahead(spec: AttentionSpec) -> Ways:
    """``j <= i + 1`` for ``j <= i``."""
    if spec.masks(Causal):
        yield _causal_as(spec, lambda part: Causal(part.ahead + 1))


@fault(
    "causal-inverted",
    Stage.MASK,
    title="the causal mask is inverted: tokens see the future and not the past",
    explanation=(
        "What should be hidden is kept and the other way round, often because True means 'hide' in one library and "
        "'keep' in the next. Every row is wrong. Where the token itself is hidden as well, the last row has no key "
        "at all; where it's kept, the last row sees only itself."
    ),
    repair="attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))  # True in masked_fill means hide",
    needs=[CAUSAL],
    commonness=3,
)
def causal_inverted(spec: AttentionSpec) -> Ways:
    """``j > i``, or ``j >= i``, for ``j <= i``."""
    if spec.masks(Causal):
        hiding_itself = _causal_as(spec, Not)
        yield from with_empty_rows(spec, hiding_itself, "j > i")
        seeing_itself = _causal_as(spec, lambda part: Not(Causal(part.ahead - 1)))
        yield from with_empty_rows(spec, seeing_itself, "j >= i")
    if spec.mask == Causal():
        whole = {Stage.MASK: lambda run: hidden_by(run, ~allowed(run))}
        yield from with_empty_rows(spec, whole, "the whole mask is read the wrong way round, padding included")


def _offsets(spec: AttentionSpec) -> dict[str, Callable[[int, int], int]]:
    corners: dict[str, Callable[[int, int], int]] = {}
    if spec.query_offset not in ("top_left", 0):
        corners["drawn from the top left corner"] = lambda query_len, key_len: 0 * (query_len + key_len)
    if spec.query_offset != "bottom_right":
        corners["drawn from the bottom right corner"] = lambda query_len, key_len: key_len - query_len
    return corners


@fault(
    "causal-corner",
    Stage.MASK,
    title="the causal mask is drawn from the wrong corner",
    explanation=(
        "With fewer queries than keys the queries are the last tokens, so row i may see key_len - query_len keys "
        "more than a square mask gives it. Drawn from the top left, row 0 sees key 0 alone: in decoding, every step "
        "looks at the first token only. With as many queries as keys both corners are the same."
    ),
    repair="may_attend = torch.ones(query_len, key_len).tril(diagonal=key_len - query_len).bool()",
    needs=[CAUSAL, UNEQUAL_LENGTHS],
    commonness=3,
)
def causal_corner(spec: AttentionSpec) -> Ways:
    """``j <= i`` for ``j <= i + offset``, or the reverse; for the causal part alone, or the whole mask."""
    if not spec.masks(Causal):
        return
    for note, offset in _offsets(spec).items():
        yield from with_empty_rows(spec, {Stage.MASK: _moved_causal(offset)}, note, lowered=False)
        if spec.mask != Causal():
            with_window = {Stage.MASK: _moved_mask(offset)}
            yield from with_empty_rows(spec, with_window, f"{note}, the window with it", lowered=False)
    if spec.mask == Causal() and spec.query_offset == "bottom_right":
        yield "a square laid over the oldest keys, and all newer ones are seen", {Stage.MASK: _square_over_the_oldest}


def _square_over_the_oldest(run: Run) -> Run:
    query_len, key_len = run.inputs.lengths
    if query_len >= key_len:
        raise ShapeError("the square has no keys beside it")
    at = run.positions()
    return _hidden_too(run, Causal().allows(seen_from(at, query_len - key_len)) | (at.key >= query_len))


def _moved_by(run: Run, offset: Callable[[int, int], int]) -> int:
    query_len, key_len = run.inputs.lengths
    moved = offset(query_len, key_len) - run.spec.offset_for(query_len, key_len)
    if not moved:
        raise ShapeError("both corners of the mask are the same here")
    return moved


def _moved_causal(offset: Callable[[int, int], int]) -> Callable[[Run], Run]:
    def moved(run: Run) -> Run:
        by = _moved_by(run, offset)
        return masked_as(with_changed(run.spec.mask, Causal, lambda part: Causal(part.ahead + by)))[Stage.MASK](run)

    return moved


def _moved_mask(offset: Callable[[int, int], int]) -> Callable[[Run], Run]:
    def moved(run: Run) -> Run:
        return _hidden_too(run, run.spec.mask.allows(seen_from(run.positions(), _moved_by(run, offset))))

    return moved


def _hidden_too(run: Run, may_attend: Array) -> Run:
    """The ``mask`` stage by that mask, with what is hidden beside the spec's own: padding, and a mask handed over."""
    for also in (run.positions().key_is_token, run.inputs.may_attend):
        may_attend = may_attend if also is None else may_attend & also
    return hidden_by(run, may_attend)
