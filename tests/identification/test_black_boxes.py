"""The black boxes compute what their description says: every builder gives the numbers of the loop over scores."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from benchmarks import identification
from benchmarks.black_boxes import Drawn, builders_for, by_rows, drawn_from, seen
from benchmarks.black_boxes.arrays import in_numpy
from benchmarks.black_boxes.drawn import Rotation, Visible
from benchmarks.black_boxes.draws import FEATURES
from benchmarks.black_boxes.tensors import in_torch
from benchmarks.black_boxes.truths import answers

import qkv
from qkv.masks import parse_mask
from qkv.positions import Alibi, RelativeBias, Rope, RopeScaling
from qkv.report import CandidateWords
from qkv.report.identity import Identity
from qkv.spec import AttentionSpec

SEEDS = range(60)
LENGTHS = [(7, 7), (4, 9), (9, 4), (1, 6)]
ROUNDING = {"float64": 1e-12, "float32": 2e-5}


def inputs(drawn: Drawn, query_len: int, key_len: int) -> list[Any]:
    rng = np.random.default_rng(drawn.seed)
    shapes = [
        (2, drawn.num_heads, query_len, drawn.head_dim),
        (2, drawn.num_kv_heads, key_len, drawn.head_dim),
        (2, drawn.num_kv_heads, key_len, drawn.value_dim),
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return [array.swapaxes(1, 2) for array in arrays] if drawn.layout == "BTHD" else arrays


def answer(style: str, box: Any, arrays: list[Any], dtype: str) -> Any:
    arrays = [array.astype(dtype) for array in arrays]
    if style == "numpy":
        return box(*arrays)
    return box(*(torch.from_numpy(array) for array in arrays)).numpy()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_builder_gives_the_numbers_of_the_loop(seed: int) -> None:
    drawn = drawn_from(seed)
    query_len, key_len = LENGTHS[seed % len(LENGTHS)]
    arrays = inputs(drawn, query_len, key_len)
    expected = by_rows(drawn, *arrays)
    for (style, build), dtype in itertools.product(builders_for(drawn).items(), ROUNDING):
        got = answer(style, build(drawn, None), arrays, dtype)
        assert got.dtype == dtype, style
        assert got.shape == expected.shape, style
        if not drawn.dropout_p:
            bar = 1e-2 if drawn.half_inside else ROUNDING[dtype]
            assert np.allclose(got, expected, rtol=bar, atol=bar, equal_nan=True), (style, dtype, str(drawn))


def test_a_box_answers_in_the_dtype_it_was_built_for() -> None:
    drawn = drawn_from(0)
    for style, build in builders_for(drawn).items():
        assert answer(style, build(drawn, "float32"), inputs(drawn, 5, 5), "float64").dtype == "float32"


def test_dropout_left_on_is_right_in_the_mean() -> None:
    drawn = next(drawn for drawn in map(drawn_from, itertools.count()) if drawn.dropout_p)
    arrays = inputs(drawn, 5, 5)
    expected = by_rows(drawn, *arrays)
    for style, build in builders_for(drawn).items():
        runs = np.stack([answer(style, build(drawn, None), arrays, "float64") for _ in range(400)])
        assert np.ptp(runs, axis=0).max() > 0.01, style
        assert np.nanmax(np.abs(runs.mean(axis=0) - expected) / (runs.std(axis=0) + 1e-9)) < 6 / 400**0.5, style


def test_200_draws_have_every_feature_and_most_pairs_of_features() -> None:
    pairs: Counter[tuple[str, ...]] = Counter()
    for seed in range(200):
        pairs.update(itertools.combinations(features(drawn_from(seed)), 2))
    singles = {name for pair in pairs for name in pair}
    assert singles == set(FEATURES)
    assert len(pairs) > 60  # of 78, less the few that exclude each other


def features(drawn: Drawn) -> list[str]:
    plain = {"visible": "everything", "softmax_base": "e"}
    names = {"visible": "mask"}
    fields = [name for name in (*FEATURES, "visible") if name != "mask"]
    changed = [name for name in fields if str(getattr(drawn, name)) not in (plain.get(name), "None", "False", "0.0")]
    return sorted(names.get(name, name) for name in changed)


def test_an_ordinary_causal_window_sees_what_it_is_known_to_see() -> None:
    drawn = next(
        drawn for drawn in map(drawn_from, itertools.count())
        if str(drawn.visible) == "causal window 3" and drawn.offset == "bottom_right"
    )  # fmt: skip
    assert seen(drawn, 2, 5).astype(int).tolist() == [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]


# --- the marking of answers -------------------------------------------------------------------------------------------


BOX = CandidateWords("box")
PLAIN = Drawn(0, "BHTD", 4, 2, 8, 6, 8**-0.5, visible=Visible(causal=True, window=3), offset="bottom_right")
PLAIN_ANSWER = AttentionSpec(4, 2, 8, 6, mask=parse_mask("causal & window(3)"))


def verdicts(drawn: Drawn, identity: Identity) -> dict[str, str]:
    return {answer.option: answer.verdict for answer in answers(drawn, identity)}


def test_a_perfect_answer_is_right_in_every_option() -> None:
    drawn = replace(
        PLAIN, softcap=20.0, sinks=(1.0, 2.0, -0.5, 0.25), softmax_base="2", rope=Rotation("adjacent", 500.0, 6, 2.0)
    )
    log2 = math.log(2)
    spec = PLAIN_ANSWER.but(
        scale=8**-0.5 * log2, softcap=20 * log2, sinks=True,
        rope=Rope("adjacent", 500.0, 6, RopeScaling("linear", 2.0)), empty_row="zero",
    )  # fmt: skip
    per_head = [{"kv_head": head // 2, "sink": sink * log2} for head, sink in enumerate(drawn.sinks or ())]
    assert set(verdicts(drawn, Identity(BOX, spec, per_head)).values()) == {"right"}


WRONG_ANSWERS = {
    "scale": {"scale": 8**-0.5 * 1.001},
    "softcap": {"softcap": 30.0},
    "mask": {"mask": parse_mask("causal & window(4)")},
    "alibi slopes": {"alibi": Alibi()},
    "sinks": {"sinks": True},
    "kv heads": {"num_kv_heads": 4},
    "rope dims": {"rope": Rope()},
    "bias by distance": {"relative_bias": RelativeBias(((0.0, 1.0, 2.0),) * 4)},
}


@pytest.mark.parametrize("option", WRONG_ANSWERS)
def test_a_wrong_answer_is_wrong_where_it_is_wrong(option: str) -> None:
    told = verdicts(PLAIN, Identity(BOX, PLAIN_ANSWER.but(**WRONG_ANSWERS[option])))
    assert {name for name, verdict in told.items() if verdict != "right"} - {option} <= {
        "rope pairing",
        "rope base",
        "rope factor",
    }
    assert told[option] == "wrong"


def test_the_other_corner_is_another_mask() -> None:
    told = verdicts(PLAIN, Identity(BOX, PLAIN_ANSWER.but(query_offset="top_left")))
    assert told["mask"] == "wrong"


def test_what_an_answer_leaves_open_is_undecided() -> None:
    nothing = verdicts(PLAIN, Identity(BOX, None, why="it raised"))
    assert set(nothing.values()) == {"undecided"}
    partly = Identity(BOX, PLAIN_ANSWER.but(scale=1.0), undecided=["the scale could not be read"])
    assert verdicts(PLAIN, partly)["scale"] == "undecided"


def test_tiled_heads_moved_heads_and_a_bias_up_to_a_constant_are_read_per_head() -> None:
    bias = np.random.default_rng(0).normal(size=(4, 5))
    drawn = replace(PLAIN, tiled=True, distance_bias=bias)
    table = tuple(tuple(row) for row in bias + 3.0)
    identity = Identity(BOX, PLAIN_ANSWER.but(relative_bias=RelativeBias(table)))
    assert verdicts(drawn, identity)["kv heads"] == "wrong"
    assert (
        verdicts(drawn, replace(identity, per_head=[{"kv_head": head % 2} for head in range(4)]))["kv heads"] == "right"
    )
    assert verdicts(drawn, identity)["bias by distance"] == "right"


def test_a_sink_is_right_where_it_is_raised_with_the_bias_and_wrong_alone() -> None:
    bias = np.random.default_rng(0).normal(size=(4, 5))
    drawn = replace(PLAIN, distance_bias=bias, sinks=(0.5, 1.0, -1.0, 0.0))
    table = tuple(tuple(row) for row in bias + 3.0)
    spec = PLAIN_ANSWER.but(relative_bias=RelativeBias(table), sinks=True)
    for raised, verdict in ((3.0, "right"), (0.0, "wrong")):
        per_head = [{"sink": sink + raised} for sink in drawn.sinks or ()]
        assert verdicts(drawn, Identity(BOX, spec, per_head))["sinks"] == verdict


def test_a_table_that_is_moved_with_the_queries_is_the_same() -> None:
    bias = np.random.default_rng(0).normal(size=(4, 5))
    drawn = replace(PLAIN, distance_bias=bias, offset=2)
    moved = np.pad(bias, ((0, 0), (4, 0)), mode="edge")
    for rows, offset, verdict in ((bias, 2, "right"), (moved, 2, "wrong"), (moved, 0, "right"), (bias, 0, "wrong")):
        table = tuple(tuple(row) for row in rows)
        identity = Identity(BOX, PLAIN_ANSWER.but(relative_bias=RelativeBias(table), query_offset=offset))
        assert verdicts(drawn, identity)["bias by distance"] == verdict


def test_sinks_beside_a_bias_by_place_are_read_up_to_the_level_of_both() -> None:
    rng = np.random.default_rng(0)
    drawn = replace(PLAIN, place_bias=rng.normal(size=(4, 64, 64)), sinks=tuple(rng.normal(size=4)))
    for dtype in ("float64", "float32"):
        identity = qkv.identify(in_numpy(drawn, dtype), drawn.given, layout="BHTD")
        assert {answer.verdict for answer in answers(drawn, identity)} == {"right"}
        assert any("sinks are beside a bias by position" in line for line in identity.undecided)
        assert all(probe.agrees for probe in identity.probes)


def test_a_gate_on_each_row_beside_a_bias_by_place_is_no_sink() -> None:
    drawn = replace(PLAIN, place_bias=np.random.default_rng(0).normal(size=(4, 64, 64)))
    inner = in_numpy(drawn)

    def gated(query: Any, key: Any, value: Any) -> Any:
        return inner(query, key, value) * np.linspace(0.2, 0.9, query.shape[2])[:, None]

    identity = qkv.identify(gated, drawn.given, layout="BHTD")
    assert any("fresh inputs give other numbers" in line for line in identity.undecided)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_coarse_numbers_tell_one_kind_of_bias_from_another(dtype: str) -> None:
    wide = replace(PLAIN, visible=Visible(causal=True))
    slopes = (0.5, 0.25, 0.125, 0.0625)
    placed = replace(wide, place_bias=np.random.default_rng(0).normal(size=(4, 64, 64)))
    sloped = replace(wide, slopes=slopes, slopes_name="paper")
    by_place, by_slope = (
        qkv.identify(in_torch(drawn, dtype), drawn.given, layout="BHTD") for drawn in (placed, sloped)
    )
    assert by_place.spec is not None
    assert by_place.spec.alibi is None
    assert all("bias_by_position" in row for row in by_place.per_head)
    assert by_slope.known
    assert [row["alibi_slope"] for row in by_slope.per_head] == pytest.approx(slopes, rel=0.02)
    assert [row["scale"] for row in by_slope.per_head] == pytest.approx([8**-0.5] * 4, rel=0.02)


@pytest.mark.parametrize(("dtype", "hides"), [("bfloat16", True), ("float16", False)])
def test_a_bias_that_a_dtype_hides_is_said(dtype: str, hides: bool) -> None:
    plain = replace(PLAIN, visible=Visible(causal=True))
    identity = qkv.identify(in_torch(plain, dtype), plain.given, layout="BHTD")
    assert any(f"{dtype} hides it" in line for line in identity.undecided) == hides


def test_the_benchmark_counts_and_prints_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(box: Any, given: dict[str, int], *, layout: str) -> Identity:
        return Identity(BOX, AttentionSpec(given["num_heads"], given["num_kv_heads"], given["head_dim"]))

    monkeypatch.setitem(vars(qkv), "identify", plain)
    capped = next(drawn for drawn in map(drawn_from, itertools.count()) if drawn.softcap and drawn.softmax_base == "e")
    rows = list(identification.rows_of([capped.seed]))
    assert [row.dtype for row in rows] == ["float64", "float32"]
    assert "| softcap | 1 | 0 | 1 | 0 | 0 |" in identification.table(rows)
    assert f"softcap wrong: expected {capped.softcap}, got None" in identification.summary(rows)


def test_the_benchmark_tells_why_nothing_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(qkv), "identify", lambda *_, **__: Identity(BOX, None, why="it raised"))
    assert "nothing read: it raised" in identification.summary(list(identification.rows_of([3])))
