"""Randomness: a candidate that answers one question twice is told apart from one that is wrong, by its mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qkv.debugger import check
from qkv.report import Report


class Dropping(nn.Module):
    """Every token sees every other one; mistakes come below."""

    scale: float | None = None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def dropped(self, weights: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(weights, self.dropout, training=self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = torch.softmax(query @ key.mT * (self.scale or query.shape[-1] ** -0.5), dim=-1)
        return self.out_proj((self.dropped(weights) @ value).transpose(1, 2).flatten(2))


class AlwaysDropping(Dropping):
    def dropped(self, weights: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(weights, self.dropout)


class UnscaledAlwaysDropping(AlwaysDropping):
    scale = 1.0


class DroppingWithoutScaling(Dropping):
    def dropped(self, weights: torch.Tensor) -> torch.Tensor:
        return weights * (torch.rand_like(weights) > self.dropout)


GIVEN = {"causal": False}


def named(report: Report) -> list[tuple[str, str]]:
    return [(fault.id, fault.note) for fault in report.faults]


def test_dropout_that_rests_in_evaluation_is_right() -> None:
    report = check(Dropping, GIVEN)
    assert report.verdict == "right"
    assert "dropout=0.2" in report.assumptions[0], "it was built with dropout, so that it would have shown"


def test_dropout_left_on_is_named_and_its_mean_is_right() -> None:
    report = check(AlwaysDropping, GIVEN)
    assert report.verdict == "wrong"
    assert named(report) == [
        ("dropout-in-eval", "two runs on the same input differ; the mean of 100 runs is right")
    ]  # fmt: skip


@pytest.mark.parametrize("candidate", [UnscaledAlwaysDropping, DroppingWithoutScaling])
def test_a_second_mistake_shows_in_the_mean(candidate: Any) -> None:
    report = check(candidate, GIVEN)
    assert report.verdict == "wrong"
    assert named(report) == [
        (
            "dropout-in-eval",
            "two runs on the same input differ; the mean of 100 runs is not right either: mend this first, then "
            "check again",
        )
    ]


def test_a_module_left_in_training_is_not_blamed_for_its_dropout() -> None:
    torch.manual_seed(0)
    module = Dropping(24, 3, 0.4).train()
    assert check(module, GIVEN).verdict == "right"
    assert module.training


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def test_noise_that_is_no_dropout_is_called_the_same_since_only_its_mean_can_be_told() -> None:
    def noisy(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attention(query, key, value) + 0.3 * np.random.randn(*query.shape)  # noqa: NPY002 - as users write it

    report = check(noisy, GIVEN)
    assert named(report)[0][0] == "dropout-in-eval"
    assert named(report)[0][1].endswith("is right")


def test_random_numbers_that_no_mean_brings_back_are_not_called_dropout() -> None:
    def noisy(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attention(query + 2 * np.random.randn(*query.shape), key, value)  # noqa: NPY002 - as users write it

    calls = iter(range(1, 10_000))

    def counting(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attention(query * next(calls), key, value)

    for candidate in (noisy, counting):
        report = check(candidate, GIVEN)
        assert (report.verdict, report.faults) == ("wrong", [])
        assert "it computes with random ones, or with what it keeps from one call to the next" in report.why


def test_random_numbers_that_change_nothing_are_no_fault() -> None:
    def shuffling(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        order = np.random.permutation(key.shape[2])  # noqa: NPY002 - as users write it
        return attention(query, key[:, :, order], value[:, :, order])

    assert check(shuffling, GIVEN).verdict == "right"


def test_a_fault_that_is_the_same_each_time_is_not_called_random() -> None:
    def unscaled(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return attention(query * query.shape[-1] ** 0.5, key, value)

    assert [name for name, _ in named(check(unscaled, GIVEN))] == ["scale-missing"]
