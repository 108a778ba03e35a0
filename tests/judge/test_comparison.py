"""Comparison: every row by itself, by a bar of its own; what counts, and what rounding may do in each dtype."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from qkv.comparison import Expectation, as_rows, expectation, round_to
from qkv.oracle import Inputs, Linear, Parameters, Run, run_stages
from qkv.spec import spec_from_mapping

BATCH, HEADS, TOKENS, DIM = 2, 3, 5, 4


def made(seed: int = 0, *, tokens: int = TOKENS, keys: int | None = None, **fields: Any) -> Run:
    """A right attention over random query, key and value."""
    rng = np.random.default_rng(seed)
    extra = {name: fields.pop(name) for name in ("is_token", "may_attend") if name in fields}
    arrays = [
        rng.normal(size=(BATCH, HEADS, count, DIM)) for count in (tokens, keys or tokens, keys or tokens)
    ]  # fmt: skip
    query, key, value = arrays
    spec = spec_from_mapping({"num_heads": HEADS, "causal": True, **fields})
    with np.errstate(all="ignore"):
        return run_stages(spec, Inputs(query=query, key=key, value=value, **extra))


def moved(expected: Expectation, row: tuple[int, int, int], by: float, channel: int = 2) -> np.ndarray:
    """The right output with one entry of one row ``(batch, query, head)`` moved by so many of its own tolerances."""
    rows = expected.rows.copy()
    rows[(*row, channel)] += by * expected.tolerance[row]
    return rows.reshape(expected.run.output.shape)


def only(expected: Expectation, *rows: tuple[int, int, int]) -> np.ndarray:
    """True at these rows and nowhere else."""
    wanted = np.zeros(expected.tolerance.shape, dtype=bool)
    for row in rows:
        wanted[row] = True
    return wanted


def places(run: Run) -> list[tuple[int, int, int]]:
    return list(product(range(BATCH), range(run.inputs.lengths[0]), range(HEADS)))


# --- row by row -------------------------------------------------------------------------------------------------------


def test_each_row_is_judged_by_itself() -> None:
    run = made()
    expected = expectation(run, "float32")
    for row in places(run):
        comparison = expected.compare(moved(expected, row, 1.5))
        np.testing.assert_array_equal(comparison.wrong, only(expected, row))
        assert comparison.first == (*row, 2)
        assert not comparison.agrees
        assert comparison.worst == pytest.approx(1.5, rel=1e-3)
        assert expected.agrees(moved(expected, row, 1.5)) is None


def test_a_row_within_its_own_tolerance_is_right() -> None:
    run = made()
    expected = expectation(run, "float32")
    for row in places(run):
        comparison = expected.compare(moved(expected, row, 0.8))
        assert comparison.agrees
        assert comparison.first is None
        assert comparison.worst == pytest.approx(0.8, rel=1e-3)
        assert expected.agrees(moved(expected, row, 0.8)) == pytest.approx(0.8, rel=1e-3)


def test_a_row_that_rounding_disturbs_more_has_a_wider_bar_than_its_neighbour() -> None:
    run = made()
    query, key = run.inputs.query.copy(), run.inputs.key.copy()
    # Two scores of many thousands that differ by less than one: their rounding moves the weights.
    query[1, 2, 4] = 5000 * key[1, 2, 0]
    key[1, 2, 1] = key[1, 2, 0] + 1e-4
    run = run_stages(run.spec, run.inputs.but(query=query, key=key))
    expected = expectation(run, "float32")
    sensitive, calm = (1, 4, 2), (1, 3, 2)
    assert expected.tolerance[sensitive] > 20 * expected.tolerance[calm]
    off = 0.5 * expected.tolerance[sensitive]
    rows = expected.rows.copy()
    rows[sensitive] += off
    rows[calm] += off
    comparison = expected.compare(rows.reshape(run.output.shape))
    np.testing.assert_array_equal(comparison.wrong, only(expected, calm))


def test_the_first_wrong_entry_is_named_in_the_order_of_sequence_token_head_channel() -> None:
    expected = expectation(made(), "float32")
    rows = expected.rows.copy()
    for place in ((1, 0, 0, 0), (0, 3, 2, 1), (0, 3, 2, 3), (0, 4, 0, 0)):
        rows[place] += 1.0
    assert expected.compare(rows.reshape(expected.run.output.shape)).first == (0, 3, 2, 1)


def test_one_wrong_row_among_thousands_is_seen() -> None:
    run = made(tokens=400)
    expected = expectation(run, "float32")
    row = (1, 313, 2)
    rows = expected.rows.copy()
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, rows.shape) * expected.tolerance[..., None]
    rows += noise
    rows[row] += 4 * expected.tolerance[row]
    output = rows.reshape(run.output.shape)
    assert np.allclose(output, run.output, rtol=1e-3, atol=1e-4), "a usual test would let it pass"
    comparison = expected.compare(output)
    np.testing.assert_array_equal(comparison.wrong, only(expected, row))
    assert comparison.max_error == pytest.approx(float(np.abs(output - run.output).max()))


def test_behind_an_output_projection_a_row_is_a_whole_token() -> None:
    rng = np.random.default_rng(3)
    width, embed = HEADS * DIM, 10
    parameters = Parameters(
        *(Linear(rng.normal(size=(width, embed))) for _ in range(3)), Linear(rng.normal(size=(embed, width)))
    )
    spec = spec_from_mapping({"num_heads": HEADS})
    run = run_stages(spec, Inputs(x=rng.normal(size=(BATCH, TOKENS, embed)), parameters=parameters))
    expected = expectation(run, "float32")
    assert expected.rows.shape == (BATCH, TOKENS, 1, embed)
    output = run.output.copy()
    output[1, 2, 7] += 2 * expected.tolerance[1, 2, 0]
    assert expected.compare(output).first == (1, 2, 0, 7)


# --- what is no number ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_wrong_where_a_number_is_due(bad: float) -> None:
    expected = expectation(made(), "float32")
    rows = expected.rows.copy()
    rows[0, 3, 1, 2] = bad
    output = rows.reshape(expected.run.output.shape)
    comparison = expected.compare(output)
    np.testing.assert_array_equal(comparison.wrong, only(expected, (0, 3, 1)))
    assert comparison.first == (0, 3, 1, 2)
    assert comparison.max_error == np.inf
    assert expected.agrees(output) is None


NEVER = np.ones((1, 1, TOKENS, TOKENS), dtype=bool)
NEVER[..., 2, :] = False
"""A mask that leaves query 2 no key."""


def test_nan_is_right_where_nan_is_due_and_a_number_is_wrong_there() -> None:
    run = made(may_attend=NEVER, empty_row="nan")
    expected = expectation(run, "float32")
    assert np.isnan(expected.rows[:, 2]).all()
    assert expected.compare(run.output).agrees
    assert expected.agrees(run.output) == 0.0
    zeros = np.nan_to_num(run.output)
    np.testing.assert_array_equal(
        expected.compare(zeros).wrong, only(expected, *((b, 2, h) for b in range(BATCH) for h in range(HEADS)))
    )
    assert expected.agrees(zeros) is None


def test_beside_a_due_nan_another_row_is_still_held_to_its_number() -> None:
    run = made(may_attend=NEVER, empty_row="nan")
    expected = expectation(run, "float32")
    output = moved(expected, (1, 4, 0), 1.5)
    np.testing.assert_array_equal(expected.compare(output).wrong, only(expected, (1, 4, 0)))
    assert expected.agrees(output) is None
    assert expected.agrees(moved(expected, (1, 4, 0), 0.5)) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("rule", ["zero", "nan", "uniform"])
def test_an_empty_row_counts_only_where_somebody_said_what_it_gets(rule: str) -> None:
    run = made(may_attend=NEVER, empty_row=rule)
    other = run.output.copy()
    other[:, 2] = 123.0
    assert expectation(run, "float32", judge_empty_rows=False).compare(other).agrees
    assert expectation(run, "float32", judge_empty_rows=False).agrees(other) == 0.0
    asked = expectation(run, "float32", judge_empty_rows=True)
    np.testing.assert_array_equal(asked.compare(other).wrong.all(axis=(0, 2)), np.arange(TOKENS) == 2)
    assert asked.compare(run.output).agrees


def test_a_row_that_is_empty_in_one_head_only_is_left_out_as_a_whole() -> None:
    # Behind an output projection a token mixes its heads; and no head is judged where a neighbour's rule is open.
    may_attend = np.ones((1, HEADS, TOKENS, TOKENS), dtype=bool)
    may_attend[:, 1, 3] = False
    expected = expectation(made(may_attend=may_attend), "float32", judge_empty_rows=False)
    np.testing.assert_array_equal(~expected.judged.any(axis=(0, 2)), np.arange(TOKENS) == 3)


# --- padding ----------------------------------------------------------------------------------------------------------

IS_TOKEN = np.array([[True] * 3 + [False] * 2, [True] * 5])


@pytest.mark.parametrize("garbage", [99.0, np.nan, np.inf])
def test_the_rows_of_padding_do_not_count(garbage: float) -> None:
    run = made(is_token=IS_TOKEN)
    expected = expectation(run, "float32")
    np.testing.assert_array_equal(expected.judged, np.broadcast_to(IS_TOKEN[..., None], (BATCH, TOKENS, HEADS)))
    output = run.output.copy()
    output[0, 3:] = garbage
    assert expected.compare(output).agrees
    assert expected.compare(output).max_error == 0.0
    assert expected.compare(output).worst == 0.0
    assert expected.agrees(output) == 0.0


def test_the_rows_of_tokens_beside_padding_do_count() -> None:
    expected = expectation(made(is_token=IS_TOKEN), "float32")
    for row in ((0, 2, 0), (1, 3, 1), (1, 4, 2)):
        output = moved(expected, row, 2.0)
        output[0, 3:] = np.nan
        assert expected.compare(output).first == (*row, 2)
        assert expected.agrees(output) is None


def test_padding_among_keys_of_another_sequence_leaves_every_query_judged() -> None:
    is_token = np.array([[True] * 6 + [False] * 2, [True] * 8])
    expected = expectation(made(tokens=3, keys=8, causal=False, is_token=is_token), "float32")
    assert expected.judged.all()


# --- rounding ---------------------------------------------------------------------------------------------------------


def test_rounding_to_a_dtype() -> None:
    numbers = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-7), 3.0e38, np.nan, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(
        round_to(numbers, "bfloat16"), torch.tensor(numbers).to(torch.bfloat16).double().numpy()
    )
    drawn = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.random.default_rng(1).integers(-6, 5, 1000)
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        theirs = torch.tensor(drawn, dtype=torch.float32 if dtype == "bfloat16" else torch.float64)
        np.testing.assert_array_equal(round_to(drawn, dtype), theirs.to(getattr(torch, dtype)).double().numpy(), dtype)


Written = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention as it is written, every step in the dtype of its inputs."""
    scores = query @ key.mT * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ value


