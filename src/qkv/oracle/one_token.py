"""The slow loop: one context vector at a time, in plain Python numbers, the way one would do it by hand.

This is the second derivation of all that the stages compute, and it shares no code with them: no array library, no
``Mask.allows``, no ``rotate``, no ``Rope.frequencies``. What a mask, a rope or a bias means is said here once more, in
words of its own, so that a mistake would have to be made twice to go unseen. Start reading at :func:`context_vector`.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass

from qkv.masks import (
    And,
    Causal,
    Dilated,
    Documents,
    Everything,
    GlobalTokens,
    Mask,
    Not,
    Or,
    Padding,
    Prefix,
    SlidingWindow,
)
from qkv.oracle.inputs import Array, Inputs, Linear, Norm, Parameters
from qkv.positions import Rope, RopeScaling
from qkv.spec import AttentionSpec

Vector = list[float]
NOTHING = -math.inf
"""The score of a key that is not there."""


def all_tokens(spec: AttentionSpec, inputs: Inputs) -> list[list[Vector]]:
    """The output of every token of every sequence, ``(batch, query, width)``, made one token at a time."""
    query_len, _ = lengths(inputs)
    return [
        [one_token(spec, inputs, batch=batch, query=query) for query in range(query_len)]
        for batch in range(len(given(inputs.query, inputs.x)))
    ]


def one_token(spec: AttentionSpec, inputs: Inputs, *, batch: int, query: int) -> Vector:
    """The output of one token: the context vectors of all heads side by side, through the output projection if any.

    Args:
        spec: what to compute.
        inputs: what to compute it from.
        batch: which sequence.
        query: which of its queries, counted from 0.
    """
    _, key_len = lengths(inputs)
    queries = query_heads(spec, inputs, batch, query)
    keys = [key_heads(spec, inputs, batch, key) for key in range(key_len)]
    values = [value_heads(spec, inputs, batch, key) for key in range(key_len)]
    merged: Vector = []
    for head in range(spec.num_heads):
        shared = head // (spec.num_heads // kv_heads(spec))  # the key/value head that this head's group reads
        row = Row(spec, inputs, batch, head, query)
        merged += context_vector(row, queries[head], [key[shared] for key in keys], [value[shared] for value in values])
    parameters = inputs.parameters
    if parameters is None or parameters.out_proj is None or not spec.out_proj:
        return merged
    return projected(merged, parameters.out_proj)


@dataclass(frozen=True)
class Row:
    """One row of weights: one head of one query."""

    spec: AttentionSpec
    inputs: Inputs
    batch: int
    head: int
    query: int

    @property
    def position(self) -> int:
        """Where the query stands among the keys; before or behind all of them when there are more queries than keys."""
        return self.query + first_position(self.spec, self.inputs)

    @property
    def sink(self) -> float:
        """The score of the head's sink."""
        sinks = self.inputs.sinks if self.spec.sinks else None
        return NOTHING if sinks is None else numbers(sinks)[self.head]


# --- one context vector -----------------------------------------------------------------------------------------------


def context_vector(row: Row, query: Vector, keys: list[Vector], values: list[Vector]) -> Vector:
    """The sum of the values, each times its weight. A token's weight says how well its key answers the query."""
    visible = visible_keys(row, len(keys))
    scores = [score(row, query, keys[key], key) for key in visible]
    if max([*scores, row.sink], default=NOTHING) == NOTHING:
        return empty_context(row.spec, values)
    context = [0.0] * len(values[0])
    for key, weight in zip(visible, softmax_row(scores, row.sink), strict=True):
        context = [so_far + weight * channel for so_far, channel in zip(context, values[key], strict=True)]
    return context


def score(row: Row, query: Vector, key: Vector, place: int) -> float:
    """How well the key at ``place`` answers the query: their dot product, scaled, capped, and biased by position."""
    plain = dot(query, key)
    scaled = plain / math.sqrt(len(query)) if row.spec.scale is None else plain * row.spec.scale
    cap = row.spec.softcap
    capped = scaled if cap is None else cap * math.tanh(scaled / cap)
    return capped + position_bias(row, place) + given_bias(row, place)


