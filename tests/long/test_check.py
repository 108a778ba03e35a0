"""check() at one long length: right attentions, faults that only length brings, and what can't be run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import qkv
from thinned import thinned

pytestmark = pytest.mark.usefixtures("unchecked")

GIVEN: dict[str, Any] = {"num_heads": 4, "head_dim": 16, "causal": True, "query_offset": "top_left"}
LENGTH = 1500


def masked(query: Tensor, key: Tensor, value: Tensor, may_attend: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=may_attend)


def square(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(query.shape[-2])[:, None], torch.arange(key.shape[-2])[None]


def right(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def first_thousand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    i, j = square(query, key)
    return masked(query, key, value, (j <= i) & (j < 1000))


def nearest_512(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    i, j = square(query, key)
    return masked(query, key, value, (j <= i) & (i - j < 512))


def counted_in_bfloat16(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    i, j = (at.bfloat16() for at in square(query, key))
    return masked(query, key, value, j <= i)


def read_again(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    index = torch.arange(key.shape[-2]) % 1024
    return right(query, key[..., index, :], value[..., index, :])


def later_rows_see_ahead(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    i, j = square(query, key)
    return masked(query, key, value, j <= i + (i >= 1024).int())


def tail_dropped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    i, j = square(query, key)
    whole = key.shape[-2] // 256 * 256
    return masked(query, key, value, (j <= i) & (j < (whole or key.shape[-2])))


FAULTS: dict[str, tuple[Callable[..., Tensor], str, str]] = {
    "keys-end": (first_thousand, "only the first 1000 keys are seen", "rows from 1,000 on are wrong"),
    "keys-end nearest": (nearest_512, "only the nearest 512 keys are seen", "rows from 512 on are wrong"),
    "positions-low-precision": (counted_in_bfloat16, "in the mask, positions are bfloat16", "the first 256"),
    "index-overflow": (read_again, "key and value j are those of j % 1024", "rows from 1,024 on are wrong"),
    "causal-one-ahead": (
        later_rows_see_ahead,
        "only queries at positions from 1,024 on",
        "rows 1,024 to 1,498 are wrong",
    ),
    "tail-block": (tail_dropped, "blocks of 256 keys, the last one dropped", "rows from 1,280 on are wrong"),
}


@pytest.mark.parametrize("dtype", [None, "float64", "float32", "bfloat16", "float16"])
def test_a_right_attention_is_right_in_every_precision(dtype: Any) -> None:
    report = qkv.check(right, GIVEN, length=LENGTH, dtype=dtype)
    assert report.verdict == "right", report.why
    assert report.probes[-1].name == f"length {LENGTH}"
    assert report.probes[-1].agrees


@pytest.mark.parametrize("name", thinned(FAULTS))
def test_a_fault_that_only_length_brings_is_named(name: str) -> None:
    candidate, note, rows = FAULTS[name]
    assert qkv.check(candidate, GIVEN).verdict == "right"
    report = qkv.check(candidate, GIVEN, length=LENGTH)
    assert report.verdict == "wrong"
    assert rows in report.spread
    assert (report.faults[0].id, report.faults[0].note) == (name.partition(" ")[0], note)
    assert report.first_disagreement is not None
    assert str(report.first_disagreement.query) in rows.replace(",", "")


@pytest.mark.slow
def test_one_future_key_of_one_row_is_seen() -> None:
    def leaking(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        i, j = square(query, key)
        return masked(query, key, value, (j <= i) | ((i == 1234) & (j == 1235)))

    report = qkv.check(leaking, GIVEN, length=LENGTH)
    assert report.verdict == "wrong"
    assert report.spread == "of 1,500 tokens: row 1,234 is wrong"
    assert report.faults == [], "all later rows would be wrong too"


def test_what_is_wrong_from_a_length_on_is_said_with_that_length() -> None:
    def bidirectional_when_long(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[-2] <= 1024)

    report = qkv.check(bidirectional_when_long, GIVEN, length=LENGTH)
    assert report.only_when == "a sequence has 1,025 tokens or more; with 1,024 it is right"
    assert report.faults[0].id in ("causal-missing", "mask-not-applied")


def test_rope_in_bfloat16_positions_is_named() -> None:
    def roped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        at = torch.arange(query.shape[-2])
        at = (at if len(at) < 400 else at.bfloat16()).to(query.dtype)
        angles = at[:, None] * 10000.0 ** (-torch.arange(0, 16, 2, dtype=query.dtype) / 16)
        cos, sin = angles.cos(), angles.sin()

        def turned(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        return right(turned(query), turned(key), value)

    report = qkv.check(roped, {**GIVEN, "rope": "halves"}, length=LENGTH)
    assert report.verdict == "wrong"
    assert report.faults[0].note == "in rope, positions are bfloat16"


class Projecting(nn.Module):
    def __init__(self, embed_dim: int = 48, num_heads: int = 4, room: int = 10_000) -> None:
        super().__init__()
        self.num_heads, self.room = num_heads, room
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            proj(x).view(batch, length, self.num_heads, -1).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        i, j = square(query, key)
        context = masked(query, key, value, (j <= i) & (j < self.room))
        return self.out_proj(context.transpose(1, 2).reshape(batch, length, width))


@pytest.mark.slow
def test_a_module_is_judged_behind_its_output_projection() -> None:
    spec = {"num_heads": 4, "causal": True}
    assert qkv.check(Projecting(), spec, length=LENGTH).verdict == "right"
    report = qkv.check(Projecting(room=1000), spec, length=LENGTH)
    assert report.spread == "of 1,500 tokens: rows from 1,000 on are wrong"
    assert report.faults[0].id == "keys-end"


def test_a_length_that_it_does_not_take_leaves_it_undecided() -> None:
    def short(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if query.shape[-2] > 1024:
            raise ValueError("at most 1024 tokens")
        return right(query, key, value)

    report = qkv.check(short, GIVEN, length=LENGTH)
    assert report.verdict == "undecided"
    assert report.why.startswith("right on short inputs, but it could not be run with 1,500 tokens")
    assert "at most 1024 tokens" in report.why


def test_a_wrong_candidate_is_not_run_at_length() -> None:
    def unscaled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return right(query * math.sqrt(query.shape[-1]), key, value)

    report = qkv.check(unscaled, GIVEN, length=LENGTH)
    assert report.faults[0].id == "scale-missing"
    assert not any(probe.name.startswith("length") for probe in report.probes)
