"""Mistakes in cutting a fused projection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from faulty_code.attention import Attention, apply, faulty
from faulty_code.examples import grouped, square, wide_norm


def _fused_as(cut: Callable[[Attention, Tensor], tuple[Tensor, ...]]) -> type[Attention]:
    class Fused(Attention):
        def project(self):
            qkv = apply(self.x, self.p.fused)
            return tuple(part.reshape(self.B, self.T, -1) for part in cut(self, qkv))

    return Fused


for _note, _cut in {
    "read per head, as [q k v]": lambda s, qkv: qkv.view(s.B, s.T, s.H, 3, -1).unbind(3),
    "read as (head dim qkv)": lambda s, qkv: qkv.view(s.B, s.T, s.H, -1, 3).unbind(4),
    "read as (qkv dim head)": lambda s, qkv: [t.transpose(2, 3) for t in qkv.view(s.B, s.T, 3, -1, s.H).unbind(2)],
    "read as (dim qkv head)": lambda s, qkv: [t.transpose(2, 3) for t in qkv.view(s.B, s.T, -1, 3, s.H).unbind(3)],
    "read as (dim head qkv)": lambda s, qkv: [t.transpose(2, 3) for t in qkv.view(s.B, s.T, -1, s.H, 3).unbind(4)],
    "read as [V | K | Q]": lambda s, qkv: qkv.chunk(3, dim=-1)[::-1],
    **{
        f"read as [{' | '.join(order.upper())}]": lambda s, qkv, order=order: [
            qkv.chunk(3, dim=-1)[order.index(letter)] for letter in "qkv"
        ]
        for order in ("qvk", "kqv", "kvq", "vqk")
    },
    **{
        f"read per head, as [{' '.join(order)}]": lambda s, qkv, order=order: [
            qkv.view(s.B, s.T, s.H, 3, -1)[:, :, :, order.index(letter)] for letter in "qkv"
        ]
        for order in ("qvk", "kqv", "kvq", "vqk", "vkq")
    },
    "read in 4 shards of [q | v | k]": lambda s, qkv: [
        qkv.view(s.B, s.T, 4, -1).chunk(3, dim=-1)[part] for part in (0, 2, 1)
    ],
}.items():
    faulty("fused-qkv-layout", _note, square)(_fused_as(_cut))  # type: ignore[arg-type]
faulty("fused-qkv-layout", "read as [Q | K | V]", grouped)(
    _fused_as(lambda s, qkv: qkv.split([s.H * 12, s.G * 12, s.G * 10], dim=-1))
)
faulty("fused-qkv-layout", "read as [Q | k v per head]", grouped)(
    _fused_as(lambda s, qkv: (qkv[..., :72], *qkv[..., 72:].reshape(s.B, s.T, s.G, -1).split([12, 10], dim=-1)))
)


def _fused_kv_as(cut: Callable[[Attention, Tensor], tuple[Tensor, ...]]) -> type[Attention]:
    class Fused(Attention):
        def project(self):
            kv = apply(self.x, self.p.fused)
            k, v = (part.reshape(self.B, self.T, -1) for part in cut(self, kv))
            return apply(self.x, self.p.q_proj), k, v

    return Fused


for _note, _cut in {
    "read per head, as [k v]": lambda s, kv: kv.view(s.B, s.T, s.G, 2, -1).unbind(3),
    "read as (kv dim head)": lambda s, kv: [t.transpose(2, 3) for t in kv.view(s.B, s.T, 2, -1, s.G).unbind(2)],
    "read as (head dim kv)": lambda s, kv: kv.view(s.B, s.T, s.G, -1, 2).unbind(4),
    "read as [V | K]": lambda s, kv: kv.chunk(2, dim=-1)[::-1],
}.items():
    faulty("fused-qkv-layout", _note, wide_norm)(_fused_kv_as(_cut))  # type: ignore[arg-type]


def _sharded(devices: int) -> type[Attention]:
    class Sharded(Attention):
        def project(self):
            shards = [
                torch.nn.functional.linear(self.x, weight, bias).chunk(3, dim=-1)
                for weight, bias in zip(
                    self.p.fused.weight.chunk(devices), self.p.fused.bias.chunk(devices), strict=True
                )
            ]
            return tuple(torch.cat(parts, dim=-1) for parts in zip(*shards, strict=True))

    return Sharded


for _devices in (2, 4):
    faulty("fused-qkv-sharded", f"over {_devices} devices", square)(_sharded(_devices))
