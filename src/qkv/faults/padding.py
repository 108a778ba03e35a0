"""Faults of padding: keys that are no tokens must never be attended to, and real keys always may."""

from __future__ import annotations

from collections.abc import Callable

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if, unless, with_empty_rows
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by
from qkv.faults.needs import MASKED_UNLIKE, PADDING
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import allowed, mask
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _padded_as(change: Callable[[Run, Array], Array | None]) -> Replacements:
    """The mask stage with ``is_token`` changed, and with it every part of the mask that reads it."""

    def padded(run: Run) -> Run:
        is_token = run.inputs.is_token
        if is_token is None:
            raise ShapeError("nothing is padded here")
        other = change(run, is_token)

        def seen(inputs: Inputs) -> Inputs:
            return inputs.but(is_token=other)

        return as_if(mask, inputs=seen)(run)

    return {Stage.MASK: padded}


@fault(
    "padding-missing",
    Stage.MASK,
    title="padding is attended to",
    explanation=(
        "Sequences of unequal length are filled up with padding, and those keys take weight like real tokens. "
        "Sequences at full length are right, every row of a padded one is wrong; with a causal mask and padding on "
        "the right only the padding's own rows are."
    ),
    repair="attn_scores = attn_scores.masked_fill(~is_token[:, None, None, :], float('-inf'))",
    needs=[PADDING],
    commonness=3,
)
def padding_missing(spec: AttentionSpec) -> Ways:
    """``A(i)`` without ``is_token[j]``."""
    yield _padded_as(lambda run, is_token: None)


def _rows_of_tokens(run: Run, is_token: Array) -> Array:
    query_len, key_len = run.inputs.lengths
    first = run.spec.offset_for(query_len, key_len)
    if first < 0 or first + query_len > key_len:
        raise ShapeError("some queries stand where no key does, so it's unknown whether they are padding")
    return is_token[:, None, first : first + query_len, None]


@fault(
    "padding-on-queries",
    Stage.MASK,
    title="the padding mask hides rows instead of columns",
    explanation=(
        "Rows are queries and columns are keys: padding must be hidden as a key. Laid along the queries the mask "
        "empties the padding's own rows, which nobody reads, and real tokens go on attending to padding. With a "
        "causal mask and padding on the right the real rows come out right."
    ),
    repair="may_attend = may_attend & is_token[:, None, None, :]  # not is_token[:, None, :, None]",
    needs=[PADDING],
    commonness=3,
)
def padding_on_queries(spec: AttentionSpec) -> Ways:
    """``is_token[i]`` for ``is_token[j]``, or both of them."""

    def rows(run: Run) -> Run:
        is_token = run.inputs.is_token
        if is_token is None:
            raise ShapeError("nothing is padded here")
        elsewhere = allowed(run.but(inputs=run.inputs.but(is_token=None)))
        return hidden_by(run, elsewhere & _rows_of_tokens(run, is_token))

    def both(run: Run) -> Run:
        unless(run.inputs.is_token is None, "nothing is padded here")
        return hidden_by(run, allowed(run) & _rows_of_tokens(run, run.inputs.is_token))

    yield from with_empty_rows(spec, {Stage.MASK: rows})
    yield from with_empty_rows(spec, {Stage.MASK: both}, "rows and columns of padding are both hidden")


@fault(
    "padding-wrong-side",
    Stage.MASK,
    title="the wrong keys are taken for padding",
    explanation=(
        "The mask hides real tokens and lets padding through: the padding is looked for on the other side, or True "
        "is read as 'padding' where it means 'token'. Sequences at full length are right, or empty when the meaning "
        "is turned; every row of a padded one is wrong."
    ),
    repair="is_token = torch.arange(key_len) < lengths[:, None]  # padding on the right; True = a token",
    needs=[PADDING],
    commonness=2,
)
def padding_wrong_side(spec: AttentionSpec) -> Ways:
    """``is_token`` mirrored along the keys, and with it any mask handed over in the same argument, or ``~is_token``."""
    mirrored = _padded_as(lambda run, is_token: run.xp.flip(is_token, axis=1))
    yield from with_empty_rows(spec, mirrored, "padding is looked for on the other side")
    whole = {Stage.MASK: _mirrored}
    yield from with_empty_rows(spec, whole, "what is handed over is mirrored along the keys, padding and masks alike")
    inverted = _padded_as(lambda run, is_token: ~is_token)
    yield from with_empty_rows(spec, inverted, "tokens are taken for padding and padding for tokens")


