"""Mistakes in the heads, and in the memory they are read from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from faulty_code.attention import Attention, apply, faulty
from faulty_code.examples import contiguous, cross, decode, grouped, padded, square


def _viewing(*roles: str) -> type[Attention]:
    class Viewed(Attention):
        def split(self, q, k, v):
            rightly = super().split(q, k, v)
            if self.spec.qk_norm == "width":
                q, k = self.q_norm(q), self.k_norm(k)
            lengths = ((self.H, self.T), (self.G, self.S), (self.G, self.S))
            return tuple(
                x.reshape(self.B, *lengths[i], -1) if role in roles else rightly[i]
                for i, (role, x) in enumerate(zip("qkv", (q, k, v), strict=True))
            )

    return Viewed


AllViewed = _viewing("q", "k", "v")
VIEWED = {"query": "q", "key": "k", "value": "v", "key and value": "kv"}
faulty("heads-split-by-view", "query, key and value")(AllViewed)
for _note, _roles in VIEWED.items():
    faulty("heads-split-by-view", f"{_note} only")(_viewing(*_roles))


@faulty("heads-split-by-view", "query, key and value, and the heads are merged by a view too")
class HeadsSplitByViewQueryKeyValue(AllViewed):
    def merge(self, o):
        return o.reshape(self.B, self.T, -1)


class _BackToFront(Attention):
    """A function that takes (batch, token, head, dim) and is handed (batch, head, token, dim)."""

    def split(self, q, k, v):
        i = self.inputs
        return (
            i.query.reshape(self.B, self.T, self.H, -1).transpose(1, 2),
            i.key.reshape(self.B, self.S, self.G, -1).transpose(1, 2),
            i.value.reshape(self.B, self.S, self.G, -1).transpose(1, 2),
        )


faulty("heads-split-by-view", "(batch, head, token, dim) is read as (batch, token, head, dim)", decode)(_BackToFront)


@faulty(
    "heads-split-by-view",
    "(batch, head, token, dim) is read as (batch, token, head, dim), and back the same way",
    decode,
)
class HeadsSplitByViewBatchHeadToken(_BackToFront):
    def attend(self, q, k, v):
        o = super().attend(q, k, v)  # batch head token dim
        return o.transpose(1, 2).reshape(o.shape)


def _fused_view(view: Callable[[Attention, Tensor], tuple[Tensor, ...]]) -> type[Attention]:
    class Fused(Attention):
        def project(self):
            return (apply(self.x, self.p.fused),) * 3

        def split(self, qkv, _k, _v):
            return view(self, qkv)

    return Fused


for _note, _view in {
    "qkv.view(batch, 3, num_heads, length, head_dim)": lambda s, qkv: qkv.view(s.B, 3, s.H, s.T, -1).unbind(1),
    "qkv.view(3, batch, num_heads, length, head_dim)": lambda s, qkv: qkv.view(3, s.B, s.H, s.T, -1).unbind(0),
    "qkv.view(batch, num_heads, length, 3 * head_dim)": lambda s, qkv: qkv.view(s.B, s.H, s.T, -1).chunk(3, dim=-1),
}.items():
    faulty("heads-split-by-view", _note, square)(_fused_view(_view))  # type: ignore[arg-type]


def read_on(x: Tensor) -> Tensor:
    """What a kernel reads that is handed the pointer and the shape of ``x``, and no strides."""
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride())


def _kernel_for_heads_first(*roles: str) -> type[Attention]:
    class HeadsFirst(Attention):
        def split(self, q, k, v):
            named = zip("qkv", super().split(q, k, v), strict=True)  # .transpose(1, 2) of (batch, token, head, dim)
            return tuple(read_on(x) if role in roles else x for role, x in named)

    return HeadsFirst


def _kernel_for_tokens_first(*roles: str) -> type[Attention]:
    class TokensFirst(Attention):
        def split(self, q, k, v):
            i = self.inputs
            named = zip("qkv", (x.contiguous().transpose(1, 2) for x in (i.query, i.key, i.value)), strict=True)
            return tuple((read_on(x) if role in roles else x).transpose(1, 2) for role, x in named)

    return TokensFirst


for _note, _roles in {
    "query, key and value": "qkv", "the query": "q", "the key": "k", "the value": "v", "key and value": "kv",
}.items():  # fmt: skip
    _name, _code = "strided-read-as-contiguous", _kernel_for_heads_first(*_roles)
    faulty(_name, f"{_note}, kept as (batch, token, head, dim)")(_code)
    faulty(_name, f"{_note}, transposed on the way")(_code)
    faulty(_name, f"{_note}, transposed on the way", contiguous)(_code)
    faulty(_name, f"{_note}, kept as (batch, head, token, dim)", decode)(_kernel_for_tokens_first(*_roles))
    for _order in ("(batch, token, head, dim)", "(batch, head, token, dim)"):
        faulty(_name, f"{_note}, kept as {_order}", contiguous)(Attention)


@faulty("strided-read-as-contiguous", "the key, kept as (batch, head, dim, token)", square, grouped, decode)
class StridedReadContiguousKeyKeptBatch(Attention):
    def split(self, q, k, v):
        q, k, v = super().split(q, k, v)
        return q, k.transpose(2, 3).reshape(k.shape), v


@faulty("strided-read-as-contiguous", "query, key and value, slices of one fused array", square)
class StridedReadContiguousQueryKeyValue(Attention):
    def project(self):
        qkv = apply(self.x, self.p.fused)
        parts = qkv.chunk(3, dim=-1)
        dense = (self.T * 24, 24, 1)
        return tuple(torch.as_strided(qkv, part.shape, dense, part.storage_offset()) for part in parts)


@faulty("attends-over-batch", "along the batch", cross)
@faulty("attends-over-batch", "along the batch, and the mask runs along it too", square, padded)
class TimeFirst(Attention):
    """Made for (length, batch, dim), and handed (batch, length, dim)."""

    def padding(self, scores):
        return torch.zeros_like(scores, dtype=torch.bool)

    def split(self, q, k, v):
        return tuple(x.view(self.B, self.T, self.H, -1).permute(1, 2, 0, 3) for x in (q, k, v))  # token head batch dim

    def turn(self, q, k, v):
        self.T, self.S, kept = self.B, self.B, self.T
        q, k, v = super().turn(q, k, v)
        self.T, self.S = kept, kept
        return q, k, v

    def merge(self, o):
        return o.permute(2, 0, 1, 3).reshape(self.B, self.T, -1)


@faulty("attends-over-batch", "along the batch, and nothing is masked", square, padded)
@faulty("attends-over-batch", "along the batch, and so does the padding", square, cross)
class AttendsOverBatchAlongBatchNothing(TimeFirst):
    def hidden(self, scores):
        return torch.zeros_like(scores, dtype=torch.bool)


@faulty("attends-over-batch", "along the batch, and so does the padding", padded)
class AttendsOverBatchAlongBatchPadding(AttendsOverBatchAlongBatchNothing):
    def padding(self, scores):  # (token, head, batch, batch)
        return ~self.inputs.is_token.t()[:, None, None]


@faulty("attends-over-batch", "all sequences joined into one", cross)
@faulty("attends-over-batch", "all sequences joined into one, and the mask runs along it too", square, padded)
class Joined(TimeFirst):
    """Made for (length, dim), and handed batch * length tokens."""

    def split(self, q, k, v):
        return tuple(x.reshape(1, self.B * self.T, self.H, -1).transpose(1, 2) for x in (q, k, v))

    def turn(self, q, k, v):
        at = torch.arange(self.B * self.T, dtype=torch.float64)
        return self.rope(q, at), self.rope(k, at), v

    def merge(self, o):
        return o.transpose(1, 2).reshape(self.B, self.T, -1)


@faulty("attends-over-batch", "all sequences joined into one, and nothing is masked", square, padded)
class AttendsOverBatchAllSequencesJoined(Joined):
    def hidden(self, scores):
        return torch.zeros_like(scores, dtype=torch.bool)


class OverHeads(Attention):
    """Never transposed: (batch, token, head, dim) all the way."""

    def attend(self, q, k, v):
        return super().attend(*(x.transpose(1, 2) for x in (q, k, v)))

    def merge(self, o):
        return o.reshape(self.B, self.T, -1)


class TransposedBack(OverHeads):
    def merge(self, o):
        return o.transpose(1, 2).reshape(self.B, self.T, -1)


def _unmasked(code: type[Attention]) -> type[Attention]:
    return type("Unmasked", (code,), {"hidden": lambda self, scores: torch.zeros_like(scores, dtype=torch.bool)})


def _rope_over_heads(code: type[Attention]) -> type[Attention]:
    def turn(self, q, k, v):
        at = torch.arange(self.H, dtype=torch.float64)
        q, k = (self.rope(x.transpose(1, 2), at).transpose(1, 2) for x in (q, k))
        return q, k, v

    return type("RopeOverHeads", (code,), {"turn": turn})


for _code, _merged in ((OverHeads, ""), (TransposedBack, ", and the result is transposed as if it had heads first")):
    for _rope, _change in (("", lambda code: code), (", rope too", _rope_over_heads)):
        _name, _turned = "attends-over-heads", f"along the heads{_rope}"
        faulty(_name, f"{_turned}{_merged}", cross)(_change(_code))
        faulty(_name, f"{_turned}, and the mask runs along it too{_merged}", square, grouped)(_change(_code))
    faulty(_name, f"along the heads, and nothing is masked{_merged}", square, grouped)(_unmasked(_code))


def _kv_repeat(key: Any, value: Any) -> type[Attention]:
    class Repeated(Attention):
        def repeat(self, q, k, v):
            _, right_k, right_v = super().repeat(q, k, v)
            return q, key(self, k) if key else right_k, value(self, v) if value else right_v

    return Repeated


def _tile(self: Attention, x: Tensor) -> Tensor:
    return x.repeat(1, self.H // self.G, 1, 1)


faulty("kv-heads-tiled", "", grouped, decode)(_kv_repeat(_tile, _tile))
faulty("kv-heads-tiled", "key only", grouped, decode)(_kv_repeat(_tile, None))
faulty("kv-heads-tiled", "value only", grouped, decode)(_kv_repeat(None, _tile))


@faulty("kv-head-divisor", "every head reads key/value head 0")
class KvHeadDivisorEveryHeadReads(Attention):
    def repeat(self, q, k, v):
        return q, k[:, :1].expand(-1, self.H, -1, -1), v[:, :1].expand(-1, self.H, -1, -1)


def _first(self: Attention, x: Tensor) -> Tensor:
    return x[:, :1].expand(-1, self.H, -1, -1)


faulty("kv-head-divisor", "every head reads head 0's key")(_kv_repeat(_first, None))
faulty("kv-head-divisor", "every head reads head 0's value")(_kv_repeat(None, _first))


@faulty("kv-head-divisor", "head // num_kv_heads", grouped, decode)
class KvHeadDivisorHeadNumKv(Attention):
    def repeat(self, q, k, v):
        index = torch.arange(self.H) // self.G
        return q, k[:, index], v[:, index]


@faulty("kv-head-divisor", "head % group_size", grouped, decode)
class KvHeadDivisorHeadGroupSize(Attention):
    def repeat(self, q, k, v):
        index = torch.arange(self.H) % (self.H // self.G)
        return q, k[:, index], v[:, index]


@faulty("kv-heads-repeated-on-tokens", "and then viewed as num_heads heads", grouped, decode)
class KvHeadsRepeatedTokensThenViewedNum(Attention):
    def repeat(self, q, k, v):
        return q, k, v

    def attend(self, q, k, v):  # after rope, as Llama does it
        k, v = (x[:, :, :, None].expand(-1, -1, -1, self.H // self.G, -1) for x in (k, v))
        return super().attend(q, *(x.reshape(self.B, self.H, self.S, -1) for x in (k, v)))


@faulty("kv-heads-repeated-on-tokens", "and the mask is top-left over the longer list", grouped, decode)
class LongList(Attention):
    def attend(self, q, k, v):
        return super().attend(q, k.repeat_interleave(2, dim=2), v.repeat_interleave(2, dim=2))

    def hidden(self, scores):
        return torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


@faulty("kv-heads-repeated-on-tokens", "and the mask is bottom-right over the longer list", grouped, decode)
class KvHeadsRepeatedTokensMaskBottomRight(LongList):
    hidden = Attention.hidden
