"""Weights that were handed over: any usual number of axes, several layers, and what can't be weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.errors import CandidateError, ShapeError, SpecError
from qkv.pictures.attention import Attention

Array = np.ndarray[Any, np.dtype[Any]]

RNG = np.random.default_rng(0)
WEIGHTS = torch.softmax(torch.tensor(RNG.normal(size=(2, 3, 4, 5))), dim=-1).numpy()  # batch head query key
CAUSAL = np.tril(np.ones((4, 4)))


def dense(view: Attention) -> tuple[Array, Array]:
    """All weights of a view and who may attend to whom, ``(layer*head, query, key)``."""
    weights = np.zeros((len(view.heads), *view.shape))
    allowed = np.zeros(weights.shape, bool)
    for place, head in enumerate(view.heads):
        rows = head.rows(slice(0, view.shape[0]))
        weights[place][:, rows.keys], allowed[place][:, rows.keys] = rows.weights, rows.may_attend
    return weights, allowed


@pytest.mark.parametrize(
    "given", [WEIGHTS, WEIGHTS[1], WEIGHTS[1, :1], torch.tensor(WEIGHTS), WEIGHTS.astype("float16")]
)
def test_heads_and_sequences_may_be_there_or_not(given: Any) -> None:
    view = qkv.show(given, sequence=1 if given.ndim == 4 else 0)
    weights, allowed = dense(view)
    np.testing.assert_allclose(weights, WEIGHTS[1][: len(view.heads)], atol=1e-3)
    assert allowed.all()
    assert [head.name for head in view.heads] == ["head 0", "head 1", "head 2"][: len(view.heads)]


def test_a_plain_list_of_numbers_is_one_head() -> None:
    weights, allowed = dense(qkv.show([[1.0, 0.0], [0.25, 0.75]]))
    assert weights.tolist() == [[[1.0, 0.0], [0.25, 0.75]]]
    assert allowed.tolist() == [[[True, False], [True, True]]]


@pytest.mark.parametrize("given", [list(WEIGHTS[:, None]), tuple(map(torch.tensor, WEIGHTS)), WEIGHTS[:, None]])
def test_several_arrays_are_layers(given: Any) -> None:
    view = qkv.show(given)
    assert [layer.name for layer in view.layers] == ["layer 0", "layer 1"]
    np.testing.assert_array_equal(dense(view)[0], WEIGHTS.reshape(6, 4, 5))
    np.testing.assert_array_equal(dense(qkv.show(given, layer=1))[0], WEIGHTS[1])


def test_layers_by_name_and_those_that_have_none() -> None:
    view = qkv.show({"encoder": WEIGHTS, "decoder": WEIGHTS[:1]})
    assert [layer.name for layer in view.layers] == ["encoder", "decoder"]
    assert [layer.name for layer in qkv.show((None, WEIGHTS, None, WEIGHTS)).layers] == ["layer 1", "layer 3"]


def test_layers_of_another_size_are_left_out_and_named() -> None:
    view = qkv.show({"self 0": WEIGHTS, "cross": WEIGHTS[..., :3], "self 1": WEIGHTS})
    assert [layer.name for layer in view.layers] == ["self 0", "self 1"]
    assert "Left out, since they are of another size: cross (4 x 3)" in view.notes


def test_zeros_that_all_heads_share_are_masked_and_others_are_not() -> None:
    weights = np.where(CAUSAL, WEIGHTS[0, :, :, :4], 0.0)
    weights[1, 3, 0] = 0.0
    view = qkv.show(weights)
    np.testing.assert_array_equal(dense(view)[1], np.broadcast_to(CAUSAL > 0, (3, 4, 4)))
    assert "What is exactly zero in every head is taken for masked" in view.notes


@pytest.mark.parametrize("mask", [qkv.causal(), CAUSAL > 0, torch.tensor(CAUSAL > 0)])
def test_a_mask_may_be_said(mask: Any) -> None:
    weights = np.where(CAUSAL, WEIGHTS[0, :, :, :4], 0.0)
    weights[:, 2, 1] = 0.0
    view = qkv.show(weights, mask=mask)
    np.testing.assert_array_equal(dense(view)[1], np.broadcast_to(CAUSAL > 0, (3, 4, 4)))
    assert not view.notes


def test_nan_is_masked() -> None:
    weights = np.where(CAUSAL, WEIGHTS[0, :, :, :4], np.nan)
    weights[:, 2, 1] = 0.0
    np.testing.assert_array_equal(dense(qkv.show(weights))[1], np.broadcast_to(CAUSAL > 0, (3, 4, 4)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (WEIGHTS[0, 0, 0], "has shape (5,); attention weights are (query, key), (head, query, key)"),
        (np.zeros((2, 0, 4)), "has shape (2, 0, 4): there is nothing in it"),
        ([], "there are no weights to show"),
        ([[1.0, 0.0], [1.0]], "a list whose rows differ in length"),
        (WEIGHTS[None, None, None], "attention weights are (query, key)"),
    ],
)
def test_other_axes_than_those_of_weights(given: Any, said: str) -> None:
    with pytest.raises(ShapeError) as caught:
        qkv.show(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(("number", "said"), [(2, "2 sequences, 0 to 1, and sequence 2"), (-1, "sequence -1")])
def test_a_sequence_that_is_not_there(number: int, said: str) -> None:
    with pytest.raises(ShapeError) as caught:
        qkv.show(WEIGHTS, sequence=number)
    assert said in str(caught.value)


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(ShapeError, match="there is one layer, and layer 3 was asked for"):
        qkv.show(WEIGHTS, layer=3)


def test_scores_are_no_weights() -> None:
    scores = np.where(CAUSAL, 1.0, -np.inf)
    with pytest.raises(CandidateError, match=r"6 infinite entries, the first at \[0, 1\]") as caught:
        qkv.show(scores)
    assert "torch.softmax(attn_scores, dim=-1)" in caught.value.hint


def test_a_mask_and_words_are_no_weights() -> None:
    with pytest.raises(CandidateError, match="holds booleans: a mask"):
        qkv.show(CAUSAL > 0)
    with pytest.raises(CandidateError, match="values"):
        qkv.show(np.array([["a", "b"]]))


def test_tokens_label_keys_and_are_as_many() -> None:
    view = qkv.show(WEIGHTS, tokens=list("abcde"), query_tokens=list("wxyz"), title="mine")
    assert view.texts == (list("wxyz"), list("abcde"))
    assert view.title == "mine"
    with pytest.raises(ShapeError, match="there are 2 tokens for 5"):
        qkv.show(WEIGHTS, tokens=["a", "b"])


def test_what_no_softmax_gives_is_said_on_the_page() -> None:
    assert "12 rows" in " ".join(qkv.show(WEIGHTS * 0.5).payload()["notes"])


def test_what_is_nan_in_query_or_key_is_nan_in_what_they_make() -> None:
    query, key = RNG.normal(size=(2, 1, 1, 4, 3))
    query[0, 0, 1, 2] = np.nan
    view = qkv.show(query, key)
    with np.errstate(all="ignore"):
        assert np.isnan(dense(view)[0]).any(-1)[0].tolist() == [False, True, False, False]
    assert "query holds 1 entry that is NaN or infinite, at [0, 0, 1, 2]" in view.notes
    assert any("NaN" in note and "4 weights" in note for note in view.payload()["notes"]), view.payload()["notes"]


@pytest.mark.parametrize("value_dim", [6, 5])
@pytest.mark.parametrize("layout", ["BHTD", "BTHD", "BTE"])
def test_the_value_that_goes_with_query_and_key_is_what_each_head_mixes(layout: str, value_dim: int) -> None:
    """Three query heads share each of two values; the context of a row is seen only with them."""
    query, key, value = (RNG.normal(size=size) for size in ((1, 6, 4, 6), (1, 2, 7, 6), (1, 2, 7, value_dim)))
    given = [array if layout == "BHTD" else array.swapaxes(1, 2) for array in (query, key, value)]
    if layout == "BTE":
        given = [array.reshape(*array.shape[:2], -1) for array in given]
    view = qkv.show(*given, spec={"num_heads": 6, "num_kv_heads": 2})
    for head, one in enumerate(view.heads):
        np.testing.assert_array_equal(one.value, value[0, head // 3])


def test_a_value_that_fits_nothing_leaves_the_weights_to_be_seen() -> None:
    query, key, value = (RNG.normal(size=(1, 2, length, 3)) for length in (4, 4, 9))
    view = qkv.show(query, key, value)
    assert [head.value for head in view.heads] == [None, None]
    assert "value (1, 2, 9, 3) doesn't fit, and is left out" in view.notes


def test_a_key_goes_with_a_query_and_a_mask_with_weights() -> None:
    with pytest.raises(qkv.SpecError, match=r"qkv\.show\(query, key\)"):
        qkv.show(None, WEIGHTS)
    with pytest.raises(qkv.SpecError, match="a field of the spec"):
        qkv.show(WEIGHTS, WEIGHTS, mask=qkv.causal())


def test_nan_is_said_apart_from_rows_that_see_no_key() -> None:
    stray = WEIGHTS[0].copy()
    stray[1, 2, 3] = np.nan
    assert "layer 0 holds entries that are no number, drawn as masked: 1" in qkv.show(stray).payload()["notes"]
    broken = qkv.show(np.full((2, 3, 3), np.nan)).payload()["notes"]
    assert broken == ["NaN or minus infinity, drawn as masked: 18 weights"]
    hidden = qkv.show(np.zeros((2, 3, 3)), mask=np.zeros((3, 3), bool)).payload()["notes"]
    assert hidden == ["Without a key to attend to: 6 rows"]


def test_numbers_and_places_that_can_not_be_are_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="layer is 'x', and must be a whole number"):
        qkv.show(WEIGHTS[0], layer="x")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="is a folder; name a file"):
        qkv.show(WEIGHTS[0]).save(tmp_path)