def _mirrored(run: Run) -> Run:
    """Padding and a mask that came with the call, mirrored along the keys."""
    given = {name: getattr(run.inputs, name) for name in ("is_token", "may_attend")}
    mirrored = {name: run.xp.flip(array, axis=-1) for name, array in given.items() if array is not None}
    unless(not mirrored, "nothing is padded here and no mask is given")
    return as_if(mask, inputs=lambda inputs: inputs.but(**mirrored))(run)


def _moved(run: Run, is_token: Array, by: int) -> Array:
    """``is_token`` moved along the keys, its ends repeated."""
    ends = (is_token[:, :1], is_token[:, :-1]) if by > 0 else (is_token[:, 1:], is_token[:, -1:])
    return run.xp.concat(ends, axis=1)


@fault(
    "padding-off-by-one",
    Stage.MASK,
    title="the length of each sequence is off by one",
    explanation=(
        "One padding key too many is attended to, or the token next to the padding is hidden. Sequences at full "
        "length are right; in a padded one every row that can see that key is wrong."
    ),
    repair="is_token = torch.arange(key_len) < lengths[:, None]",
    needs=[PADDING],
    commonness=1,
)
def padding_off_by_one(spec: AttentionSpec) -> Ways:
    """``j <= length`` or ``j < length - 1`` for ``j < length``, on whichever side the padding is."""

    def wider(run: Run, is_token: Array) -> Array:
        return is_token | _moved(run, is_token, 1) | _moved(run, is_token, -1)

    def narrower(run: Run, is_token: Array) -> Array:
        return is_token & _moved(run, is_token, 1) & _moved(run, is_token, -1)

    yield "one padding key is attended to", _padded_as(wider)
    yield from with_empty_rows(spec, _padded_as(narrower), "the token next to the padding is hidden")


def _taken(run: Run, whole: Array, places: list[int]) -> Array:
    """The mask of head 0 of the sequences at ``places``, one for each (sequence, head), as a mask of all of them."""
    batch, heads, query_len, key_len = whole.shape
    rows = run.xp.concat([whole[place : place + 1, :1] for place in places], axis=0)
    return run.xp.reshape(rows, (batch, heads, query_len, key_len))


@fault(
    "mask-of-other-sequence",
    Stage.MASK,
    title="a sequence is masked with another sequence's mask",
    explanation=(
        "Each sequence of the batch has its own padding, and here it gets that of another one: the mask is repeated "
        "for the heads in another order than the scores are, or the first sequence's serves for all. With one "
        "sequence or equal lengths nothing shows."
    ),
    repair="mask = mask.repeat_interleave(num_heads, dim=0)  # for scores of (batch * heads, …); not mask.repeat",
    needs=[MASKED_UNLIKE],
    commonness=2,
)
def mask_of_other_sequence(spec: AttentionSpec) -> Ways:
    """``A_b'`` for ``A_b``."""

    def masked(change: Callable[[Run, Array], Array]) -> Replacements:
        return {Stage.MASK: lambda run: hidden_by(run, change(run, allowed(run)))}

    def over_and_over(run: Run, whole: Array) -> Array:
        batch, heads = whole.shape[:2]
        return _taken(run, whole, [place % batch for place in range(batch * heads)])

    def each_again(run: Run, whole: Array) -> Array:
        batch, heads = whole.shape[:2]
        return _taken(run, whole, [(h * batch + b) // heads for b in range(batch) for h in range(heads)])

    if spec.num_heads > 1:
        yield from with_empty_rows(spec, masked(over_and_over), "repeated as a whole for scores with the batch slowest")
        yield from with_empty_rows(spec, masked(each_again), "repeated one by one for scores with the heads slowest")
    yield from with_empty_rows(spec, masked(lambda run, whole: run.xp.roll(whole, 1, axis=0)), "the one before")
    yield from with_empty_rows(spec, masked(lambda run, whole: run.xp.roll(whole, -1, axis=0)), "the one after")
    yield from with_empty_rows(spec, masked(lambda run, whole: whole[:1]), "the first one's for all")
    yield from with_empty_rows(spec, masked(lambda run, whole: whole[-1:]), "the last one's for all")
