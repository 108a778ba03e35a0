"""The line where two don't go together, where what is applied is right and how isn't, and where steps change places."""

from __future__ import annotations

import pytest

SCALED = """import torch


def attention(q, k, v):
    factor = q.shape[-1] ** 0.5
    scores = q @ k.mT * factor
    scores = 5.0 * torch.tanh(scores / 5.0)
    return torch.softmax(scores, dim=-1) @ v
"""

ROWS = """import numpy as np


def attention(q, k, v):
    batch, heads, tokens, width = q.shape
    out = np.zeros_like(v)
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h], v[b, h]
            for t in range(tokens):
                begin = max(0, t - 2)
                seen = np.arange(tokens) < t + 1
                scores = keys @ q[b, h, t] / np.sqrt(width)
                scores = np.where(seen, scores, -np.inf)
                weights = np.exp(scores - scores.max())
                out[b, h, t] = weights / weights.sum() @ values
    return out
"""

TURNED = """import torch


def turned(x):
    places = torch.arange(x.shape[-2]).double()
    angles = places[:, None] * 10000.0 ** -(torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def attention(q, k, v):
    \"\"\"q, k, v: (batch, tokens, heads, width)\"\"\"
    q = turned(q).transpose(1, 2)
    k = turned(k).transpose(1, 2)
    v = v.transpose(1, 2).repeat_interleave(q.shape[1] // v.shape[2], dim=1)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(ahead, float("-inf")), dim=-1)
    return (weights @ v).transpose(1, 2)
"""


def number_of(source: str, text: str) -> int:
    return source[: source.index(text)].count("\n") + 1


def test_a_number_that_is_used_the_other_way_round_names_both_lines(judged) -> None:
    report = judged(SCALED.replace("    scores = 5.0 * torch.tanh(scores / 5.0)\n", ""), causal=False)
    assert [fault.id for fault in report.faults] == ["scale-inverted"]
    assert (report.line.line, report.line.until) == (6, 5)
    assert "the other way round" in report.line.note


@pytest.mark.slow
def test_a_number_that_is_no_scale_either_way_is_wrong_where_it_is_set(judged) -> None:
    source = SCALED.replace("    scores = 5.0 * torch.tanh(scores / 5.0)\n", "").replace("** 0.5", "** -0.3")
    report = judged(source, causal=False)
    assert (report.line.line, report.line.until) == (5, None)


def test_scores_that_are_capped_before_they_are_scaled_lack_the_scale_before(judged) -> None:
    late = SCALED.replace(" * factor", "").replace("scores / 5.0)", "scores / 5.0) / factor")
    report = judged(late, causal=False, softcap=5.0)
    assert [fault.id for fault in report.faults] == ["softcap-before-scale"]
    assert (report.line.line, report.line.until) == (6, 7)


@pytest.mark.parametrize("new", ["np.where(seen, scores, -10.0)", "scores * seen", "scores + seen"])
def test_a_right_mask_that_is_used_wrongly_is_not_blamed(new: str, judged) -> None:
    source = ROWS.replace("np.where(seen, scores, -np.inf)", new)
    report = judged(source)
    assert report.line.line == number_of(source, new)


def test_a_mask_that_is_added_and_hides_too_little_is_blamed_where_it_is_made(judged) -> None:
    added = ROWS.replace("seen = np.arange(tokens) < t + 1", "seen = -5.0 * (np.arange(tokens) > t)")
    report = judged(added.replace("np.where(seen, scores, -np.inf)", "scores + seen"))
    assert [fault.id for fault in report.faults] == ["mask-fill-too-small"]
    assert report.line.line == number_of(added, "seen = -5.0")


def test_the_end_of_a_stretch_is_blamed_and_not_what_was_put_together_before(judged) -> None:
    cut = ROWS.replace("keys @", "keys[begin : t + 1] @").replace("@ values", "@ values[begin : t + 1]")
    cut = cut.replace("scores = np.where(seen, scores, -np.inf)", "pass").replace("k[b, h]", "np.stack(list(k[b, h]))")
    report = judged(cut.replace("max(0, t - 2)", "0"), window=3)
    assert [fault.id for fault in report.faults] == ["window-missing"]
    assert report.line.code == "begin = 0"


def test_rope_along_heads_is_told_from_where_they_were_laid_so(judged) -> None:
    report = judged(TURNED, rope="halves", num_heads=6, num_kv_heads=2)
    assert [fault.id for fault in report.faults] == ["rope-over-heads"]
    assert report.line.code == "q = turned(q).transpose(1, 2)"
    made = TURNED.replace("    q = turned(q)", "    q = q.unflatten(2, (-1, 1)).flatten(2, 3)\n    q = turned(q)")
    line = judged(made, rope="halves", num_heads=6, num_kv_heads=2).line
    assert (line.line, line.until) == (number_of(made, "q = q.unflatten"), number_of(made, "q = turned"))
    assert "before line" in line.note


EXCHANGED = """import torch


def tables(tokens, width):
    angles = torch.arange(tokens).double()[:, None] * 10000.0 ** -(torch.arange(0, width, 2).double() / width)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.sin(), angles.cos()


def turned(x):
    cos, sin = tables(x.shape[2], x.shape[3])
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def attention(q, k, v):
    scores = turned(q) @ turned(k).mT / q.shape[-1] ** 0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(ahead, float("-inf")), dim=-1) @ v
"""


def test_tables_that_change_places_are_told_from_where_they_are_given_to_where_they_are_taken(judged) -> None:
    line = judged(EXCHANGED, rope="halves").line
    assert (line.code, line.until) == ("return angles.sin(), angles.cos()", number_of(EXCHANGED, "cos, sin = tables"))
    assert "cos and sin of rope change places" in line.note


SCALED_BEFORE = """import torch
from torch import nn


def weighed(query, key, value, scale):
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    return torch.softmax(scores, dim=-1) @ value


class SelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scaling = (embed_dim // num_heads) ** -0.5
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        query = self.q_proj(x) * self.scaling
        query, key, value = self.split(query), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        context = weighed(query, key, value, scale=1.0)
        return self.out_proj(context.transpose(1, 2).flatten(2))
"""


def test_a_scale_of_1_is_told_beside_the_query_where_a_scale_is_set_and_not_used(judged) -> None:
    source = SCALED_BEFORE.replace(" * self.scaling\n", "\n")
    line = judged(source, causal=False).line
    assert line is not None
    told = [source.splitlines()[number - 1] for number in (line.line, line.until)]
    assert [text.strip() for text in told] == [
        "context = weighed(query, key, value, scale=1.0)",
        "query = self.q_proj(x)",
    ]


def test_a_scale_of_1_is_blamed_alone_where_no_other_is_set(judged) -> None:
    source = SCALED_BEFORE.replace(" * self.scaling\n", "\n").replace(
        "        self.scaling = (embed_dim // num_heads) ** -0.5\n", ""
    )
    line = judged(source, causal=False).line
    assert line is not None
    assert (line.code, line.until) == ("context = weighed(query, key, value, scale=1.0)", None)