def softmax_row(scores: list[float], sink: float = NOTHING) -> list[float]:
    """Weights that sum to one. A sink takes part in the sum and gets no value, so that less is left for the keys.

    A row that sees no key but has a sink is not empty: all the weight goes to the sink, and none to any value.
    """
    top = max([*scores, sink])
    shares = [math.exp(score - top) for score in scores]
    total = math.fsum([*shares, math.exp(sink - top)])
    return [share / total for share in shares]


def empty_context(spec: AttentionSpec, values: list[Vector]) -> Vector:
    """What a query gets that may attend to nothing: zeros, NaN, or the mean of all values, hidden ones too."""
    if spec.empty_row == "uniform":
        return [math.fsum(channel) / len(values) for channel in zip(*values, strict=True)]
    return [0.0 if spec.empty_row == "zero" else math.nan] * len(values[0])


# --- who sees whom ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A query and a key, as a mask looks at them."""

    query: int
    key: int
    query_document: int | None
    key_document: int | None
    key_is_token: bool


def visible_keys(row: Row, key_len: int) -> list[int]:
    """The keys that the query may attend to."""
    return [key for key in range(key_len) if may_see(row.spec.mask, pair_of(row, key)) and may_use(row, key)]


def may_see(mask: Mask, pair: Pair) -> bool:
    """Whether the spec's mask lets the query attend to the key."""
    match mask:
        case Everything():
            return True
        case Causal(ahead):
            return pair.key - pair.query <= ahead
        case SlidingWindow(size):
            return abs(pair.query - pair.key) + 1 <= size
        case Prefix(length):
            return pair.key in range(length)
        case Dilated(step):
            return abs(pair.key - pair.query) % step == 0
        case GlobalTokens(count):
            return pair.query < count or pair.key in range(count)
        case Documents(ids=None):
            return pair.query_document == pair.key_document
        case Padding(lengths=None):
            return pair.key_is_token
        case And(left, right):
            return may_see(left, pair) and may_see(right, pair)
        case Or(left, right):
            return may_see(left, pair) or may_see(right, pair)
        case Not(inner):
            return not may_see(inner, pair)
    raise NotImplementedError(f"the slow loop does not know the mask {mask}: say in may_see what it lets a query see")


def may_use(row: Row, key: int) -> bool:
    """Whether the call itself lets the query attend to the key: the key is a token, and the mask argument allows it."""
    return token_at(row, key) and (row.inputs.may_attend is None or bool(entry(row.inputs.may_attend, row, key)))


def pair_of(row: Row, key: int) -> Pair:
    """The query of this row and one key."""
    query = row.position
    return Pair(query, key, document_at(row, query), document_at(row, key), token_at(row, key))


def document_at(row: Row, position: int) -> int | None:
    """The document of the token at a position; None where none are given, or where no token stands there."""
    if row.inputs.document is None:
        return None
    documents = numbers(row.inputs.document[row.batch])
    return int(documents[position]) if position in range(len(documents)) else None


def token_at(row: Row, key: int) -> bool:
    """Whether the key is a token, not padding."""
    return row.inputs.is_token is None or bool(row.inputs.is_token[row.batch][key])


# --- what is added to a score -----------------------------------------------------------------------------------------


def position_bias(row: Row, key: int) -> float:
    """What the distance between query and key adds to their score: alibi, relative bias."""
    added, spec = 0.0, row.spec
    if spec.alibi is not None:
        slope = alibi_slope(row.head, spec.num_heads) if spec.alibi.slopes is None else spec.alibi.slopes[row.head]
        ahead = key - row.position
        added += slope * ahead if spec.alibi.signed else -slope * abs(ahead)
    if spec.relative_bias is not None:
        by_distance = spec.relative_bias.table[row.head]
        middle = len(by_distance) // 2
        added += by_distance[min(max(middle + key - row.position, 0), len(by_distance) - 1)]
    return added


