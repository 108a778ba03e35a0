"""Normalised query and key are known by what their norms are and where they stand, whatever these are called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qkv.adapters.host import Host
from qkv.adapters.projections import norm_roles
from qkv.debugger import check


class Scaled(nn.Module):
    """A norm whose class doesn't say so."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gamma * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def attention(names: str, norm: Any, *, whole: bool = False, unused: str = "") -> type[nn.Module]:
    """An attention with norms of these names for query and key, over the heads or the whole width."""
    by_role = dict(zip("qk", names.split() * 2, strict=False))

    class Attention(nn.Module):
        def __init__(self, embed_dim: int, num_heads: int) -> None:
            super().__init__()
            self.num_heads = num_heads
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
            for name in names.split():
                setattr(self, name, norm(embed_dim if whole else embed_dim // num_heads))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = {"q": self.q_proj(x), "k": self.k_proj(x), "v": self.v_proj(x)}
            made = made if not whole else self.normed(made)
            made = {role: one.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for role, one in made.items()}
            made = made if whole else self.normed(made)
            context = nn.functional.scaled_dot_product_attention(made["q"], made["k"], made["v"], is_causal=True)
            return self.o_proj(context.transpose(1, 2).flatten(2))

        def normed(self, made: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            used = {role: name for role, name in by_role.items() if role != unused}
            return made | {role: getattr(self, name)(made[role]) for role, name in used.items()}

    return Attention


@pytest.mark.parametrize(
    ("names", "norm", "whole"),
    [
        ("qn kn", nn.RMSNorm, False),
        ("ln_q ln_k", nn.LayerNorm, False),
        ("attn_q_rms attn_k_rms", Scaled, True),
        ("first second", Scaled, False),
        ("norm", nn.RMSNorm, False),
    ],
)
def test_norms_of_any_name_are_known(names: str, norm: Any, whole: bool) -> None:
    report = check(attention(names, norm, whole=whole), {"causal": True})
    assert (report.verdict, report.spec.qk_norm) == ("right", "width" if whole else "head")  # type: ignore[union-attr]


def test_one_that_is_made_and_not_used_is_missed() -> None:
    report = check(attention("qn kn", nn.RMSNorm, unused="k"), {"causal": True})
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", ["qk-norm-missing"])


def test_norms_of_tokens_are_none_of_query_and_key() -> None:
    block = attention("norm_x norm_y", nn.LayerNorm, whole=True)
    assert norm_roles(Host().open(block(12, 3))) == {}
