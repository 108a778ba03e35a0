"""Faults of what is added to the scores: alibi, relative bias, and a bias that comes with the call."""

from __future__ import annotations

from collections.abc import Callable

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if, unless
from qkv.faults.constants import factor_names, named
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import ALIBI, BIAS, UNEQUAL_LENGTHS
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import additive_bias, bias, softmax
from qkv.positions import Alibi, alibi_slopes
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_KINDS = ("alibi", "relative", "given")
_WORDS = {"alibi": "alibi", "relative": "the relative bias", "given": "the bias given with the call"}


def _only(run: Run, kinds: tuple[str, ...]) -> Array | None:
    """The sum of these kinds of bias alone."""
    spec, inputs = run.spec, run.inputs
    if "alibi" not in kinds:
        spec = spec.but(alibi=None)
    if "relative" not in kinds:
        spec = spec.but(relative_bias=None)
    if "given" not in kinds:
        inputs = inputs.but(bias=None)
    return additive_bias(run.but(spec=spec, inputs=inputs))


def _split(run: Run, kind: str) -> tuple[Array, Array]:
    """One kind of bias and the sum of all others; zero where there are none."""
    own, others = _only(run, (kind,)), _only(run, tuple(other for other in _KINDS if other != kind))
    if own is None:
        raise ShapeError(f"there is no {kind} bias here")
    return own, run.array(0.0) if others is None else others


def _added(run: Run, total: Array) -> Run:
    return run.but(scores=run.scores + total)


# --- alibi ---


def with_slopes(slopes: Callable[[AttentionSpec], list[float]]) -> Replacements:
    """The bias stage done with other slopes of alibi."""

    def sloped(run: Run) -> Run:
        return as_if(bias, alibi=Alibi(tuple(slopes(run.spec))))(run)

    return {Stage.BIAS: sloped}


def right_slopes(spec: AttentionSpec) -> list[float]:
    """The slope of each head."""
    return (spec.alibi or Alibi()).slopes_for(spec.num_heads)


def _unstrided(spec: AttentionSpec) -> list[float]:
    below = 1 << (spec.num_heads.bit_length() - 1)
    return (alibi_slopes(below) + alibi_slopes(2 * below))[: spec.num_heads]


def _power_from_zero(spec: AttentionSpec) -> list[float]:
    below = 1 << (spec.num_heads.bit_length() - 1)
    return [2.0 ** (-8 * head / below) for head in range(below)] + right_slopes(spec)[below:]


def _every_second_first(num_heads: int) -> list[float]:
    above = alibi_slopes(2 << (num_heads.bit_length() - 1))
    return (above[0::2] + above[1::2])[:num_heads]


