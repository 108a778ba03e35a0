"""Faults of rope: query and key are turned the wrong way, at the wrong positions, or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from qkv.faults.as_if import as_if
from qkv.faults.caching import begin_of_each_key, call_of_each_key
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import ROPE, UNEQUAL_LENGTHS, YARN
from qkv.faults.replacing import impossible
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import position
from qkv.positions import Rope, rotate
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def rope_of(run: Run) -> Rope:
    """The spec's rope."""
    if run.spec.rope is None:
        raise impossible("there is no rope")
    return run.spec.rope


def turned(run: Run, x: Array, at: Array, rope: Rope | None = None, *, sign: int = 1) -> Array:
    """``x`` turned at the positions ``at``, by the spec's rope or another one; backwards with ``sign=-1``."""
    rope = rope or rope_of(run)
    if rope.rotary_dims(x.shape[-1]) > x.shape[-1] or rope.rotary_dims(x.shape[-1]) % 2:
        raise impossible(f"rope can't turn {rope.dims or 'all'} of {x.shape[-1]} channels")
    frequencies = run.array([sign * frequency for frequency in rope.frequencies(x.shape[-1])])
    return rotate(x, run.array(at), frequencies, rope.pairing, rope.attention_factor)


def with_rope(rope: Rope | None) -> Replacements:
    """The ``position`` stage with another rope."""
    return {Stage.POSITION: as_if(position, rope=rope)}


def by_sides(query: Callable[[Run, Array, Array], Array], key: Callable[[Run, Array, Array], Array]) -> Replacements:
    """The ``position`` stage with a way of its own for query and key, from the run, the array and its positions."""

    def replaced(run: Run) -> Run:
        query_at, key_at = run.token_positions()
        return run.but(query=query(run, run.query, query_at), key=key(run, run.key, key_at))

    return {Stage.POSITION: replaced}


def _left(run: Run, x: Array, at: Array) -> Array:
    return x


def _right(run: Run, x: Array, at: Array) -> Array:
    return turned(run, x, at)


def _back(run: Run, x: Array, at: Array) -> Array:
    return turned(run, x, at, sign=-1)


def _exchanged(run: Run, x: Array, at: Array) -> Array:
    """``x * sin + rotate_half(x) * cos``: backwards, and a quarter turn on."""
    back, rope = _back(run, x, at), rope_of(run)
    quarter = run.array([math.pi / 2] * len(rope.frequencies(x.shape[-1])))
    return rotate(back, run.array([1.0] * x.shape[-2]), quarter, rope.pairing)


def _twice(run: Run, x: Array, at: Array) -> Array:
    return turned(run, turned(run, x, at), at)


# --- whether and which way --------------------------------------------------------------------------------------------


@fault(
    "rope-missing",
    Stage.POSITION,
    title="rope is not applied",
    explanation=(
        "Without rope the scores know nothing of the order of the tokens: the same words in another order get the "
        "same weights, except for the mask. Rows with a single visible key are right, all others are wrong."
    ),
    repair="query, key = apply_rope(query, positions), apply_rope(key, positions)",
    needs=[ROPE],
    commonness=3,
)
def rope_missing(spec: AttentionSpec) -> Ways:
    """``q_i . k_j`` for ``(R_i q_i) . (R_j k_j)``."""
    if spec.rope is not None:
        yield {Stage.POSITION: lambda run: run}


@fault(
    "rope-one-sided",
    Stage.POSITION,
    title="rope is applied to the query or the key alone",
    explanation=(
        "A score depends on the distance of query and key only when both are turned by their own position. With one "
        "of them turned it depends on where that one stands, and not on the other. Every row with more than one "
        "visible key is wrong, those at larger positions more so."
    ),
    repair="query, key = apply_rope(query, positions), apply_rope(key, positions)",
    needs=[ROPE],
)
def rope_one_sided(spec: AttentionSpec) -> Ways:
    """``(R_i q_i) . k_j`` or ``q_i . (R_j k_j)``."""
    if spec.rope is not None:
        yield "only the query is turned", by_sides(_right, _left)
        yield "only the key is turned", by_sides(_left, _right)


@fault(
    "rope-sign",
    Stage.POSITION,
    title="rope turns the wrong way",
    explanation=(
        "Both query and key are turned backwards, so a score depends on how far the key is ahead where it should "
        "depend on how far it is behind. The code runs and a model trained like that learns as well; with weights "
        "from elsewhere every row with more than one visible key is wrong. With one side turned the wrong way a score "
        "depends on the sum of the positions."
    ),
    repair="torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)",
    needs=[ROPE],
)
def rope_sign(spec: AttentionSpec) -> Ways:
    """``R(-theta)`` for ``R(theta)``; exchanging sin and cos gives the same scores."""
    if spec.rope is not None:
        yield "query and key", by_sides(_back, _back)
        yield "the query only", by_sides(_back, _right)
        yield "the key only", by_sides(_right, _back)
        yield "sin and cos have changed places, for the query only", by_sides(_exchanged, _right)
        yield "sin and cos have changed places, for the key only", by_sides(_right, _exchanged)