def alibi_slope(head: int, num_heads: int) -> float:
    """The slope of one head: ``ratio^1, ratio^2, …``, the last of a power of two of heads being ``2^-8``.

    Heads beyond the largest power of two stand between the first ones, as if there were twice that power.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    if head < power:
        return 1 / 2 ** (8 * (head + 1) / power)
    return 1 / 2 ** (8 * (head - power + 0.5) / power)


def given_bias(row: Row, key: int) -> float:
    """What the call itself adds to the score."""
    return 0.0 if row.inputs.bias is None else entry(row.inputs.bias, row, key)


# --- query, key and value of one token --------------------------------------------------------------------------------


def query_heads(spec: AttentionSpec, inputs: Inputs, batch: int, token: int) -> list[Vector]:
    """The query of one token, one vector per head."""
    if inputs.query is not None:
        heads = [numbers(head[token]) for head in inputs.query[batch]]
    else:
        heads = cut(projected(numbers(given(inputs.x)[batch][token]), learned(inputs).q_proj), spec.num_heads)
    heads = normed(spec, heads, inputs.parameters.q_norm if inputs.parameters else None)
    return [turned(head, token + first_position(spec, inputs), spec.rope) for head in heads]


def key_heads(spec: AttentionSpec, inputs: Inputs, batch: int, token: int) -> list[Vector]:
    """The key of one token, one vector per key/value head."""
    if inputs.key is not None:
        heads = [numbers(head[token]) for head in inputs.key[batch]]
    else:
        source = given(inputs.source, inputs.x)
        heads = cut(projected(numbers(source[batch][token]), learned(inputs).k_proj), kv_heads(spec))
    heads = normed(spec, heads, inputs.parameters.k_norm if inputs.parameters else None)
    return [turned(head, token, spec.rope) for head in heads]


def value_heads(spec: AttentionSpec, inputs: Inputs, batch: int, token: int) -> list[Vector]:
    """The value of one token, one vector per key/value head."""
    if inputs.value is not None:
        return [numbers(head[token]) for head in inputs.value[batch]]
    source = given(inputs.value_source, inputs.source, inputs.x)
    return cut(projected(numbers(source[batch][token]), learned(inputs).v_proj), kv_heads(spec))


def projected(vector: Vector, projection: Linear) -> Vector:
    """One dot product with each row of the projection's weight, plus its bias."""
    rows = projection.weight.tolist()
    biases = [0.0] * len(rows) if projection.bias is None else numbers(projection.bias)
    return [dot(row, vector) + bias for row, bias in zip(rows, biases, strict=True)]


def normed(spec: AttentionSpec, heads: list[Vector], norm: Norm | None) -> list[Vector]:
    """The heads normalised: each by itself, or all together as one long vector, or not at all."""
    norm = Norm() if norm is None else norm
    match spec.qk_norm:
        case None:
            return heads
        case "head":
            return [normed_vector(head, norm) for head in heads]
        case "width":
            return cut(normed_vector([channel for head in heads for channel in head], norm), len(heads))


def normed_vector(vector: Vector, norm: Norm) -> Vector:
    """A vector brought to one size, whatever its own was; then the learned weight and bias."""
    if norm.kind == "layer":
        mean = math.fsum(vector) / len(vector)
        vector = [channel - mean for channel in vector]
    if norm.kind == "l2":
        size = max(math.hypot(*vector), norm.eps)
    else:
        size = math.sqrt(math.fsum(channel**2 for channel in vector) / len(vector) + norm.eps)
    weights = [1.0] * len(vector) if norm.weight is None else [norm.plus_one + w for w in numbers(norm.weight)]
    biases = [0.0] * len(vector) if norm.bias is None else numbers(norm.bias)
    return [weight * channel / size + bias for channel, weight, bias in zip(vector, weights, biases, strict=True)]


# --- rope -------------------------------------------------------------------------------------------------------------


