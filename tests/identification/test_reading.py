"""What is read off a box, part by part: its weights, its masks, its rotations and the names of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import qkv
from qkv.adapters.calling import Caller
from qkv.adapters.opening import Conventions
from qkv.errors import SpecError
from qkv.identification import functions
from qkv.identification.biases import biases_of
from qkv.identification.box import Sizes
from qkv.identification.constants import Reading, name_of, rounded
from qkv.identification.mask_rules import allowed_by, drawn, rule_of
from qkv.identification.pairing import codes, of_pairs
from qkv.identification.rotation import frequencies, offset_at, rope_of, turning
from qkv.identification.routing import plain_routing
from qkv.identification.weights import WeightReader
from qkv.masks import Causal, Dilated, Everything, GlobalTokens, Mask, Prefix, SlidingWindow, parse_mask
from qkv.positions import Rope, RopeScaling, rotate
from qkv.report.identity_form import in_short
from qkv.request import Request
from qkv.spec import spec_from_mapping, spec_to_mapping

Array = np.ndarray[Any, np.dtype[np.float64]]
NOISE = 2.0**-52


def weights_of(query: Array, key: Array, sink: float = -np.inf) -> Array:
    shares = np.exp(query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5)
    weights: Array = shares / (shares.sum(axis=-1, keepdims=True) + np.exp(sink))
    return weights


def counted(value_dim: int | None = None, sink: float = -np.inf) -> tuple[Callable[..., Array], list[int]]:
    """Softmax attention that takes values of as many channels as it is told to, and the widths it was called with."""
    calls: list[int] = []

    def attention(query: Array, key: Array, value: Array) -> Array:
        if value_dim is not None and value.shape[-1] != value_dim:
            raise ValueError(f"values have {value.shape[-1]} channels, and must have {value_dim}")
        calls.append(value.shape[-1])
        return weights_of(query, key, sink) @ value

    return attention, calls


QUERY, KEY = (np.random.default_rng(seed).normal(size=(2, 3, length, 4)) for seed, length in ((0, 5), (1, 9)))


def test_weights_are_read_in_one_call_where_values_may_be_as_wide_as_keys_are_many() -> None:
    function, calls = counted()
    assert np.array_equal(qkv.read_weights(function, QUERY, KEY), weights_of(QUERY, KEY))
    assert calls == [9]


def test_narrow_values_ride_in_the_batch() -> None:
    function, calls = counted(value_dim=4)
    assert np.array_equal(qkv.read_weights(function, QUERY, KEY), weights_of(QUERY, KEY))
    assert calls == [4]  # nine keys in values of four channels: three blocks of one call


def test_weights_without_a_batch_take_as_many_calls_as_there_are_blocks() -> None:
    function, calls = counted(value_dim=4)
    read = qkv.read_weights(function, QUERY[0], KEY[0], layout="HTD")
    assert np.array_equal(read[0], weights_of(QUERY[:1], KEY[:1])[0])
    assert calls == [4, 4, 4]


def test_a_sink_shows_in_what_rows_sum_to() -> None:
    function, _ = counted(sink=0.5)
    sums = qkv.read_weights(function, QUERY, KEY).sum(axis=-1)
    assert np.allclose(sums, weights_of(QUERY, KEY, 0.5).sum(axis=-1))
    assert (sums < 1).all()


def reader_of(function: Callable[..., Array]) -> WeightReader:
    request = Request(function, {"num_heads": 3, "num_kv_heads": 3, "head_dim": 4, "value_dim": 4})
    host = request.host()
    facts = host.open(request.to_open)
    box = next(functions(Caller(host, facts.framework), facts, request.given, Conventions("BHTD")))
    return WeightReader(box, plain_routing(box.sizes))


def test_the_weights_on_a_few_keys_take_no_wider_values() -> None:
    function, calls = counted()
    reader = reader_of(function)
    assert np.array_equal(reader.weights(QUERY, KEY, (7, 2, 0)), weights_of(QUERY, KEY)[..., [7, 2, 0]])
    assert calls == [4]


def test_some_keys_stand_for_all_where_reading_all_takes_long() -> None:
    for value_dim, read in ((None, 300), (4, 32)):
        reader = reader_of(counted(value_dim)[0])
        zeros = np.zeros((1, 3, 300, 4))
        assert reader.weights(zeros, zeros).shape[-1] == 300
        some = reader.some_keys(300)
        assert (len(set(some)), min(some), max(some)) == (read, 0, 299)
        assert reader.some_keys(9) == list(range(9))


def forms_of(angles: Array, pairs: tuple[tuple[int, int], ...], width: int) -> Array:
    """Forms of one head that turn these pairs by ``(key, pair)`` angles."""
    forms = np.tile(0.25 * np.eye(width), (1, len(angles), 1, 1))
    for number, (first, second) in enumerate(pairs):
        cosine, sine = 0.25 * np.cos(angles[:, number]), 0.25 * np.sin(angles[:, number])
        forms[0, :, first, first] = forms[0, :, second, second] = cosine
        forms[0, :, second, first], forms[0, :, first, second] = sine, -sine
    return forms


@pytest.mark.parametrize("pairs", [((0, 1), (2, 3), (4, 5)), ((0, 3), (1, 4), (2, 5)), ((0, 17), (3, 9), (5, 31))])
@pytest.mark.parametrize("known", [False, True])
def test_forms_that_pair_channels_are_read_with_a_few_queries_of_signs(pairs: Any, known: bool) -> None:
    forms = forms_of(np.array([[0.4, 1.5, 1e-5], [2.0, 3.1, 2e-5]]), pairs, 32)
    signs, may_pair = codes(32, pairs if known else ())
    assert len(signs) == (2 if known else 9)
    read = of_pairs(np.einsum("qb,hkbc->qhkc", signs, forms), signs, may_pair, NOISE)
    assert read is not None
    assert np.abs(read - forms).max() < 1e-15


@given(st.tuples(*[st.integers(0, 31)] * 3).filter(lambda channels: len(set(channels)) == 3))
def test_forms_with_a_third_channel_in_a_column_are_not_taken_for_pairs(channels: tuple[int, int, int]) -> None:
    forms = forms_of(np.array([[0.4]]), (channels[:2],), 32)
    forms[0, 0, channels[2], channels[0]] = 0.01
    signs, may_pair = codes(32)
    assert of_pairs(np.einsum("qb,hkbc->qhkc", signs, forms), signs, may_pair, NOISE) is None


MASKS = [
    Everything(),
    *(Causal(ahead) for ahead in (-2, 0, 1)),
    *(SlidingWindow(size) for size in (1, 2, 5)),
    *(Causal() & SlidingWindow(size) for size in (2, 4)),
    Causal(2) & SlidingWindow(5),
    SlidingWindow(4) & ~Causal(-2),
    Causal() | Prefix(3),
    (Causal() & SlidingWindow(3)) | Prefix(2),
    Prefix(4),
    SlidingWindow(2) | GlobalTokens(2),
    Dilated(3),
    Causal() & Dilated(2),
    Causal() & SlidingWindow(7) & Dilated(2),
    Causal() & (SlidingWindow(3) | Prefix(1)),
    Causal() & (SlidingWindow(4) | Prefix(2)),
    Causal() & (SlidingWindow(3) | Dilated(4)),
    SlidingWindow(2) | Dilated(3),
]
LENGTHS = ((12, 12), (5, 9), (9, 5), (1, 8))
UNSEEN = ((20, 20), (3, 14), (14, 6))


@pytest.mark.parametrize("offset", ["bottom_right", "top_left", 3])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_a_mask_is_found_again_from_the_sets_it_makes(mask: Mask, offset: Any) -> None:
    sets = {lengths: allowed_by(mask, offset, lengths) for lengths in LENGTHS}
    rule = rule_of(sets, (12, 12))
    assert rule is not None
    for lengths in (*LENGTHS, *UNSEEN):
        assert (allowed_by(rule.mask, rule.offsets[0], lengths) == allowed_by(mask, offset, lengths)).all()


@pytest.mark.parametrize("mask", [Everything(), Causal(), SlidingWindow(5), Dilated(4)], ids=str)
def test_a_bias_by_distance_is_found_to_the_last_digits_whatever_the_mask(mask: Mask) -> None:
    allowed = allowed_by(mask, 0, (96, 96))
    distance = np.subtract.outer(-np.arange(96), -np.arange(96))
    numbers = np.random.default_rng(0).normal(size=192)
    shares = np.where(allowed, np.exp(numbers[distance + 96]), 0.0)
    table = biases_of(shares / shares.sum(axis=-1, keepdims=True), allowed, NOISE, 0).table
    assert table is not None
    assert set(table) == set(distance[allowed])
    assert max(abs(number - numbers[step + 96] + numbers[96]) for step, number in table.items()) < 1e-13


def test_documents_are_found_with_the_place_of_each() -> None:
    numbers = (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2)
    mask = parse_mask("causal & documents")
    rule = rule_of({(12, 12): allowed_by(mask, "top_left", (12, 12), numbers)}, (12, 12))
    assert rule is not None
    assert (rule.mask, rule.documents) == (mask, numbers)


def test_a_set_without_a_rule_is_drawn() -> None:
    seen = np.random.default_rng(0).random((5, 5)) < 0.5
    assert rule_of({(5, 5): seen}, (5, 5)) is None
    assert [[mark == "#" for mark in line] for line in drawn(seen).splitlines()] == seen.tolist()


def test_heads_with_masks_of_their_own_are_a_spec_that_a_check_accepts() -> None:
    def layered(query: Array, key: Array, value: Array) -> Array:
        scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
        back = np.arange(query.shape[2])[:, None] + key.shape[2] - query.shape[2] - np.arange(key.shape[2])
        for head in range(query.shape[1]):
            scores[:, head] = np.where((back >= 0) & (back < (9 if head % 3 else 4)), scores[:, head], -np.inf)
        with np.errstate(invalid="ignore"):  # rows without keys
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return shares / shares.sum(axis=-1, keepdims=True) @ value

    read = qkv.identify(layered)
    assert read.spec is not None
    one, other = "causal & window(4)", "causal & window(9)"
    assert str(read.spec.mask) == f"per_head([{', '.join([one, other, other] * (read.spec.num_heads // 3))}])"
    assert qkv.check(layered, spec_to_mapping(read.spec)).verdict == "right"


def test_a_spec_with_sets_that_nothing_explains_is_no_spec_without_a_mask() -> None:
    def attention(query: Array, key: Array, value: Array) -> Array:
        at, to = np.ogrid[: query.shape[-2], : key.shape[-2]]
        shares = np.exp(query @ np.swapaxes(key, -1, -2)) * ((to <= at) & ((at * 7 + to * 3) % 5 < 4))
        context: Array = shares / shares.sum(axis=-1, keepdims=True) @ value
        return context

    identity = qkv.identify(attention)
    assert identity.spec is not None
    assert not identity.known
    said = spec_to_mapping(identity.spec)
    assert said["mask"] == "unexplained"
    with pytest.raises(SpecError, match="unexplained"):
        spec_from_mapping(said)
    picture = next(iter(identity.pictures.values())).splitlines()
    assert any("#.#" in line for line in picture)  # where it is no causal mask
    assert in_short(identity).endswith("under this spec, with the sets of keys that were seen handed over besides")


ROPES = [
    Rope(),
    Rope("adjacent"),
    Rope("halves", 500000.0),
    Rope("adjacent", 141.73, dims=6),
    Rope("halves", 10000.0, scaling=RopeScaling("linear", 2.5)),
    Rope("halves", 500000.0, scaling=RopeScaling("llama3", 8.0)),
    Rope("halves", 10000.0, scaling=RopeScaling("yarn", 40.0, 4096)),
]


@pytest.mark.parametrize("step", [1, 4], ids=["every key", "every fourth key"])
@pytest.mark.parametrize("rope", ROPES, ids=str)
def test_a_rope_is_found_from_the_forms_of_one_row(rope: Rope, step: int) -> None:
    width, scale, row, offset = 16, 0.3, 40, 2
    keys = np.arange(0, 41, step)
    turn = [
        rotate(np.eye(width)[:, None, :], np.array([at]), np.array(rope.frequencies(width)), rope.pairing)[:, 0]
        for at in (row + offset, *keys)
    ]
    forms = np.stack([scale * turn[0] @ key.T for key in turn[1:]])
    turned = turning(forms, NOISE)
    assert turned.residual < 1e-12
    found = frequencies(turned.angles, (keys - row).astype(float), NOISE)
    again, error = rope_of(found, turned.pairs, width, NOISE)
    assert again is not None
    assert again.pairing == rope.pairing
    assert np.allclose(again.frequencies(width), rope.frequencies(width), rtol=1e-9)
    assert again.rotary_dims(width) == rope.rotary_dims(width)
    assert error < 1e-6
    if step == 1:
        assert round(offset_at(found, turned.angles[:, 0], float(keys[0] - row), NOISE)) == offset


def test_a_scale_alone_turns_nothing() -> None:
    turned = turning(np.stack([0.5 * np.eye(6)] * 4), NOISE)
    assert (turned.scale, turned.pairs) == (0.5, ())


@settings(max_examples=60)
@given(
    name=st.sampled_from(["1/sqrt(head_dim)", "1", "1/head_dim", "1/sqrt(embed_dim)", "log(key_len)/sqrt(head_dim)"]),
    sizes=st.lists(
        st.tuples(st.integers(2, 9), st.integers(5, 70), st.integers(5, 90)), min_size=2, max_size=3, unique=True
    ),
)
def test_a_scale_is_named_by_the_formula_that_holds_at_every_size(name: str, sizes: list[tuple[int, int, int]]) -> None:
    from qkv.identification.constants import FORMULAS

    readings = [
        Reading(at, FORMULAS[name](at), 1e-15)
        for at in (Sizes(heads, heads, width, width, tokens) for heads, width, tokens in sizes)
    ]
    named = name_of(readings)
    assert all(np.isclose(FORMULAS[named](reading.sizes), reading.value) for reading in readings if named in FORMULAS)
    assert named


def test_a_number_that_no_size_moves_is_not_taken_for_a_formula() -> None:
    sizes = [Sizes(6, 6, width, width, 7) for width in (8, 12)]
    assert name_of([Reading(at, 0.125, 1e-15) for at in sizes]) == "1/sqrt(64), whatever head_dim is"
    assert name_of([Reading(at, 1 / at.head_dim, 1e-15) for at in sizes]) == "1/head_dim"
    assert name_of([Reading(at, 0.1234, 1e-15) for at in sizes]) == ""


@pytest.mark.parametrize(
    ("value", "error", "short"),
    [(29.9999999, 1e-6, 30.0), (0.123456, 1e-12, 0.123456), (0.35355337, 1e-6, 0.3535534), (29.4, 1.3, 29.4)],
)
def test_numbers_are_as_short_as_their_error_lets_them_be(value: float, error: float, short: float) -> None:
    assert rounded(value, error) == short


def test_what_a_function_does_by_default_is_read() -> None:
    def attention(query: Array, key: Array, value: Array, is_causal: bool = True, scale: float = 0.2) -> Array:
        scores = scale * query @ np.swapaxes(key, -1, -2)
        if is_causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context: Array = shares / shares.sum(axis=-1, keepdims=True) @ value
        return context

    identity = qkv.identify(attention)
    assert identity.known
    assert identity.spec is not None
    assert (identity.spec.mask, identity.spec.scale) == (Causal(), 0.2)


def test_sinks_that_are_handed_over_are_read_back() -> None:
    def attention(query: Array, key: Array, value: Array, sinks: Array) -> Array:
        shares = np.exp(query @ np.swapaxes(key, -1, -2))
        context: Array = shares / (shares.sum(axis=-1, keepdims=True) + np.exp(sinks)[:, None, None]) @ value
        return context

    identity = qkv.identify(attention, {"num_heads": 3})
    assert identity.known
    assert [head["sink"] for head in identity.per_head] == pytest.approx([-0.5, 0.0, 0.5])


def test_hidden_keys_that_keep_a_score_are_hidden_all_the_same() -> None:
    def attention(query: Array, key: Array, value: Array) -> Array:
        scores = np.where(np.tri(query.shape[-2], key.shape[-2], dtype=bool), query @ np.swapaxes(key, -1, -2), -25.0)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context: Array = shares / shares.sum(axis=-1, keepdims=True) @ value
        return context

    identity = qkv.identify(attention)
    assert identity.spec is not None
    assert identity.spec.mask == Causal()
    assert any("hidden keys keep a score of -25" in reading for reading in identity.readings)


def test_interrupted_it_answers_with_what_it_knows() -> None:
    def attention(query: Array, key: Array, value: Array) -> Array:
        if key.shape[-2] == 96:  # while it looks at which keys are visible in long inputs
            raise KeyboardInterrupt
        return weights_of(query, key) @ value

    identity = qkv.identify(attention)
    assert (identity.spec, identity.exit_code) == (None, 3)
    assert identity.why == "it was interrupted before all questions were asked"
    assert "empty rows" in identity.undecided[0]
    assert [head["kv_head"] for head in identity.per_head] == list(range(6))


def test_a_norm_that_divides_zeros_by_zero_is_said_to_be_no_plain_product() -> None:
    def cosine(query: Array, key: Array, value: Array) -> Array:
        with np.errstate(all="ignore"):
            query, key = (array / np.linalg.norm(array, axis=-1, keepdims=True) for array in (query, key))
        shares = np.exp(5 * query @ np.swapaxes(key, -1, -2))
        weighed: Array = shares / shares.sum(axis=-1, keepdims=True) @ value
        return weighed

    identity = qkv.identify(cosine, {"num_heads": 3, "head_dim": 6})
    assert "scores grow neither in a straight line" in identity.why


def rounded_attention(dtype: str, scale: float, sinks: Array) -> Callable[..., Array]:
    """Causal attention of three heads that computes in ``dtype``."""

    def attention(query: Array, key: Array, value: Array) -> Array:
        query, key, value = (array.astype(dtype) for array in (query, key, value))
        scores = query @ np.swapaxes(key, -1, -2) * np.asarray(scale, dtype)
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, np.asarray(-np.inf, dtype))
        with np.errstate(all="ignore"):
            shares = np.exp(scores)
            weights = shares / (shares.sum(axis=-1, keepdims=True) + np.exp(sinks.astype(dtype))[:, None, None])
        return np.asarray(weights @ value, dtype)

    return attention


def test_constants_of_many_digits_are_known_as_well_as_their_precision_lets_them_be() -> None:
    sinks = np.array([-0.674099, 0.797285, -1.407257])
    identity = qkv.identify(rounded_attention("float32", 0.3535533906, sinks), {"num_heads": 3, "head_dim": 6})
    assert identity.known
    assert identity.spec is not None
    assert identity.spec.scale == pytest.approx(0.3535533906, rel=1e-6)
    assert [head["sink"] for head in identity.per_head] == pytest.approx(sinks.tolist(), abs=1e-4)


def test_half_precision_shows_sinks_in_rows_of_few_keys() -> None:
    sinks = np.array([-0.5, 0.75, -1.25])
    identity = qkv.identify(rounded_attention("float16", 0.25, sinks), {"num_heads": 3, "head_dim": 6})
    assert [head["sink"] for head in identity.per_head] == pytest.approx(sinks.tolist(), abs=0.05)