def scaled_query(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """The scale on the query, an additive mask, softmax by its definition."""
    scores = (query * scale) @ key.mT
    scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (shares / shares.sum(-1, keepdim=True)) @ value


def fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)


def in_torch(run: Run, written: Written, dtype: str, scale: float) -> np.ndarray:
    arrays = [torch.tensor(array).to(getattr(torch, dtype)) for array in
              (run.inputs.query, run.inputs.key, run.inputs.value)]  # fmt: skip
    context = written(*arrays, scale)
    assert context.dtype == getattr(torch, dtype)
    merged = context.transpose(1, 2).flatten(2)
    return merged.double().numpy()


@pytest.mark.parametrize("written", [plain, scaled_query, fused])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_torch_in_any_dtype_is_right_and_its_scale_is_not_forgotten(dtype: str, written: Written) -> None:
    for seed, gain in product(range(4), (1.0, 6.0, 30.0)):
        run = made(seed, tokens=12)
        run = run_stages(run.spec, run.inputs.but(query=gain * run.inputs.query))
        expected = expectation(run, dtype)
        assert expected.compare(in_torch(run, written, dtype, DIM**-0.5)).agrees, (seed, gain)
        unscaled = expected.compare(in_torch(run, written, dtype, 1.0))
        assert not unscaled.wrong[:, 0].any(), "the first row sees one key"
        # bfloat16 has two digits: of large scores it leaves no more than the largest, scaled or not.
        if gain == 1.0:
            assert unscaled.wrong.any(axis=(0, 1)).all()
        elif gain == 6.0:
            assert unscaled.wrong.any()


def test_a_candidate_in_float64_is_held_to_the_rounding_of_float32() -> None:
    run = made()
    wide, narrow = expectation(run, "float64"), expectation(run, "float32")
    assert (wide.held_to, narrow.held_to) == ("float32", "float32")
    np.testing.assert_array_equal(wide.tolerance, narrow.tolerance)


def test_the_bar_grows_with_the_roundings_of_the_dtype() -> None:
    run = made()
    bars = [expectation(run, dtype).tolerance.max() for dtype in ("float32", "float16", "bfloat16")]
    assert bars[0] < 1e-4 < bars[1] < bars[2] < 1.0
    assert bars[1] > 1000 * bars[0]


def test_rows_of_an_output_lie_head_by_head() -> None:
    output = np.arange(2 * 3 * 8.0).reshape(2, 3, 8)
    rows = as_rows(output, 2)
    assert rows.shape == (2, 3, 2, 4)
    np.testing.assert_array_equal(rows[1, 2, 1], output[1, 2, 4:])