@fault(
    "rope-applied-twice",
    Stage.POSITION,
    title="rope is applied twice",
    explanation=(
        "Query or key is turned a second time, often because keys are cached after rope and turned again with the "
        "next step. Turned twice on both sides, distances count double; on one side, a score depends on where the "
        "token stands. Every row that sees a token turned twice and not at position 0, and more than one key, is "
        "wrong."
    ),
    repair="key = torch.cat([cached_key, apply_rope(new_key, positions)], dim=-2)  # cached keys are turned already",
    needs=[ROPE],
)
def rope_applied_twice(spec: AttentionSpec) -> Ways:
    """``R_j R_j k_j``, on the key, the query or both; or on the cached keys only, once or with every call."""
    if spec.rope is None:
        return

    def cached_twice(run: Run, x: Array, at: Array) -> Array:
        query_len, key_len = run.inputs.lengths
        cached = key_len - query_len
        if cached <= 0:
            raise impossible("there are no keys from before the first query")
        once = turned(run, x, at)
        old = turned(run, once[..., :cached, :], at[:cached])
        return run.xp.concat([old, once[..., cached:, :]], axis=-2)

    yield "to the key", by_sides(_right, _twice)
    yield "to the query", by_sides(_twice, _right)
    yield "to query and key", by_sides(_twice, _twice)

    def with_every_call(run: Run, x: Array, at: Array) -> Array:
        calls = call_of_each_key(run)
        return turned(run, x, run.array(at) * run.array([1 + calls[-1] - call for call in calls]))

    yield "to the keys from before the first query", by_sides(_right, cached_twice)
    yield "to the keys in the cache, with every call anew", by_sides(_right, with_every_call)


@fault(
    "value-after-rope",
    Stage.POSITION,
    title="rope is applied to the value too",
    explanation=(
        "Only query and key carry their position, to make scores out of distances. A value that is turned as well "
        "arrives at the query as another vector, depending on where it stood. The weights are right; every row that "
        "sees a token other than the one at position 0 is wrong."
    ),
    repair="query, key = apply_rope(query), apply_rope(key)  # value stays as it is",
    needs=[ROPE],
)
def value_after_rope(spec: AttentionSpec) -> Ways:
    """``o_i = sum_j w_ij R_j v_j``; where key and value are one array, it is taken after rope in place of before."""
    if spec.rope is None:
        return

    def value_too(run: Run) -> Run:
        done = position(run)
        _, key_at = run.token_positions()
        return done.but(value=turned(run, run.value, key_at))

    yield {Stage.POSITION: value_too}


# --- which position ---------------------------------------------------------------------------------------------------


@fault(
    "rope-offset-lost",
    Stage.POSITION,
    title="rope counts new tokens from 0",
    explanation=(
        "With keys from before in the cache, the first new token stands behind them, at position key_len - query_len. "
        "Counted from 0 again it is turned as if it were the first, and all its distances are off by as much. Every "
        "row of the new tokens is wrong; without a cache nothing shows."
    ),
    repair="positions = torch.arange(cached_len, cached_len + query_len)",
    needs=[ROPE, UNEQUAL_LENGTHS],
    commonness=3,
)
def rope_offset_lost(spec: AttentionSpec) -> Ways:
    """Query ``i`` turned by ``i`` for ``i + offset``; the new keys too, or alone; or an offset where none is meant."""
    if spec.rope is None:
        return

    def from_zero(run: Run, x: Array, at: Array) -> Array:
        if bool(run.xp.all(at[:1] == 0)):
            raise impossible("the first query stands at position 0")
        return turned(run, x, at - at[0])

    def new_from_zero(run: Run, x: Array, at: Array) -> Array:
        query_len, key_len = run.inputs.lengths
        if not 0 < query_len < key_len:
            raise impossible("there are no keys from before the first query")
        return turned(run, x, run.xp.concat([at[:-query_len], at[:query_len]]))

    def at_the_end(run: Run) -> Run:
        query_len, key_len = run.inputs.lengths
        if run.spec.offset_for(query_len, key_len) == key_len - query_len:
            raise impossible("the queries do stand at the end")
        return as_if(position, query_offset="bottom_right")(run)

    def each_call_from_zero(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, run.array(at) - run.array(begin_of_each_key(run)[-len(at) :]))

    yield "the query", by_sides(from_zero, _right)
    yield "the query and the keys, with every call anew", by_sides(each_call_from_zero, each_call_from_zero)
    yield "the query and the new keys", by_sides(from_zero, new_from_zero)
    yield "the keys alone, with every call anew", by_sides(_right, each_call_from_zero)
    yield "the new keys alone", by_sides(_right, new_from_zero)
    if spec.query_offset != "bottom_right":
        yield "the queries are put at the end of the keys", {Stage.POSITION: at_the_end}


