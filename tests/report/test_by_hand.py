"""By hand: whoever computes with the printed numbers alone gets the right output that is printed below them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qkv.debugger import check
from qkv.diagnosis import under
from qkv.faults import CATALOGUE
from qkv.oracle import Inputs, run_stages
from qkv.report import CandidateWords, Example, Report, Verdict, to_mapping
from qkv.report.digits import left_out
from qkv.report.terminal import as_text
from qkv.spec import spec_from_mapping

Array = np.ndarray

# --- reading ----------------------------------------------------------------------------------------------------------


def printed(report: Report) -> tuple[str, dict[str, Array]]:
    """The sentences, and every array by its name, of the part "by hand" as it stands in the terminal."""
    part = re.search(r"^  by hand .*?(?=^\n|\Z)", as_text(report, 120), re.MULTILINE | re.DOTALL)
    assert part is not None
    words, _, rest = part[0].partition("[")
    sentences, name = words.rsplit("\n", 1)
    named = re.findall(r"^ {12}(\S[^\[]*?) +(\[[^a-z]*\])", f"{name}[{rest}", re.MULTILINE)
    return " ".join(sentences.split()), {name: array_of(text) for name, text in named}


def array_of(text: str) -> Array:
    def items(pieces: Iterator[str]) -> list[Any]:
        return [items(pieces) if piece == "[" else float(piece) for piece in iter(lambda: next(pieces), "]")]

    pieces = iter(re.findall(r"[\[\]]|[^\s\[\]]+", text))
    next(pieces)
    return np.array(items(pieces))


# --- computing --------------------------------------------------------------------------------------------------------


def by_hand(sentences: str, given: dict[str, Array]) -> Array:
    """The output of the printed arrays under the printed sentence, ``(query, channel)``."""
    heads = int(re.search(r"held to (\d+) ", sentences)[1])  # type: ignore[index]
    shared = re.search(r"over (\d+) key/value", sentences)
    kv_heads = int(shared[1]) if shared else heads
    if "x" in given:
        source = given.get("source", given["x"])
        tokens = {"query": given["x"], "key": source, "value": source}
        of_heads = {
            name: projected(given, f"{name[0]}_proj", tokens[name]).reshape(len(tokens[name]), count, -1).swapaxes(0, 1)
            for name, count in (("query", heads), ("key", kv_heads), ("value", kv_heads))
        }
    else:
        dim = int(re.search(r"tokens of (\d+)|keys of (\d+)", sentences)[0].split()[-1])  # type: ignore[index]
        counts = {"query": heads, "key": kv_heads, "value": kv_heads}
        of_heads = {name: given[name].reshape(count, -1, dim) for name, count in counts.items()}
    query, key, value = (np.repeat(of, heads // len(of), axis=0) for of in of_heads.values())
    scores = query @ key.swapaxes(1, 2) / np.sqrt(int(re.search(r"1/sqrt\((\d+)\)", sentences)[1]))  # type: ignore[index]
    context = softmax(np.where(may_attend(sentences, *scores.shape[1:]), scores, -np.inf)) @ value
    merged = context.swapaxes(0, 1).reshape(len(context[0]), -1)
    return projected(given, "out_proj", merged) if "out_proj (in, out)" in given else merged


def projected(given: dict[str, Array], name: str, of: Array) -> Array:
    return of @ given[f"{name} (in, out)"] + given.get(f"{name} bias", 0.0)


def may_attend(sentences: str, queries: int, keys: int) -> Array:
    window = re.search(r"window\((\d+)\)|window of (\d+)|last (\d+)", sentences)
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    seen = distance >= 0 if "causal" in sentences else np.ones((queries, keys), bool)
    return seen & (distance < int(window[window.lastindex or 0])) if window else seen


def softmax(scores: Array) -> Array:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def assert_comes_out(report: Report, fault: str) -> None:
    assert fault in [one.id for one in (*report.faults, *report.alternatives)]
    sentences, arrays = printed(report)
    assert "left out here" not in as_text(report, 120)
    np.testing.assert_allclose(by_hand(sentences, arrays), arrays["expected"], atol=6e-5)
    assert np.abs(arrays["expected"] - arrays["got"]).max() > 1e-4


def test_what_is_too_large_to_print_is_said_with_where_it_is() -> None:
    sizes = {"x": 8, "q_proj (in, out)": 9, "k_proj (in, out)": 64, "v_proj (in, out)": 65}
    example = Example(
        "two tokens", [(name, np.ones((size, size))) for name, size in sizes.items()], np.ones(2), np.ones(2)
    )
    assert left_out(example) == (
        "left out here, in --format json: q_proj (9 x 9), k_proj (64 x 64); "
        "too large to be written out: v_proj (65 x 65)"
    )
    assert left_out(replace(example, tensors=example.tensors[:1])) == ""
    written = to_mapping(Report(Verdict.WRONG, CandidateWords("f"), example=example))["example"]
    assert [name for name, _ in written["tensors"]] == list(sizes)[:3]
    assert written["left_out"] == ["v_proj (65 x 65)"]


# --- functions --------------------------------------------------------------------------------------------------------

SPECS: dict[str, dict[str, Any]] = {
    "plain": {"num_heads": 3},
    "causal": {"num_heads": 3, "causal": True, "query_offset": "bottom_right"},
    "window": {"num_heads": 3, "causal": True, "window": 3, "query_offset": "bottom_right"},
    "grouped": {"num_heads": 4, "num_kv_heads": 2, "causal": True, "query_offset": "bottom_right"},
}


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("plain", "softmax-over-queries"),
        ("plain", "weights-times-key"),
        ("causal", "scale-missing"),
        ("causal", "causal-missing"),
        ("causal", "causal-one-ahead"),
        ("causal", "causal-corner"),
        ("causal", "mask-after-softmax"),
        ("window", "window-off-by-one"),
        ("grouped", "kv-heads-tiled"),
    ],
)
def test_the_output_of_a_function_comes_out(spec: str, fault: str) -> None:
    meant = spec_from_mapping(SPECS[spec])

    def candidate(query: Array, key: Array, value: Array) -> Array:
        now = meant.but(num_heads=query.shape[1], num_kv_heads=key.shape[1])
        with np.errstate(all="ignore"):
            right = run_stages(now, Inputs(query=query, key=key, value=value))
            output = under((next(CATALOGUE[fault].variants(now)),), right).output
        return output.reshape(*output.shape[:2], -1, value.shape[-1]).swapaxes(1, 2)

    assert_comes_out(check(candidate, SPECS[spec]), fault)


# --- classes ----------------------------------------------------------------------------------------------------------


class CausalAttention(nn.Module):
    """Grouped causal attention; what comes below it are mistakes."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, d_model // n_heads
        self.wq = nn.Linear(d_model, n_heads * self.head_dim)
        self.wk = nn.Linear(d_model, n_kv_heads * self.head_dim)
        self.wv = nn.Linear(d_model, n_kv_heads * self.head_dim)
        self.wo = nn.Linear(n_heads * self.head_dim, d_model)

    def repeated(self, of: torch.Tensor) -> torch.Tensor:
        return of.repeat_interleave(self.n_heads // self.n_kv_heads, 1)

    def scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores / self.head_dim**0.5

    def hidden(self, tokens: int) -> torch.Tensor:
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)

    def shares(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1)

    def merged(self, context: torch.Tensor) -> torch.Tensor:
        return context.transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        query = self.wq(x).view(batch, tokens, self.n_heads, self.head_dim).transpose(1, 2)
        key = self.wk(x).view(batch, tokens, self.n_kv_heads, self.head_dim).transpose(1, 2)
        value = self.wv(x).view(batch, tokens, self.n_kv_heads, self.head_dim).transpose(1, 2)
        scores = self.scaled(query @ self.repeated(key).mT).masked_fill(self.hidden(tokens), -torch.inf)
        context = self.shares(scores) @ self.repeated(value)
        return self.wo(self.merged(context).reshape(batch, tokens, -1))


class TiledCausal(CausalAttention):
    def repeated(self, of: torch.Tensor) -> torch.Tensor:
        return of.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)


class UnscaledCausal(CausalAttention):
    def scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores


class AheadCausal(CausalAttention):
    def hidden(self, tokens: int) -> torch.Tensor:
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(2)


class TwiceCausal(CausalAttention):
    def shares(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1).softmax(-1)


class ViewMergedCausal(CausalAttention):
    def merged(self, context: torch.Tensor) -> torch.Tensor:
        return context


@pytest.mark.parametrize(
    ("candidate", "fault"),
    [
        (TiledCausal, "kv-heads-tiled"),
        (UnscaledCausal, "scale-missing"),
        (AheadCausal, "causal-one-ahead"),
        (TwiceCausal, "softmax-twice"),
        (ViewMergedCausal, "heads-merged-by-view"),
    ],
)
def test_the_output_of_a_class_comes_out_with_its_projections(candidate: Any, fault: str) -> None:
    report = check(candidate)
    assert_comes_out(report, fault)
    assert {f"{name}_proj (in, out)" for name in ("q", "k", "v", "out")} <= printed(report)[1].keys()