OTHER_SLOPES: dict[str, Callable[[AttentionSpec], list[float]]] = {
    "2^(-8(h+1)/num_heads) for a number of heads that is no power of two": lambda spec: [
        2.0 ** (-8 * (head + 1) / spec.num_heads) for head in range(spec.num_heads)
    ],
    "the heads are counted from 0: 2^(-8h/num_heads)": lambda spec: [
        2.0 ** (-8 * head / spec.num_heads) for head in range(spec.num_heads)
    ],
    "the heads of the power of two below are counted from 0, not the others": _power_from_zero,
    "the heads are counted from 0, in the paper's own row": lambda spec: [1.0, *right_slopes(spec)[:-1]],
    "in the reverse order": lambda spec: right_slopes(spec)[::-1],
    "1/2^(h+1) for head h": lambda spec: [2.0 ** -(head + 1) for head in range(spec.num_heads)],
    "head 0's slope for every head": lambda spec: right_slopes(spec)[:1] * spec.num_heads,
    "all slopes 1": lambda spec: [1.0] * spec.num_heads,
    "the slopes of num_kv_heads heads, shared by groups": lambda spec: [
        alibi_slopes(spec.kv_heads)[head // spec.group_size] for head in range(spec.num_heads)
    ],
    "the slopes of num_kv_heads heads, over and over": lambda spec: [
        alibi_slopes(spec.kv_heads)[head % spec.kv_heads] for head in range(spec.num_heads)
    ],
    "the first slopes of the next power of two": lambda spec: alibi_slopes(1 << (spec.num_heads - 1).bit_length())[
        : spec.num_heads
    ],
    "filled up with the next power's first slopes, not every second one": _unstrided,
    "half the ratio: the square root of each slope": lambda spec: [slope**0.5 for slope in right_slopes(spec)],
    "twice the ratio: each slope squared": lambda spec: [slope**2 for slope in right_slopes(spec)],
    "the next power's slopes, every second one first": lambda spec: _every_second_first(spec.num_heads),
    "sorted by size": lambda spec: sorted(right_slopes(spec), reverse=True),
}
"""Slopes that people use for the right ones, by what they are."""


def _repeated_head_by_head(run: Run) -> Run:
    """One alibi a head and sequence, laid out sequence after sequence for each head, and read the other way about."""
    own, others = _split(run, "alibi")
    batch = run.scores.shape[0]
    unless(batch == 1, "there is one sequence")
    row = run.xp.repeat(own, batch, axis=0)  # head*batch query key
    return _added(run, others + run.xp.reshape(row, (batch, *own.shape)))


def _slope_note(spec: AttentionSpec, inputs: Inputs, value: float) -> str:
    return f"the slopes are the right ones times {named(value, factor_names(spec, inputs))}"


@fault(
    "alibi-slopes",
    Stage.BIAS,
    title="alibi has other slopes than it should",
    explanation=(
        "Each head takes its own slope times the distance off its scores. With other slopes a head looks too near "
        "or too far. The heads whose slope happens to agree are right, and so are rows with a single visible key; 8 "
        "or 16 heads hide a mistake that shows with 6 or 12."
    ),
    repair=(
        "slopes = [2 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)]  # num_heads a power of two\n"
        "# otherwise the row of the power below it, filled up with every second slope of the power above"
    ),
    needs=[ALIBI],
    families=[
        Family(
            lambda factor: with_slopes(lambda spec: [factor * slope for slope in right_slopes(spec)]),
            (1.0, 0.3, 3.0, 0.1, 10.0, 0.01, 100.0),
            _slope_note,
        )
    ],
    commonness=2,
)
def alibi_slopes_wrong(spec: AttentionSpec) -> Ways:
    """``-m'_h |i - j|`` with slopes ``m'`` that belong to other heads, other counts or another formula."""
    if spec.alibi is None:
        return
    seen = {tuple(right_slopes(spec))}
    for note, slopes in OTHER_SLOPES.items():
        if (other := tuple(slopes(spec))) not in seen:
            seen.add(other)
            yield note, with_slopes(slopes)
    yield "repeated over the batch head by head, not sequence by sequence", {Stage.BIAS: _repeated_head_by_head}


@fault(
    "alibi-sign",
    Stage.BIAS,
    title="alibi rewards distance instead of taking it off",
    explanation=(
        "Alibi lowers the score of keys that are far away. With the sign turned it raises them, so the farthest "
        "keys get the most weight. Rows with a single visible key are right; every head is wrong, those with steep "
        "slopes most."
    ),
    repair="attn_scores = attn_scores - slopes[:, None, None] * (query_pos - key_pos).abs()",
    needs=[ALIBI],
    commonness=2,
)
def alibi_sign(spec: AttentionSpec) -> Ways:
    """``+m |i - j|``, or ``m (j - i)`` and ``m (i - j)`` without the absolute value."""
    if spec.alibi is None:
        return

    def signed(sign: float) -> Replacements:
        def added(run: Run) -> Run:
            _, others = _split(run, "alibi")
            query, key = run.token_positions()
            distance = run.array(key[None, :] - query[:, None])
            return _added(run, sign * run.array(right_slopes(run.spec))[:, None, None] * distance + others)

        return {Stage.BIAS: added}

    yield "", with_slopes(lambda spec: [-slope for slope in right_slopes(spec)])
    yield "the distance is not made positive: later keys are raised", signed(1.0)
    yield "the distance is not made positive: earlier keys are raised", signed(-1.0)


@fault(
    "alibi-missing",
    Stage.BIAS,
    title="alibi is left out",
    explanation=(
        "Nothing is taken off the scores of distant keys, so this attention has no notion of order but the mask. "
        "Every row with more than one visible key is wrong, the heads with steep slopes most."
    ),
    repair="attn_scores = attn_scores - slopes[:, None, None] * (query_pos - key_pos).abs()",
    needs=[ALIBI],
    commonness=2,
)
def alibi_missing(spec: AttentionSpec) -> Ways:
    """``softmax(a s)`` for ``softmax(a s - m |i - j|)``; any other bias stays."""
    if spec.alibi is not None:
        yield {Stage.BIAS: as_if(bias, alibi=None)}


# --- any bias ---


@fault(
    "bias-missing",
    Stage.BIAS,
    title="the bias is left out",
    explanation=(
        "A number for each pair of query and key should be added to the scores before softmax, and isn't. Every row "
        "with more than one visible key is wrong, by as much as the bias differs along the row."
    ),
    repair="attn_scores = attn_scores + bias",
    needs=[BIAS],
    commonness=2,
)
def bias_missing(spec: AttentionSpec) -> Ways:
    """``softmax(a s)`` for ``softmax(a s + b)``, for the bias of the call, the relative bias, or both."""

    def without(kind: str) -> Replacements:
        return {Stage.BIAS: lambda run: _added(run, _split(run, kind)[1])}

    def with_nothing(run: Run) -> Run:
        unless(run.inputs.bias is None, "only one kind of bias is left to leave out")
        return run

    yield _WORDS["given"], without("given")
    if spec.relative_bias is not None:
        yield _WORDS["relative"], without("relative")
    if spec.relative_bias is not None or spec.alibi is not None:
        yield "every bias", {Stage.BIAS: with_nothing}


def _scale(run: Run) -> float:
    return run.spec.scale_for(run.query.shape[-1])


@fault(
    "bias-scaled",
    Stage.SCALE,
    title="the bias is multiplied by the scale",
    explanation=(
        "The bias is added to the raw products and then scaled with them, so it counts sqrt(head_dim) times less "
        "than it should. A bias of 0 and minus infinity does not show it. Rows with a single visible key are right."
    ),
    repair="attn_scores = query @ key.transpose(-2, -1) * scale + bias  # scale first, then add",
    needs=[BIAS],
    commonness=2,
)
def bias_scaled(spec: AttentionSpec) -> Ways:
    """``softmax(a (s + b))`` for ``softmax(a s + b)``."""
    if spec.scale == 1:
        return

    def before_the_scale(run: Run) -> Run:
        added = additive_bias(run)
        unless(added is None, "nothing is added to the scores")
        return run.but(scores=(run.scores + added) * _scale(run))

    def one_kind(kind: str) -> Replacements:
        def scaled(run: Run) -> Run:
            own, _ = _split(run, kind)
            return run.but(scores=(run.scores + own) * _scale(run))

        def rest(run: Run) -> Run:
            return _added(run, _split(run, kind)[1])

        return {Stage.SCALE: scaled, Stage.BIAS: rest}

    def scaled_again(run: Run) -> Run:
        done = bias(run)
        unless(done is run, "nothing is added to the scores")
        return done.but(scores=done.scores * _scale(run))

    yield "", {Stage.SCALE: before_the_scale, Stage.BIAS: lambda run: run}
    yield "and the scores a second time with it", {Stage.BIAS: scaled_again}
    for kind, there in (("alibi", spec.alibi), ("relative", spec.relative_bias)):
        if there is not None:
            yield f"only {_WORDS[kind]}", one_kind(kind)
    if spec.alibi is not None or spec.relative_bias is not None:
        yield f"only {_WORDS['given']}", one_kind("given")


@fault(
    "bias-after-softmax",
    Stage.BIAS,
    title="the bias is added to the weights, not to the scores",
    explanation=(
        "A bias belongs into softmax, where it makes keys more or less likely. Added to the finished weights it "
        "breaks their sum of 1 and gives weight to hidden keys. Every row is wrong, the first one too."
    ),
    repair="attn_weights = torch.softmax(attn_scores + bias, dim=-1)",
    needs=[BIAS],
    commonness=1,
)
def bias_after_softmax(spec: AttentionSpec) -> Ways:
    """``softmax(a s) + b``."""

    def then_added(run: Run) -> Run:
        added = additive_bias(run)
        unless(added is None, "nothing is added to the scores")
        done = softmax(run)
        return done.but(weights=done.weights + added)

    yield {Stage.BIAS: lambda run: run, Stage.SOFTMAX: then_added}


@fault(
    "bias-offset-lost",
    Stage.BIAS,
    title="the bias counts the queries from the wrong position",
    explanation=(
        "With a cache the first query of a call is not token 0, and distances must be counted from where it really "
        "stands. Built from the length of the query alone, the bias of every row belongs to another token. With as "
        "many queries as keys nothing shows."
    ),
    repair="query_pos = torch.arange(query_len) + key_len - query_len",
    needs=[BIAS, UNEQUAL_LENGTHS],
    commonness=2,
)
def bias_offset_lost(spec: AttentionSpec) -> Ways:
    """``b(i, j)`` for ``b(i + offset, j)``, or the other way round; alibi and relative bias."""
    if spec.alibi is None and spec.relative_bias is None:
        return
    if spec.query_offset not in (0, "top_left"):
        yield "the first query is taken for token 0", {Stage.BIAS: as_if(bias, query_offset="top_left")}
    if spec.query_offset != "bottom_right":
        yield "the last query is taken for the last key", {Stage.BIAS: as_if(bias, query_offset="bottom_right")}


@fault(
    "relative-bias-index",
    Stage.BIAS,
    title="the bias is read from the wrong place of its table",
    explanation=(
        "A relative bias has one number per distance, key minus query. With the direction turned, the table shifted "
        "or negative distances wrapped around, each pair gets the number of another distance. A table that is "
        "constant hides it; rows with a single visible key are right."
    ),
    repair="bias = table[:, (key_pos[None, :] - query_pos[:, None]).clamp(-reach, reach) + reach]",
    needs=[BIAS],
    commonness=2,
)
def relative_bias_index(spec: AttentionSpec) -> Ways:
    """``b_{i - j}``, ``b_{j - i + 1}``, ``b_{j - i - 1}`` for ``b_{j - i}``; a given bias with its axes swapped."""

    def given_transposed(run: Run) -> Run:
        own, others = _split(run, "given")
        unless(own.ndim < 2 or own.shape[-1] != own.shape[-2], "a bias that is not square can't be transposed")
        return _added(run, run.xp.matrix_transpose(own) + others)

    if spec.relative_bias is not None:
        for note, index in _OTHER_INDICES.items():
            yield note, {Stage.BIAS: _reading(index)}
    yield "the given bias has its axes swapped", {Stage.BIAS: given_transposed}


Index = Callable[[Run, Array, int], Array]
"""From the distances key - query and the table's reach to places in the table."""


def _clipped(run: Run, distance: Array, reach: int) -> Array:
    return run.xp.clip(distance, -reach, reach) + reach


_OTHER_INDICES: dict[str, Index] = {
    "query - key for key - query": lambda run, distance, reach: _clipped(run, -distance, reach),
    "one place too late": lambda run, distance, reach: _clipped(run, distance + 1, reach),
    "one place too early": lambda run, distance, reach: _clipped(run, distance - 1, reach),
    "the reach is not added, so negative distances count from the end": lambda run, distance, reach: (
        run.xp.clip(distance, -reach, reach) % (2 * reach + 1)
    ),
    "the direction is lost": lambda run, distance, reach: _clipped(run, run.xp.abs(distance), reach),
    "the direction is lost, and the distance read from the table's start": lambda run, distance, reach: run.xp.clip(
        run.xp.abs(distance), 0, 2 * reach
    ),
}


def _reading(index: Index) -> Callable[[Run], Run]:
    def read(run: Run) -> Run:
        _, others = _split(run, "relative")
        relative = run.spec.relative_bias
        assert relative is not None
        query, key = run.token_positions()
        places = index(run, key[None, :] - query[:, None], relative.reach)
        flat = run.xp.take(run.array(relative.table), run.xp.reshape(places, (-1,)), axis=1)
        return _added(run, run.xp.reshape(flat, (run.spec.num_heads, *places.shape)) + others)

    return read
