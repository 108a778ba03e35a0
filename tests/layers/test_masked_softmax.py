from __future__ import annotations

import pytest
import torch

from qkv.errors import ShapeError
from qkv.layers import softmax_over_keys


def test_hidden_keys_might_as_well_not_be_there() -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    mask = torch.tensor([True, False, True, True, False, False, True])
    weights = softmax_over_keys(scores, mask)
    torch.testing.assert_close(weights[..., mask], torch.softmax(scores[..., mask], dim=-1))
    assert (weights[..., ~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_no_score_is_so_low_that_a_hidden_key_looks_better(dtype: torch.dtype) -> None:
    scores = torch.full((2, 3), 0.99 * torch.finfo(dtype).min, dtype=dtype)
    mask = torch.tensor([True, False, True])
    assert softmax_over_keys(scores, mask).tolist() == [[0.5, 0, 0.5], [0.5, 0, 0.5]]


def test_an_empty_row_is_zero_and_sends_no_gradient_back() -> None:
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[2] = False
    weights = softmax_over_keys(scores, mask)
    assert (weights[2] == 0).all()
    (weights * torch.randn(4, 5, dtype=torch.float64)).sum().backward()
    assert scores.grad is not None
    assert (scores.grad[2] == 0).all()
    assert scores.grad.isfinite().all()
    assert (scores.grad[[0, 1, 3]] != 0).all()


@pytest.mark.parametrize(
    ("query_len", "key_len", "drawn"),
    [(2, 5, ["####.", "#####"]), (5, 2, ["..", "..", "..", "#.", "##"]), (3, 3, ["#..", "##.", "###"])],
)
def test_causal_puts_the_last_query_at_the_last_key(query_len: int, key_len: int, drawn: list[str]) -> None:
    weights = softmax_over_keys(torch.zeros(query_len, key_len), None, causal=True)
    assert ["".join("#" if weight else "." for weight in row) for row in weights] == drawn


def test_causal_and_mask_hide_both() -> None:
    mask = torch.tensor([False, True, True])
    weights = softmax_over_keys(torch.zeros(3, 3), mask, causal=True)
    assert weights.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]


def test_nan_in_a_visible_score_is_not_swept_away() -> None:
    scores = torch.zeros(2, 3)
    scores[0, 0] = torch.nan
    weights = softmax_over_keys(scores, None, causal=True)
    assert weights[0, :2].isnan().all()
    assert weights[1].isfinite().all()


def test_a_mask_of_numbers_is_refused_with_the_line_to_write(unchecked: None) -> None:
    with pytest.raises(TypeError, match=r"mask has dtype torch\.float32") as caught:
        softmax_over_keys(torch.zeros(2, 3), torch.zeros(2, 3))
    assert "for an additive mask, mask == 0" in str(caught.value)


@pytest.mark.parametrize("shape", [(2, 7), (5, 6), (3, 2, 3, 5, 7)])
def test_a_mask_that_does_not_broadcast_is_refused_with_the_line_to_write(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"must broadcast to the scores, \(2, 3, 5, 7\)") as caught:
        softmax_over_keys(torch.zeros(2, 3, 5, 7), torch.ones(shape, dtype=torch.bool))
    assert f"mask has shape {shape}" in str(caught.value)
    assert "mask[:, None, None, :]" in str(caught.value)
