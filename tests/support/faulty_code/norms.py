"""Mistakes in the norms of query and key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from faulty_code.attention import Attention, faulty
from faulty_code.examples import grouped, wide_norm
from qkv.oracle import Norm


def _norms(q_norm: Any = None, k_norm: Any = None) -> type[Attention]:
    """Other norms on query and key: functions of the attention, the tensor and the norm; None for no norm."""

    class Normed(Attention):
        def q_norm(self, x):
            return q_norm(self, x, self.p.q_norm) if q_norm else x

        def k_norm(self, x):
            return k_norm(self, x, self.p.k_norm) if k_norm else x

    return Normed


def _as_meant(self: Attention, x: Tensor, norm: Norm) -> Tensor:
    return self.normed(x, norm)


faulty("qk-norm-missing", "neither is", grouped, wide_norm)(_norms())
faulty("qk-norm-missing", "the query is not", grouped, wide_norm)(_norms(k_norm=_as_meant))
faulty("qk-norm-missing", "the key is not", grouped, wide_norm)(_norms(q_norm=_as_meant))


def _rms_over(*dims: int) -> Any:
    return lambda self, x, norm: x * torch.rsqrt(x.pow(2).mean(dims, keepdim=True) + norm.eps) * norm.weight


for _note, _dims in {
    "over all heads together": (1, 3),
    "over the heads, channel by channel": (1,),
    "over the tokens, channel by channel": (2,),
}.items():
    faulty("qk-norm-axis", _note, grouped)(_norms(_rms_over(*_dims), _rms_over(*_dims)))


@faulty("qk-norm-axis", "over each head by itself", wide_norm)
class QkNormAxisOverEachHead(Attention):
    def normed(self, x, norm):
        by_head = x.view(self.B, self.T, -1, 12)
        return torch.nn.functional.layer_norm(by_head, (12,), eps=norm.eps).flatten(2) * norm.weight


@faulty("qk-norm-after-rope", "", grouped, wide_norm)
class QkNormAfterRope(Attention):
    def split(self, q, k, v):
        self.width, self.spec = self.spec.qk_norm == "width", self.spec.but(qk_norm=None)
        return super().split(q, k, v)

    def late(self, x, norm):
        if not self.width:
            return self.normed(x, norm)
        return self.normed(x.transpose(1, 2).flatten(2), norm).view(self.B, self.T, -1, 12).transpose(1, 2)

    def repeat(self, q, k, v):
        at = torch.arange(self.T, dtype=torch.float64)
        q, k = self.rope(q, at), self.rope(k, at)
        return super().repeat(self.late(q, self.p.q_norm), self.late(k, self.p.k_norm), v)

    def turn(self, q, k, v):
        return q, k, v


def _layer(self: Attention, x: Tensor, norm: Norm) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], norm.weight, eps=norm.eps)


def _l2(self: Attention, x: Tensor, norm: Norm) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1) * norm.weight


def _plus_one(self: Attention, x: Tensor, norm: Norm) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], 1 + norm.weight, norm.eps)


def _plain(self: Attention, x: Tensor, norm: Norm) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None, norm.eps)


for _note, _form in {
    "a layer norm": _layer,
    "divided by the length (l2)": _l2,
    "without its weight": _plain,
    "weight and 1 + weight are mixed up": _plus_one,
}.items():
    faulty("qk-norm-other-form", _note, grouped)(_norms(_form, _form))


faulty("qk-norm-other-form", "an RMS norm", wide_norm)(
    _norms(*[lambda self, x, norm: torch.nn.functional.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)] * 2)
)


@faulty("qk-norm-other-form", "the weights of query and key are swapped", grouped)
class QkNormOtherFormWeightsQueryKey(Attention):
    def norm(self, q, k, v):
        return self.k_norm(q), self.q_norm(k), v
