"""Faults that no single row shows in low precision, seen in many rows together; and no alarm without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import qkv
from qkv.long_sequence.answer import Answer
from qkv.long_sequence.together import drifting
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import Inputs
from qkv.probes import Probe
from qkv.spec import AttentionSpec

pytestmark = pytest.mark.usefixtures("unchecked")

LENGTH, WINDOW = 4096, 3000
GIVEN: dict[str, Any] = {"num_heads": 2, "head_dim": 32, "causal": True, "window": WINDOW, "query_offset": "top_left"}


def answer(dtype: str, window: int) -> Answer:
    """What torch gives with a window of this size, where one of 3,000 is meant."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, LENGTH, 32, generator=draw).to(getattr(torch, dtype)) for _ in range(3))
    at = torch.arange(LENGTH)
    distance = at[:, None] - at[None]
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=(distance >= 0) & (distance < window))
    output = context.transpose(1, 2).reshape(1, LENGTH, -1).double().numpy()
    inputs = Inputs(*[None] * 4, *(tensor.float().numpy() for tensor in (query, key, value)))
    spec = AttentionSpec(2, 2, 32, mask=Causal() & SlidingWindow(WINDOW), out_proj=False, query_offset="top_left")
    return Answer(spec, Probe("long", "", inputs), output, dtype, None, judge_empty_rows=False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_window_of_one_key_too_many_is_seen_in_rows_together(dtype: str) -> None:
    wrong = answer(dtype, WINDOW + 1)
    assert wrong.rows([4000]).comparison.agrees
    found = drifting(wrong)
    assert found is not None
    assert (found.variant.fault.id, found.variant.note) == ("window-off-by-one", "one key too many")
    assert found.share == pytest.approx(1, abs=4 * found.error)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_alone_shows_no_fault(dtype: str) -> None:
    assert drifting(answer(dtype, WINDOW)) is None


def test_float32_needs_no_second_look() -> None:
    assert drifting(answer("float32", WINDOW + 1)) is None
    assert not answer("float32", WINDOW + 1).rows([4000]).comparison.agrees


@pytest.mark.slow
def test_the_report_says_how_sure_it_is() -> None:
    def wide(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        at = torch.arange(query.shape[-2])
        distance = at[:, None] - at[None]
        seen = (distance >= 0) & (distance < WINDOW + (len(at) > WINDOW))
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen)

    report = qkv.check(wide, GIVEN, length=LENGTH, dtype="bfloat16")
    assert report.verdict == "wrong"
    assert report.faults[0].id == "window-off-by-one"
    assert "no row is off by more than bfloat16 precision rounds away" in report.why
    assert np.isfinite(report.faults[0].error)
