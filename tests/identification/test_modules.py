"""Modules read from outside: projections made for one-hot tokens put any query, key and value in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.layers import MultiHeadAttention
from qkv.masks import Causal, Everything
from qkv.positions import Rope


def test_a_module_of_grouped_heads_with_rope() -> None:
    module = MultiHeadAttention(embed_dim=48, num_heads=6, num_kv_heads=2, causal=True, rope="adjacent")
    identity = qkv.identify(module)
    assert identity.known
    spec = identity.spec
    assert spec is not None
    assert (spec.num_heads, spec.kv_heads, spec.mask) == (6, 2, Causal())
    assert spec.rope == Rope("adjacent")
    assert identity.estimates["scale"].value == pytest.approx(8**-0.5, rel=1e-6)


def test_torchs_own_multi_head_attention() -> None:
    identity = qkv.identify(torch.nn.MultiheadAttention(48, 6, batch_first=True))
    assert identity.known
    assert identity.spec is not None
    assert (identity.spec.num_heads, identity.spec.mask, identity.spec.scale) == (6, Everything(), None)


class Unscaled(torch.nn.Module):
    """Fused projections, no scale, and a window of three."""

    def __init__(self, dim: int = 24, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = torch.nn.Linear(dim, 3 * dim)
        self.c_proj = torch.nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        batch, length, dim = x.shape
        split = (part.view(batch, length, self.num_heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        query, key, value = split
        at = torch.arange(length)
        near = (at[:, None] >= at[None, :]) & (at[:, None] - at[None, :] < 3)
        weights = torch.softmax((query @ key.transpose(-1, -2)).masked_fill(~near, -torch.inf), -1)
        return self.c_proj((weights @ value).transpose(1, 2).reshape(batch, length, dim))


@pytest.mark.parametrize("candidate", [Unscaled, Unscaled()], ids=["class", "module"])
def test_a_class_is_built_first(candidate: Any) -> None:
    identity = qkv.identify(candidate)
    assert identity.known, identity.undecided
    assert identity.spec is not None
    assert (str(identity.spec.mask), identity.estimates["scale"].name) == ("causal & window(3)", "1")


def test_what_is_no_module_of_tokens_is_said_so() -> None:
    identity = qkv.identify(torch.nn.ReLU())
    assert (identity.spec, identity.exit_code) == (None, 4)
    assert identity.why


class OverQueries(torch.nn.Module):
    """A softmax over the wrong axis: no reading of it is attention, and it is built several times in the search."""

    def __init__(self, d_in: int, d_out: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_query, self.W_key, self.W_value = (torch.nn.Linear(d_in, d_out) for _ in range(3))
        self.out_proj = torch.nn.Linear(d_out, d_out)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        heads = (
            project(x).view(batch, length, self.num_heads, -1).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        query, key, value = heads
        weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5, -2)
        return self.out_proj((weights @ value).transpose(1, 2).reshape(batch, length, -1))


def test_the_first_reading_that_runs_is_examined_as_it_was_built() -> None:
    identity = qkv.identify(OverQueries)
    assert identity.spec is None
    assert identity.why.startswith("this is no attention that a spec can say: scores grow neither"), identity.why