def _shifted(by: int) -> Replacements:
    return by_sides(lambda run, x, at: turned(run, x, at + by), _right)


def _new_shifted(by: int) -> Replacements:
    def side(run: Run, x: Array, at: Array) -> Array:
        new = [by * (call > 0) for call in call_of_each_key(run)]
        return turned(run, x, run.array(at) + run.array(new[-len(at) :]))

    return by_sides(side, side)


@fault(
    "rope-offset-shifted",
    Stage.POSITION,
    title="rope's positions of query and key are shifted against each other",
    explanation=(
        "The queries are turned as if they stood one token further on, or back, than the keys say. All distances are "
        "off by one, a token's distance to itself is no longer 0, and every row with more than one visible key is "
        "wrong. A shift that query and key have in common would change nothing."
    ),
    repair="positions = torch.arange(cached_len, cached_len + query_len)  # the cache does not hold the new token yet",
    needs=[ROPE],
)
def rope_offset_shifted(spec: AttentionSpec) -> Ways:
    """Query ``i`` turned by ``i + n``; or query and key of all tokens that came after the first call."""
    if spec.rope is None:
        return
    for by in (1, -1, 2, -2):
        yield f"the query stands {abs(by)} too far {'on' if by > 0 else 'back'}", _shifted(by)
    for by in (1, -1):
        yield f"what comes after the first call stands 1 too far {'on' if by > 0 else 'back'}", _new_shifted(by)


@fault(
    "rope-over-heads",
    Stage.POSITION,
    title="rope takes the head's number for the position",
    explanation=(
        "Rope counts along the axis it takes for the tokens, and here the heads stand there: (batch, token, head, "
        "dim) where (batch, head, token, dim) is expected. All tokens of a head are turned alike. With as many key "
        "heads as query heads the turn cancels, as if there were no rope; with grouped heads scores are off by the "
        "distance between head numbers. Every row with more than one visible key is wrong."
    ),
    repair="query = apply_rope(query.transpose(1, 2))  # (batch, head, token, dim)",
    needs=[ROPE],
)
def rope_over_heads(spec: AttentionSpec) -> Ways:
    """``R_h q`` and ``R_kv(h) k``: with as many key heads as query heads the same as no rope at all."""
    if spec.rope is None or spec.group_size == 1:
        return

    def by_head(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, [[head] for head in range(run.spec.num_heads)])

    def by_key_head(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, [[head // run.spec.group_size] for head in range(run.spec.num_heads)])

    yield by_sides(by_head, by_key_head)


# --- yarn's factor ----------------------------------------------------------------------------------------------------


def _yarn_factor(query: float, key: float, *, whole_head: bool = False) -> Replacements:
    """Powers of yarn's attention factor that query and key are multiplied by; 1 is right."""

    def one(power: float) -> Callable[[Run, Array, Array], Array]:
        def side(run: Run, x: Array, at: Array) -> Array:
            rope = rope_of(run)
            if rope.scaling is None:
                raise impossible("there is no yarn")
            factor = rope.attention_factor**power
            if whole_head:
                unscaled = replace(rope, scaling=replace(rope.scaling, attention_factor=1.0))
                return turned(run, x, at, unscaled) * factor
            return turned(run, x, at, replace(rope, scaling=replace(rope.scaling, attention_factor=factor)))

        return side

    return by_sides(one(query), one(key))


@fault(
    "yarn-scale",
    Stage.POSITION,
    title="yarn's attention factor is missing or applied wrongly",
    explanation=(
        "Yarn multiplies query and key each by 0.1 ln(factor) + 1, so the scores by its square, to keep the weights "
        "sharp over long texts. Without it they are too flat, with it twice too sharp. Every row with more than one "
        "visible key is wrong by a little."
    ),
    repair="cos, sin = cos * attention_factor, sin * attention_factor  # for query and key",
    needs=[YARN],
)
def yarn_scale(spec: AttentionSpec) -> Ways:
    """Scores times ``m^0``, ``m^1`` or ``m^4`` for ``m^2``; or on all channels where only some are turned."""
    if spec.rope is not None and spec.rope.scaling is not None and spec.rope.scaling.kind == "yarn":
        yield "it is missing", _yarn_factor(0, 0)
        yield "it is squared", _yarn_factor(2, 2)
        yield "it is on the query or the key only", _yarn_factor(1, 0)
        if spec.rope.dims is not None:
            yield "it is on the channels that don't turn too", _yarn_factor(1, 1, whole_head=True)
