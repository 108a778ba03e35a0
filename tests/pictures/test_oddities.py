"""Weights that are none: what is drawn of them, and what is said."""

from __future__ import annotations

import numpy as np
import pytest

from pictured import floats, heads, picture
from qkv.errors import CandidateError
from qkv.masks import Causal
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads, given_heads
from qkv.spec import AttentionSpec

GOOD = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
LOWER = np.tri(3, dtype=bool)


def shown(weights: object, may_attend: object = None) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The notes, the picture and the exact weights."""
    layer = LayerWeights("layer 0", given_heads(np.asanyarray(weights), may_attend=may_attend))
    payload = AttentionView(layers=[layer]).payload()
    (head,) = heads(payload)
    exact = floats(head["exact"]).reshape(payload["query_len"], payload["key_len"])
    return payload["notes"], picture(head["pictures"][-1]), exact


def changed(row: int, key: int, number: float) -> list[list[float]]:
    weights = [list(line) for line in GOOD]
    weights[row][key] = number
    return weights


def test_what_is_right_has_no_note() -> None:
    notes, cells, exact = shown(GOOD, LOWER)
    assert not notes
    assert ((cells == 0) == ~LOWER).all()
    assert (np.isnan(exact) == ~LOWER).all()


def test_zero_is_not_masked() -> None:
    assert (shown(GOOD)[1][~LOWER] == 1).all()


@pytest.mark.parametrize(
    ("number", "byte", "note"),
    [
        (np.nan, 0, "NaN or minus infinity, drawn as masked: 1 weight"),
        (-np.inf, 0, "NaN or minus infinity, drawn as masked: 1 weight"),
        (np.inf, 255, "Infinite, drawn as 1: 1 weight"),
        (-0.25, 1, "Below 0, which no softmax gives, drawn as 0: 1 weight"),
        (1.5, 255, "Above 1, which no softmax gives, drawn as 1: 1 weight"),
    ],
)
def test_broken_weights(number: float, byte: int, note: str) -> None:
    notes, cells, exact = shown(changed(2, 1, number), LOWER)
    assert cells[2, 1] == byte
    assert notes[0] == note
    assert notes[1].startswith("Not summing to 1")
    assert np.isnan(exact[2, 1]) if byte == 0 else exact[2, 1] == number


def test_a_weight_on_a_masked_key_is_brought_to_light() -> None:
    notes, cells, exact = shown(changed(0, 2, 0.25), LOWER)
    assert cells[0, 2] > 1
    assert exact[0, 2] == 0.25
    assert notes[0] == "Not 0 although the query may not attend to the key, drawn as weights: 1 weight"


def test_a_row_without_any_weight() -> None:
    notes, cells, _ = shown([[0.0, 0.0], [0.5, 0.5]])
    assert notes == ["Not summing to 1, since a sink or dropout takes the rest or these are no weights: 1 row"]
    assert (cells[0] == 1).all()


def test_a_row_of_nan_alone() -> None:
    notes, cells, _ = shown([[np.nan, np.nan], [0.5, 0.5]])
    assert notes == ["NaN or minus infinity, drawn as masked: 2 weights"]
    assert (cells[0] == 0).all()


@pytest.mark.parametrize("rule", ["zero", "nan", "uniform"])
def test_empty_rows_of_a_computed_head(rule: str) -> None:
    spec = AttentionSpec(num_heads=1, mask=Causal(), empty_row=rule)
    rng = np.random.default_rng(0)
    inputs = Inputs(
        **{name: rng.normal(size=(1, 1, length, 4)) for name, length in (("query", 5), ("key", 3), ("value", 3))}
    )
    payload = AttentionView(layers=[LayerWeights("layer 0", computed_heads(spec, inputs))]).payload()
    cells = picture(heads(payload)[0]["pictures"][-1])
    if rule == "uniform":  # they do mix the values
        assert (cells[:2] == cells[0, 0]).all()
        assert floats(heads(payload)[0]["sums"]) == pytest.approx(1)
    else:
        assert (cells[:2] == 0).all()
        assert payload["notes"] == ["Without a key to attend to: 2 rows"]
    assert (cells[2] > 0).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_any_real_numbers(dtype: str) -> None:
    notes, cells, _ = shown(np.eye(3).astype(dtype))
    assert not notes
    assert (cells == np.where(np.eye(3), 255, 1)).all()


def test_masks_are_booleans_or_expressions_and_masked_arrays_keep_theirs() -> None:
    for head, mask in ((np.array(GOOD), "causal"), (np.ma.masked_array(GOOD, ~LOWER), None)):
        _, drawn, exact = shown(head, mask)
        assert ((drawn == 0) == ~LOWER).all()
        assert (np.isnan(exact) == ~LOWER).all()
    with pytest.raises(CandidateError, match="must be boolean") as error:
        shown(GOOD, np.where(LOWER, 0.0, -np.inf))
    assert "mask == 0" in error.value.hint
