"""An attention as somebody would write it in torch, and the list of mistakes made in it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from faulty_code.examples import EXAMPLES, Example
from qkv.masks import Causal
from qkv.oracle import Inputs, Linear, Norm
from qkv.positions import RopeScaling
from qkv.spec import AttentionSpec


def apply(x: Tensor, projection: Linear) -> Tensor:
    return torch.nn.functional.linear(x, projection.weight, projection.bias)


class Attention:
    """Right code. Every mistake below changes one of its methods."""

    def __init__(self, spec: AttentionSpec, inputs: Inputs) -> None:
        self.spec, self.inputs = spec, inputs.map(torch.asarray)
        self.p = self.inputs.parameters
        self.H, self.G = spec.num_heads, spec.num_kv_heads or spec.num_heads
        self.B = self.inputs.batch
        self.T, self.S = self.inputs.lengths
        x = self.inputs.x
        self.x = x
        self.source = x if self.inputs.source is None else self.inputs.source
        self.value_source = self.source if self.inputs.value_source is None else self.inputs.value_source

    def __call__(self) -> Tensor:
        return self.out(self.merge(self.attend(*self.turn(*self.repeat(*self.norm(*self.split(*self.project())))))))

    def project(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.p is None:  # made already: put back as a module has them
            i = self.inputs
            return tuple(x.transpose(1, 2).flatten(2) for x in (i.query, i.key, i.value))  # type: ignore[return-value]
        return apply(self.x, self.p.q_proj), apply(self.source, self.p.k_proj), apply(self.value_source, self.p.v_proj)

    def split(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.spec.qk_norm == "width":
            q, k = self.q_norm(q), self.k_norm(k)
        return (
            q.view(self.B, self.T, self.H, -1).transpose(1, 2),
            k.view(self.B, self.S, self.G, -1).transpose(1, 2),
            v.view(self.B, self.S, self.G, -1).transpose(1, 2),
        )

    def norm(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (self.q_norm(q), self.k_norm(k), v) if self.spec.qk_norm == "head" else (q, k, v)

    def q_norm(self, x: Tensor) -> Tensor:
        return self.normed(x, self.p.q_norm)

    def k_norm(self, x: Tensor) -> Tensor:
        return self.normed(x, self.p.k_norm)

    def normed(self, x: Tensor, norm: Norm) -> Tensor:
        if norm.kind == "layer":
            return torch.nn.functional.layer_norm(x, x.shape[-1:], norm.weight, None, norm.eps)
        return torch.nn.functional.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)

    def repeat(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k.repeat_interleave(self.H // self.G, dim=1), v.repeat_interleave(self.H // self.G, dim=1)

    def turn(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.spec.rope is None:
            return q, k, v
        key_at = torch.arange(self.S, dtype=torch.float64)
        query_at = torch.arange(self.S - self.T, self.S, dtype=torch.float64)
        return self.rope_q(q, query_at), self.rope_k(k, key_at), v

    def rope_q(self, q: Tensor, at: Tensor) -> Tensor:
        return self.rope(q, at)

    def rope_k(self, k: Tensor, at: Tensor) -> Tensor:
        return self.rope(k, at)

    def dims(self, x: Tensor) -> int:
        return self.spec.rope.dims or x.shape[-1]

    def inv_freq(self, dims: int) -> Tensor:
        base, scaling = self.spec.rope.base, self.spec.rope.scaling
        inv_freq = 1.0 / base ** (torch.arange(0, dims, 2, dtype=torch.float64) / dims)
        return inv_freq if scaling is None else self.scaled(inv_freq, dims, base, scaling)

    def scaled(self, inv_freq: Tensor, dims: int, base: float, scaling: RopeScaling) -> Tensor:
        if scaling.kind == "llama3":
            turns = scaling.original_length * inv_freq / (2 * math.pi)
            kept = ((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(
                0, 1
            )
            return kept * inv_freq + (1 - kept) * inv_freq / scaling.factor

        def where(turns: float) -> float:
            return dims * math.log(scaling.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(where(32)), 0), min(math.ceil(where(1)), dims - 1)
        ramp = ((torch.arange(dims // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        return inv_freq / scaling.factor * ramp + inv_freq * (1 - ramp)

    def mscale(self) -> float:
        scaling = self.spec.rope.scaling
        return 0.1 * math.log(scaling.factor) + 1 if scaling and scaling.kind == "yarn" else 1.0

    def rope(self, x: Tensor, at: Tensor) -> Tensor:
        dims = self.dims(x)
        angles = torch.outer(at, self.inv_freq(dims))
        return torch.cat([self.rotate(x[..., :dims], angles) * self.mscale(), x[..., dims:]], dim=-1)

    def rotate(self, x: Tensor, angles: Tensor) -> Tensor:
        if self.spec.rope.pairing == "halves":
            angles = torch.cat([angles, angles], dim=-1)
            return x * angles.cos() + self.rotate_half(x) * angles.sin()
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    def rotate_half(self, x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([-x2, x1], dim=-1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.spec.masks(Causal):
            scores = scores.masked_fill(self.hidden(scores), -torch.inf)
        if self.inputs.is_token is not None:
            scores = scores.masked_fill(self.padding(scores), -torch.inf)
        return scores.softmax(dim=-1) @ v

    def hidden(self, scores: Tensor) -> Tensor:
        rows, columns = scores.shape[-2:]
        return torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1)

    def padding(self, scores: Tensor) -> Tensor:
        return ~self.inputs.is_token[:, None, None]

    def merge(self, o: Tensor) -> Tensor:
        return o.transpose(1, 2).reshape(self.B, self.T, -1)

    def out(self, y: Tensor) -> Tensor:
        return y if self.p is None else apply(y, self.p.out_proj)


FAULTY: list[tuple[str, str, type[Attention], tuple[Example, ...]]] = []


def faulty(name: str, note: str, *examples: Example) -> Callable[[type[Attention]], type[Attention]]:
    def enter(code: type[Attention]) -> type[Attention]:
        FAULTY.append((name, note, code, examples or EXAMPLES))
        return code

    return enter
