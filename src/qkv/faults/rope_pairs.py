"""Faults of rope's pairs: the wrong channels are turned, or turned with the wrong partner."""

from __future__ import annotations

from dataclasses import replace

from qkv.faults.as_if import as_if
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import PARTIAL_ROPE, ROPE
from qkv.faults.position import by_sides, rope_of, turned, with_rope
from qkv.faults.replacing import impossible
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import position
from qkv.positions import rotate
from qkv.spec import AttentionSpec
from qkv.vocabulary import Pairing, Stage

Signs = tuple[int, int]

ROTATION: Signs = (-1, 1)
"""The signs of a rotation: cos, -sin; sin, cos."""


def _tables(run: Run, x: Array, at: Array, table: Pairing, taken: Pairing, put: Pairing, signs: Signs) -> Array:
    """``x * cos + turned(x) * sin`` with each spelt out over all channels, the way most libraries write it.

    Args:
        run: for its rope.
        x: ``(batch, head, token, dim)``.
        at: positions, ``(token,)``.
        table: whether cos and sin hold the angles twice over (halves) or each angle twice in a row (adjacent).
        taken: which channels are taken as pairs.
        put: where what they give each other is put.
        signs: of the sine that the first of a pair gets from the second, and the second from the first.
    """
    xp, rope = run.xp, rope_of(run)
    angles = run.array(at)[:, None] * run.array(rope.frequencies(x.shape[-1]))
    angles = xp.concat([angles, angles], axis=-1) if table == "halves" else xp.repeat(angles, 2, axis=-1)
    dims = angles.shape[-1]
    head, rest = x[..., :dims], x[..., dims:]
    first, second = signs
    halves = (head[..., : dims // 2], head[..., dims // 2 :])
    one, other = halves if taken == "halves" else (head[..., 0::2], head[..., 1::2])
    given = [first * other, second * one]
    crossed = xp.concat(given, axis=-1) if put == "halves" else xp.reshape(xp.stack(given, axis=-1), head.shape)
    mixed = (head * xp.cos(angles) + crossed * xp.sin(angles)) * rope.attention_factor
    return xp.concat([mixed, rest], axis=-1)


@fault(
    "rope-layout",
    Stage.POSITION,
    title="rope pairs the wrong channels",
    explanation=(
        "There are two customs: channel i is turned together with i + dim/2 (Llama as Hugging Face has it, GPT-NeoX), "
        "or 2i together with 2i + 1 (the paper, GPT-J, Llama as Meta has it). Weights made for one give other scores "
        "under the other. Every row with more than one visible key is wrong."
    ),
    repair="x1, x2 = x.chunk(2, dim=-1)  # halves; for neighbours: x1, x2 = x[..., 0::2], x[..., 1::2]",
    needs=[ROPE],
    commonness=3,
)
def rope_layout(spec: AttentionSpec) -> Ways:
    """Pairs ``(2i, 2i+1)`` for ``(i, i + dim/2)``, or the other way."""
    if spec.rope is not None:
        other: Pairing = "adjacent" if spec.rope.pairing == "halves" else "halves"
        yield f"{other} in place of {spec.rope.pairing}", with_rope(replace(spec.rope, pairing=other))


@fault(
    "rope-layout-mixed",
    Stage.POSITION,
    title="rope mixes two ways of pairing channels",
    explanation=(
        "cos and sin are laid out for one custom (each angle twice in a row, or all angles twice over) and the "
        "channels are crossed by the other, or taken by one and put back by the other. That is no rotation any more: "
        "a channel takes its cosine from one pair and its sine from another, and lengths change. Every row with more "
        "than one visible key is wrong."
    ),
    repair="cos = torch.cat([cos, cos], dim=-1)  # with rotate_half; repeat_interleave(2) with neighbours",
    needs=[ROPE],
)
def rope_layout_mixed(spec: AttentionSpec) -> Ways:
    """``x * repeat_interleave(cos) + rotate_half(x) * repeat_interleave(sin)``, or the other tables with neighbours."""
    if spec.rope is not None:
        twice, over = "each angle twice in a row", "all angles twice over"
        yield f"{twice}, with rotate_half", _crossed("adjacent", "halves", "halves")
        yield f"{over}, with neighbours", _crossed("halves", "adjacent", "adjacent")
        tables: tuple[tuple[Pairing, str], ...] = (("halves", over), ("adjacent", twice))
        for table, angles in tables:
            yield f"{angles}, with neighbours that are put back as halves", _crossed(table, "adjacent", "halves")
            yield f"{angles}, with halves that are put back as neighbours", _crossed(table, "halves", "adjacent")


def _crossed(table: Pairing, taken: Pairing, put: Pairing, signs: Signs = ROTATION) -> Replacements:
    def one(run: Run, x: Array, at: Array) -> Array:
        return _tables(run, x, at, table, taken, put, signs)

    return by_sides(one, one)


@fault(
    "rope-minus-missing",
    Stage.POSITION,
    title="rope has its minus sign in no place, or in two",
    explanation=(
        "A rotation takes the second channel's sine off the first, and adds the first's to the second. With plus in "
        "both places, or minus in both, it is no rotation: lengths change, and a score depends on more than the "
        "distance. Every row with more than one visible key is wrong."
    ),
    repair="def rotate_half(x): x1, x2 = x.chunk(2, dim=-1); return torch.cat([-x2, x1], dim=-1)",
    needs=[ROPE],
    commonness=1,
)
def rope_minus_missing(spec: AttentionSpec) -> Ways:
    """``x * cos + cat(x2, x1) * sin`` for ``cat(-x2, x1)``, or ``cat(-x2, -x1)``."""
    if spec.rope is not None:
        own = spec.rope.pairing
        yield "plus in both places", _crossed(own, own, own, (1, 1))
        yield "minus in both places", _crossed(own, own, own, (-1, -1))


def _last_channels(run: Run, x: Array, at: Array) -> Array:
    dims = rope_of(run).rotary_dims(x.shape[-1])
    return run.xp.concat([x[..., :-dims], turned(run, x[..., -dims:], at)], axis=-1)


@fault(
    "rope-partial-ignored",
    Stage.POSITION,
    title="rope turns channels that should stay",
    explanation=(
        "Only the first channels of each head are meant to carry the position; the others are to stay as they are. "
        "Turned as well, or in their place, they change the scores of all keys at another position than the query's. "
        "Every row with more than one visible key is wrong."
    ),
    repair="query = torch.cat([apply_rope(query[..., :rotary_dim]), query[..., rotary_dim:]], dim=-1)",
    needs=[PARTIAL_ROPE],
)
def rope_partial_ignored(spec: AttentionSpec) -> Ways:
    """All ``head_dim`` channels turned for the first ``dims``; or the last ``dims``."""
    if spec.rope is not None and spec.rope.dims is not None and spec.rope.dims != spec.head_dim:
        yield "the whole head", {Stage.POSITION: _whole_head}
        yield "the last channels in place of the first", by_sides(_last_channels, _last_channels)


def _whole_head(run: Run) -> Run:
    if run.query.shape[-1] % 2:
        raise impossible("an odd number of channels has no pairs")
    return as_if(position, rope=replace(rope_of(run), dims=None))(run)


def _by_head_dim(*, frequencies: bool, pairs: bool) -> Replacements:
    """Partial rope that takes its frequencies, or its pairs, from the whole head."""

    def one(run: Run, x: Array, at: Array) -> Array:
        rope, dim = rope_of(run), x.shape[-1]
        count = rope.rotary_dims(dim) // 2
        over = replace(rope, dims=None) if frequencies else rope
        if dim % 2 or dim == 2 * count or (pairs and rope.pairing == "adjacent"):
            raise impossible("pairs and frequencies of the whole head are the same, or don't exist")
        speeds = run.array(over.frequencies(dim)[:count])
        if not pairs:
            return rotate(x, run.array(at), speeds, rope.pairing, rope.attention_factor)
        half = dim // 2
        pieces = [x[..., :count], x[..., half : half + count], x[..., count:half], x[..., half + count :]]
        both = rotate(run.xp.concat(pieces, axis=-1), run.array(at), speeds, "halves", rope.attention_factor)
        first, second, rest = both[..., :count], both[..., count : 2 * count], both[..., 2 * count :]
        kept = half - count
        return run.xp.concat([first, rest[..., :kept], second, rest[..., kept:]], axis=-1)

    return by_sides(one, one)


@fault(
    "rope-partial-frequencies",
    Stage.POSITION,
    title="partial rope counts by the whole head",
    explanation=(
        "Where only some channels of a head are turned, frequencies and pairs are counted over these channels. "
        "Counted over the whole head the pairs turn too fast, or channel i is paired with one from the part that "
        "should stay. The difference is small at first and grows with the distance; every row with more than one "
        "visible key is wrong."
    ),
    repair="inv_freq = base ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)  # not head_dim",
    needs=[PARTIAL_ROPE],
    commonness=1,
)
def rope_partial_frequencies(spec: AttentionSpec) -> Ways:
    """``base^(-2i/head_dim)`` for ``base^(-2i/dims)``; pairs ``(i, i + head_dim/2)`` for ``(i, i + dims/2)``."""
    if spec.rope is not None and spec.rope.dims is not None:
        yield "the frequencies", _by_head_dim(frequencies=True, pairs=False)
        yield "the pairs", _by_head_dim(frequencies=False, pairs=True)
        yield "frequencies and pairs", _by_head_dim(frequencies=True, pairs=True)
