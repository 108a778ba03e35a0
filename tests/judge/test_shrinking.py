"""Shrinking: the smallest example is small, shows the fault that was named, and its sums come out as printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qkv.debugger import check
from qkv.report import Example, Report, to_mapping
from qkv.report.terminal import as_text

Array = np.ndarray


def softmax(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):  # other layouts, which are tried too, may leave a row no key
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True)


def attend(query: Array, key: Array, value: Array, *, scale: float | None = None, back: int | None = None,
           ahead: int = 0, corner: str = "bottom right", tiled: bool = False) -> Array:  # fmt: skip
    """Causal attention, with a window of ``back`` keys, and with a mistake where one is asked for."""
    group = query.shape[1] // key.shape[1]
    shared = (lambda x: np.tile(x, (1, group, 1, 1))) if tiled else (lambda x: x.repeat(group, 1))
    queries, keys = query.shape[2], key.shape[2]
    stands = keys - queries if corner == "bottom right" else 0
    scores = query @ shared(key).swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    seen = np.tri(queries, keys, stands + ahead, dtype=bool)
    if back is not None:
        seen &= ~np.tri(queries, keys, stands - back, dtype=bool)
    return softmax(np.where(seen, scores, -np.inf)) @ shared(value)


def merged(context: Array) -> Array:
    return context.swapaxes(1, 2).reshape(context.shape[0], context.shape[2], -1)


def example_of(report: Report) -> tuple[Example, dict[str, Array]]:
    assert report.example is not None
    return report.example, dict(report.example.tensors)


def plain_to_see(example: Example) -> bool:
    """Whether the example is off by more than a matter of decimals."""
    return bool(np.abs(example.expected - example.got).max() > 0.1 * np.abs(example.expected).max())


def in_halves(*arrays: Array) -> bool:
    return all(np.array_equal(2 * array, np.round(2 * array)) for array in arrays)


# --- functions --------------------------------------------------------------------------------------------------------

FUNCTIONS = [
    ({}, {"scale": 1.0}, "scale-missing", 1, 3),
    ({}, {"ahead": 1}, "causal-one-ahead", 1, 2),
    ({"query_offset": "bottom_right"}, {"corner": "top left"}, "causal-corner", 1, 3),
    ({"window": 3}, {"back": 4}, "window-off-by-one", 1, 4),
    ({"num_heads": 4, "num_kv_heads": 2}, {"tiled": True}, "kv-heads-tiled", 4, 2),
]
"""Fields, mistake, its name, and the heads and tokens with which it can be seen."""


@pytest.mark.parametrize(("fields", "mistake", "name", "heads", "tokens"), FUNCTIONS, ids=[row[2] for row in FUNCTIONS])
def test_a_function_gets_the_fewest_tokens_and_heads_that_show_its_fault(
    fields: dict[str, Any], mistake: dict[str, Any], name: str, heads: int, tokens: int
) -> None:
    right = {"back": 3} if "window" in fields else {}

    def candidate(query: Array, key: Array, value: Array) -> Array:
        return attend(query, key, value, **{**right, **mistake})

    report = check(candidate, {"num_heads": 3, "causal": True, **fields})
    assert [fault.id for fault in report.faults] == [name]
    example, tensors = example_of(report)
    assert list(tensors) == ["query", "key", "value"]
    assert tensors["query"].shape[:2] == (1, heads)
    assert tensors["query"].shape[3] == 2
    assert tensors["key"].shape[2] <= tokens
    assert (tensors["query"].shape[2] < tensors["key"].shape[2]) == (name == "causal-corner")
    assert example.words.endswith("of 2 numbers, one head" if heads == 1 else f"of 2 numbers, {heads} heads")
    assert in_halves(*tensors.values())
    assert plain_to_see(example)
    np.testing.assert_allclose(example.expected, merged(attend(*tensors.values(), **right))[0], atol=1e-12)
    np.testing.assert_allclose(example.got, merged(candidate(*tensors.values()))[0], atol=1e-12)


def test_a_candidate_that_fails_on_small_inputs_gets_an_example_all_the_same() -> None:
    def candidate(query: Array, key: Array, value: Array) -> Array:
        if query.shape[2] < 4 and query.shape[2] == key.shape[2] > 1:
            raise ValueError("too short for me")
        return attend(query, key, value, scale=1.0)

    report = check(candidate, {"num_heads": 3, "causal": True})
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    example, tensors = example_of(report)
    np.testing.assert_allclose(example.got, merged(candidate(*tensors.values()))[0], atol=1e-12)
    assert np.abs(example.expected - example.got).max() > 1e-3


def test_an_example_shows_the_fault_that_was_named_and_no_other() -> None:
    def candidate(query: Array, key: Array, value: Array) -> Array:
        # No probe has two keys or three: what goes wrong there is not what was named.
        return attend(query, key, 5 - value if key.shape[2] in (2, 3) else value, scale=1.0)

    report = check(candidate, {"num_heads": 3, "causal": True})
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    example, tensors = example_of(report)
    assert tensors["key"].shape[2] == 4
    np.testing.assert_allclose(example.got, merged(attend(*tensors.values(), scale=1.0))[0], atol=1e-12)
    np.testing.assert_allclose(example.expected, merged(attend(*tensors.values()))[0], atol=1e-12)


@pytest.mark.slow
def test_an_example_of_what_is_unexplained_is_small_too() -> None:
    def candidate(query: Array, key: Array, value: Array) -> Array:
        return attend(query, np.sin(3 * key) * np.arange(key.shape[2])[:, None], value)

    report = check(candidate, {"num_heads": 3, "causal": True})
    assert (report.verdict, report.faults) == ("wrong", [])
    example, tensors = example_of(report)
    assert example.words in ("2 tokens of 2 numbers, one head", "3 tokens of 2 numbers, one head")
    np.testing.assert_allclose(example.expected, merged(attend(*tensors.values()))[0], atol=1e-12)
    np.testing.assert_allclose(example.got, merged(candidate(*tensors.values()))[0], atol=1e-12)


# --- classes ----------------------------------------------------------------------------------------------------------


class CausalAttention(nn.Module):
    """Attention with an output projection; what comes below it are mistakes."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def scaled(self, scores: torch.Tensor, head_dim: int) -> torch.Tensor:
        return scores / head_dim**0.5

    def merged(self, context: torch.Tensor) -> torch.Tensor:
        return context.transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        query, key, value = (
            proj(x).view(batch, tokens, self.num_heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = self.scaled(query @ key.mT, query.shape[-1])
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
        context = torch.softmax(scores, dim=-1) @ value
        return self.out_proj(self.merged(context).reshape(batch, tokens, width))


class UnscaledCausal(CausalAttention):
    def scaled(self, scores: torch.Tensor, head_dim: int) -> torch.Tensor:
        return scores


class WidthScaledCausal(CausalAttention):
    def scaled(self, scores: torch.Tensor, head_dim: int) -> torch.Tensor:
        return scores / (self.num_heads * head_dim) ** 0.5


class ViewMergedCausal(CausalAttention):
    def merged(self, context: torch.Tensor) -> torch.Tensor:
        return context


def printed_sum(tensors: dict[str, Array], num_heads: int, attended: Callable[..., Array] = attend) -> Array:
    """The right output by the numbers that the example prints."""
    x = tensors["x"]

    def projected(name: str, of: Array) -> Array:
        return of @ tensors[f"{name} (in, out)"] + tensors[f"{name} bias"]

    heads = [
        projected(name, x).reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)
        for name in ("q_proj", "k_proj", "v_proj")
    ]
    return projected("out_proj", merged(attended(*heads)))


@pytest.mark.parametrize(
    ("candidate", "name", "least"),
    [
        (UnscaledCausal, "scale-missing", 1),
        (WidthScaledCausal, "scale-by-model-width", 2),
        (ViewMergedCausal, "heads-merged-by-view", 2),
    ],
)
def test_a_class_is_built_again_with_one_head_or_two(candidate: Any, name: str, least: int) -> None:
    report = check(candidate)
    assert [fault.id for fault in report.faults] == [name]
    assert report.spec is not None
    assert report.spec.num_heads == 6, "the probes themselves are made with more"
    example, tensors = example_of(report)
    _, tokens, width = tensors["x"].shape
    heads = width // 2
    assert least <= heads <= 2
    assert 2 <= tokens <= 3
    assert example.words == f"{tokens} tokens of {width} numbers"
    assert tensors["q_proj (in, out)"].shape == (width, width)
    assert in_halves(*tensors.values())
    assert plain_to_see(example)
    np.testing.assert_allclose(example.expected, printed_sum(tensors, heads)[0], atol=1e-12)

    again = candidate(2 * heads, heads).double()
    with torch.no_grad():
        for proj in ("q_proj", "k_proj", "v_proj", "out_proj"):
            getattr(again, proj).weight.copy_(torch.from_numpy(tensors[f"{proj} (in, out)"].T.copy()))
            getattr(again, proj).bias.copy_(torch.from_numpy(tensors[f"{proj} bias"]))
        got = again(torch.from_numpy(tensors["x"])).numpy()[0]
    np.testing.assert_allclose(example.got, got, atol=1e-12)


def test_a_module_that_is_built_already_keeps_its_sizes_and_gets_few_tokens() -> None:
    torch.manual_seed(0)
    report = check(UnscaledCausal(12, 3))
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    example, tensors = example_of(report)
    assert tensors["x"].shape[1] <= 3
    assert tensors["x"].shape[2] == 12
    larger = ", ".join(f"{name}_proj (12 x 12)" for name in ("q", "k", "v", "out"))
    assert f"left out here, in --format json: {larger}" in " ".join(as_text(report).split())
    written = to_mapping(report)["example"]
    assert [name for name, _ in written["tensors"]] == list(tensors)
    assert written["left_out"] == []
    assert np.abs(example.expected - example.got).max() > 1e-3


def test_the_output_of_a_wrong_sequence_is_shown() -> None:
    def of_the_first(query: Array, key: Array, value: Array) -> Array:
        return attend(query, np.broadcast_to(key[:1], key.shape), value)

    report = check(of_the_first, {"num_heads": 2, "causal": True})
    assert [fault.id for fault in report.faults] == ["sequence-confused"]
    example, _ = example_of(report)
    assert example.words.endswith("of its 2 sequences the output of sequence 1")
    assert plain_to_see(example)


def test_a_right_candidate_has_no_example() -> None:
    report = check(CausalAttention)
    assert (report.verdict, report.example) == ("right", None)