def turned(vector: Vector, position: int, rope: Rope | None) -> Vector:
    """The vector with each pair of its channels turned. A pair is one complex number, and turning it a product."""
    if rope is None:
        return vector
    dims = len(vector) if rope.dims is None else rope.dims
    result, stretch = list(vector), yarn_stretch(rope.scaling)
    for pair in range(dims // 2):
        first, second = (pair, pair + dims // 2) if rope.pairing == "halves" else (2 * pair, 2 * pair + 1)
        angle = position * speed(rope, dims, pair)
        product = complex(vector[first], vector[second]) * cmath.rect(stretch, angle)
        result[first], result[second] = product.real, product.imag
    return result


def speed(rope: Rope, dims: int, pair: int) -> float:
    """By how many radians a pair turns from one token to the next."""
    plain, scaling = plain_speed(rope, dims, pair), rope.scaling
    if scaling is None:
        return plain
    kept = kept_part(rope, scaling, dims, pair)
    return kept * plain + (1 - kept) * plain / scaling.factor


def plain_speed(rope: Rope, dims: int, pair: int) -> float:
    """The speed without any scaling: the first pair turns by one radian, the last by almost ``1/base``."""
    return 1 / rope.base ** (2 * pair / dims)


def kept_part(rope: Rope, scaling: RopeScaling, dims: int, pair: int) -> float:
    """How much of its own speed a pair keeps: 1 is all of it, 0 means that it's slowed by the whole factor."""
    match scaling.kind:
        case "linear":
            return 0.0
        case "llama3":  # by wavelength: short waves stay, long ones are stretched, with a ramp between
            wavelength = 2 * math.pi / plain_speed(rope, dims, pair)
            fits = scaling.original_length / wavelength
            return between(scaling.low_freq_factor, fits, scaling.high_freq_factor)
        case "yarn":
            turns = [scaling.original_length * plain_speed(rope, dims, i) / (2 * math.pi) for i in range(dims)]
            return kept_in_yarn(scaling, turns, pair)


def kept_in_yarn(scaling: RopeScaling, turns: Vector, pair: int) -> float:
    """The part kept on yarn's ramp, which runs from ``beta_fast`` turns over the original length down to ``beta_slow``.

    Its ends are pairs: the last that is fast and the first that is slow. Where it isn't truncated to pairs, the ramp is
    straight in the logarithm of the turns. It never begins before the first pair.
    """
    if not scaling.truncate:
        slow, fast = max(scaling.beta_slow, turns[-1]), min(scaling.beta_fast, turns[0])
        return between(math.log(slow), math.log(turns[pair]), math.log(fast))
    last_fast = max((i for i, count in enumerate(turns) if count >= scaling.beta_fast), default=0)
    first_slow = min((i for i, count in enumerate(turns) if count <= scaling.beta_slow), default=len(turns) - 1)
    return 1 - between(last_fast, pair, first_slow)


def between(low: float, number: float, high: float) -> float:
    """How far a number has come from ``low`` to ``high``: 0 up to ``low``, 1 from ``high`` on."""
    if number <= low:
        return 0.0
    return 1.0 if number >= high else (number - low) / (high - low)


def yarn_stretch(scaling: RopeScaling | None) -> float:
    """What yarn multiplies the turned channels by."""
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    return 1 + math.log(max(1, scaling.factor)) / 10 if scaling.attention_factor is None else scaling.attention_factor


# --- numbers ----------------------------------------------------------------------------------------------------------


def dot(left: Vector, right: Vector) -> float:
    """The sum of the products, channel by channel."""
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def cut(vector: Vector, parts: int) -> list[Vector]:
    """The vector cut into parts of equal length: a token's heads."""
    size = len(vector) // parts
    return [vector[part * size : (part + 1) * size] for part in range(parts)]


def entry(array: Array, row: Row, key: int) -> float:
    """The entry of a mask or bias argument for one pair. An axis that is left out, or is 1 long, serves all alike."""
    place = (row.batch, row.head, row.query, key)[4 - len(array.shape) :]
    for index, size in zip(place, array.shape, strict=True):
        array = array[0 if size == 1 else index]
    return float(array)


def numbers(array: Array) -> Vector:
    """A row of an array as plain Python numbers."""
    return [float(number) for number in array.tolist()]


def given(*arrays: Array | None) -> Array:
    """The first of the arrays that is given."""
    return next(array for array in arrays if array is not None)


def learned(inputs: Inputs) -> Parameters:
    """The parameters, which inputs made of tokens must have."""
    if inputs.parameters is None:
        raise ValueError("Inputs has tokens and no parameters: pass Inputs(x=…, parameters=Parameters(…))")
    return inputs.parameters


def kv_heads(spec: AttentionSpec) -> int:
    """How many key/value heads there are."""
    return spec.num_kv_heads or spec.num_heads


def lengths(inputs: Inputs) -> tuple[int, int]:
    """How many queries and how many keys each sequence has."""
    queries = given(inputs.x)[0] if inputs.query is None else inputs.query[0][0]
    keys = given(inputs.source, inputs.x)[0] if inputs.key is None else inputs.key[0][0]
    return len(queries), len(keys)


def first_position(spec: AttentionSpec, inputs: Inputs) -> int:
    """Where the first query stands among the keys."""
    query_len, key_len = lengths(inputs)
    match spec.query_offset:
        case "top_left":
            return 0
        case "bottom_right":
            return key_len - query_len
        case int(position):
            return position
