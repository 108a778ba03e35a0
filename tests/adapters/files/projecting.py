"""Candidates that hold weights, in the ways people keep them."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn


class SelfAttention(nn.Module):
    """One head."""

    scale_power = -0.5

    def __init__(self, d_in: int, d_out=4, *, bias: bool = False, dropout=0.5):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_out, bias=bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.d_out = d_out
        self.config = SimpleNamespace(n_head=1, inner={"causal": False}, names=["a"])
        self.register_buffer("mask", torch.tril(torch.ones(9, 9, dtype=torch.bool)), persistent=False)
        self.register_buffer("inv_freq", 1 / torch.arange(1, 4))
        self.temperature = torch.tensor(1.0)

    def forward(self, x, *, return_weights=False):
        scores = self.q_proj(x) @ self.k_proj(x).transpose(-2, -1) * self.d_out**self.scale_power
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return (weights @ self.v_proj(x), weights) if return_weights else weights @ self.v_proj(x)


class PlainHeads(nn.Module):
    """Heads in a list that torch never hears of, and a weight that is no parameter."""

    def __init__(self, d_in):
        super().__init__()
        self.heads = [SelfAttention(d_in, 3) for _ in range(2)]
        self.out = torch.randn(6, 5)

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1) @ self.out


class Caching(nn.Module):
    """Remembers what it has seen."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.cache = None

    def forward(self, x):
        x = self.proj(x)
        self.cache = x if self.cache is None else torch.cat([self.cache, x], dim=1)
        return self.cache


class Uncopyable(Caching):
    def __deepcopy__(self, memo):
        raise RuntimeError("no")


class NumpyAttention:
    def __init__(self, size=4):
        rng = np.random.default_rng(0)
        self.W_q = rng.normal(size=(size, size))
        self.tables = {"k": rng.normal(size=(size, size))}
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x @ self.W_q @ self.tables["k"], self.calls


@dataclass
class BlockConfig:
    n_embd: int
    n_head: int = 2
    bias: bool = True
    sizes: list = field(default_factory=list)


class Configured(nn.Module):
    def __init__(self, config: BlockConfig):
        super().__init__()
        self.config = config
        self.kind = type(config).__name__
        self.window = getattr(config, "window", 3)

    def forward(self, x):
        return x


class Loose(nn.Module):
    def __init__(self, cfg: dict, depth: int = 1):
        super().__init__()
        self.width = cfg["emb_dim"]
        self.heads = cfg.get("n_heads", 7)
        self.same = cfg.emb_dim == cfg["emb_dim"] and "emb_dim" in cfg and list(cfg) == ["emb_dim"]
        self.depth = depth

    def forward(self, x):
        return x


class Sectioned(nn.Module):
    def __init__(self, cfg, part="model"):
        super().__init__()
        self.width = cfg[part]["width"]
        self.heads = cfg.attention["heads"]

    def forward(self, x):
        return x


def make_attention():
    return SelfAttention(6)


built = SelfAttention(6)


class Unannotated(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.n_embd + config["n_embd"]
        self.heads = config.n_head

    def forward(self, x):
        return x
