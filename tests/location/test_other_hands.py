"""The line that is blamed in code of other hands: helpers, fused projections, several arrays at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qkv.report import Report, Verdict

FUSED = """import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        inv_freq = 10000.0 ** -(torch.arange(0, self.head_dim, 2).double() / self.head_dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self.qkv = nn.Linear(d_in, d_out + 2 * self.head_dim)
        self.out_proj = nn.Linear(d_out, d_out)

    def rotary(self, query, key):
        emb = torch.outer(torch.arange(query.shape[-2]).double(), self.inv_freq).repeat(1, 2)
        cos, sin = emb.cos(), emb.sin()
        return query * cos + half(query) * sin, key * cos + half(key) * sin

    def split(self, fused):
        fused = fused.view(*fused.shape[:2], self.num_heads + 2, self.head_dim).transpose(1, 2)
        return fused[:, :-2], fused[:, [-2]], fused[:, [-1]]

    def forward(self, x):
        query_layer, key_layer, value_layer = self.split(self.qkv(x))
        query_layer, key_layer = self.rotary(query_layer, key_layer)
        scores = query_layer @ key_layer.mT * self.head_dim**-0.5
        future = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        value_layer = value_layer.expand(-1, self.num_heads, -1, -1)
        context = weights @ value_layer
        return self.out_proj(context.transpose(1, 2).flatten(2))


def half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
"""

NUMPY = """import numpy as np


def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis, keepdims=True))
    return exps / exps.sum(axis, keepdims=True)


def to_rows(t, heads):
    batch, tokens, _, dim = t.shape
    t = np.repeat(t, heads // t.shape[2], axis=2)
    return t.swapaxes(1, 2).reshape(batch * heads, tokens, dim)


def attention(q, k, v, mask=None):
    \"\"\"q: (batch, tokens, heads, dim); k, v: (batch, tokens, kv_heads, dim); mask: True = may attend.\"\"\"
    batch, tokens, heads, dim = q.shape
    query, key, value = to_rows(q, heads), to_rows(k, heads), to_rows(v, heads)
    scores = (query @ key.swapaxes(1, 2) / np.sqrt(dim)).reshape(batch, heads, tokens, -1)
    keep = np.tri(tokens, k.shape[1], k.shape[1] - tokens, dtype=bool)
    if mask is not None:
        keep = np.logical_and(keep, mask)
    weights = softmax(np.where(keep, scores, -np.inf))
    context = weights @ value.reshape(batch, heads, -1, v.shape[-1])
    return context.swapaxes(1, 2)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("[:, [-2]], fused[:, [-1]]", "[:, [-1]], fused[:, [-2]]", marks=pytest.mark.slow),
        ("key * cos + half(key) * sin", "key"),
        ("value_layer = value_layer.expand", "value_layer = key_layer.expand"),
    ],
)
def test_what_goes_together_through_a_helper_is_told_apart(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]], old: str, new: str
) -> None:
    source, line = changed(FUSED, old, new)
    report = judged(source, rope="halves")
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert report.line.line == line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def softmax(x, axis=-1)", "def softmax(x, axis=-2)"),
        pytest.param(".swapaxes(1, 2).reshape(batch * heads,", ".reshape(batch * heads,", marks=pytest.mark.slow),
        pytest.param("np.logical_and(keep, mask)", "np.logical_or(keep, mask)", marks=pytest.mark.slow),
    ],
)
def test_what_a_helper_does_wrong_is_blamed_there(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]], old: str, new: str
) -> None:
    source, line = changed(NUMPY, old, new)
    report = judged(source, num_heads=6, num_kv_heads=2)
    assert report.verdict is Verdict.WRONG
    assert report.line is not None
    assert report.line.line == line


@pytest.mark.slow  # no fault explains it, and all are tried
def test_weights_that_nothing_divides_are_to_be_divided_between_their_making_and_the_output(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]]
) -> None:
    source, line = changed(NUMPY, "exps / exps.sum(axis, keepdims=True)", "exps")
    report = judged(source, num_heads=6, num_kv_heads=2)
    assert report.line is not None
    assert report.line.line <= line <= (report.line.until or report.line.line)


PADDED = """import numpy as np


def additive(mask):
    laid = mask[:, None, None, :].astype(float)
    return (1.0 - laid) * -1e4


def capped(scores, cap=5.0):
    scores = np.tanh(scores / cap) * cap
    return scores


def score(q, k):
    return np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])


def hide(scores, mask):
    return scores if mask is None else scores + additive(mask)


def softmax(scores):
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def attention(q, k, v, attention_mask=None):
    \"\"\"q, k, v: (batch, heads, tokens, dim); attention_mask: (batch, keys) with 1 for tokens and 0 for padding.\"\"\"
    weights = softmax(hide(capped(score(q, k)), attention_mask))
    return weights @ v
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mask[:, None, None, :]", "mask[:, None, :, None]"),
        ("+ additive(mask)", "+ additive(np.ones_like(mask))"),
        ("softmax(hide(capped(score(q, k)), ", "softmax(hide(score(q, k), "),
        ("scores = np.tanh(", "np.tanh("),
    ],
)
def test_a_step_of_many_helpers_is_blamed_where_it_is_missing(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]], old: str, new: str
) -> None:
    source, line = changed(PADDED, old, new)
    report = judged(source, causal=False, softcap=5.0)
    assert report.line is not None
    assert report.line.line == line


MAPPED = """import torch
from torch import nn


def normed(t, gain):
    return t * torch.rsqrt(t.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * gain


def turned(t, angles):
    first, second = t.chunk(2, dim=-1)
    return t * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out, bias=False)
        self.q_norm, self.k_norm = (nn.Parameter(torch.ones(self.head_dim)) for _ in range(2))

    def split(self, t):
        return t.view(*t.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        speeds = 10000.0 ** -(torch.arange(0, self.head_dim, 2).double() / self.head_dim)
        angles = torch.outer(torch.arange(x.shape[1]).double(), speeds).repeat(1, 2)
        q, k, v = map(self.split, (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        q = normed(q, self.q_norm)
        k = normed(k, self.k_norm)
        q, k = map(lambda t: turned(t, angles), (q, k))
        scores = q @ k.mT * self.head_dim**-0.5
        future = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize("new", ["q, k, v = map(lambda t: turned(t, angles), (q, k, v))", "q = turned(q, angles)"])
def test_what_is_turned_by_mistake_or_not_is_blamed_on_the_call_not_on_what_all_share(
    judged: Callable[..., Report], changed: Callable[..., tuple[str, int]], new: str
) -> None:
    source, line = changed(MAPPED, "q, k = map(lambda t: turned(t, angles), (q, k))", new)
    report = judged(source, rope="halves", qk_norm="head")
    assert report.line is not None
    assert report.line.line <= line <= (report.line.until or report.line.line)
