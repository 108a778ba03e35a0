"""Planning: which kernel computes what of the scores, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from qkv.compute import flash
from qkv.compute.arguments import Arguments
from qkv.compute.lowering import SCORES, capped, lower
from qkv.compute.tiles import Table, Tile
from qkv.masks import Causal, Mask

Kernel = Literal["flash", "blockwise", "composite"]

MOST_HIDDEN = 1 << 24
"""Entries of a boolean mask that are turned into numbers at a time: 64 MiB."""
SPLIT = 2048
"""Keys are shared out to idle threads in parts no shorter than this."""


@dataclass(frozen=True)
class Plan:
    """How one call of `attend` is computed.

    Attributes:
        kernel: ``flash`` is torch's fused kernel, ``blockwise`` plain operations on one tile at a time, ``composite``
            plain operations on all the scores.
        tiles: what of the scores is made; empty for ``composite``, which makes all.
        share: the share of all scores that is made.
        reasons: why this kernel, and what else there is to say; a sentence each.
    """

    kernel: Kernel
    tiles: tuple[Tile, ...]
    share: float
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        """The plan in words."""
        calls = sum(1 for tile in self.tiles for _ in tile.calls())
        how = {
            "flash": f"torch's fused CPU kernel, {_counted(calls, 'call')}",
            "blockwise": f"plain operations, one tile at a time, {_counted(calls, 'tile')}",
            "composite": "plain operations on all the scores",
        }[self.kernel]
        skipped = 1 - self.share
        said = "more than 99.9%" if 0.9995 <= skipped < 1 else f"{skipped:.1%}"
        work = f"{said} of the scores are skipped" if skipped else "all scores are made"
        return "\n".join([f"{how}; {work}", *(f"- {reason}" for reason in self.reasons)])


def plan_of(given: Arguments, *, weights: bool = False) -> Plan:
    """The plan for a call.

    Args:
        given: the call.
        weights: whether the weights are wanted.
    """
    reasons = why_composite(given, weights)
    if reasons:
        return Plan("composite", (), 1.0, tuple(reasons))
    reasons = why_blockwise(given)
    fused = not reasons
    tiles = tiles_for(given, fused=fused)
    if fused:
        reasons = _remarks(given, tiles)
    pairs = given.batch * given.query_len * given.key_len
    share = sum(tile.pairs for tile in tiles) / pairs if pairs else 0.0
    return Plan("flash" if fused else "blockwise", tiles, share, tuple(reasons))


def tiles_for(given: Arguments, *, fused: bool) -> tuple[Tile, ...]:
    """What is made of a call's scores.

    Args:
        given: the call.
        fused: whether torch's fused kernel computes them.
    """
    table_heads = 0 if given.table is None else given.table.shape[1]
    return _tiles(
        given.mask,
        (given.batch, given.num_heads, given.num_kv_heads, given.query_len, given.key_len),
        given.first,
        fused,
        given.slopes is not None or given.bias is not None,
        table_heads,
        torch.get_num_threads(),
    )


@lru_cache(maxsize=16)
def _tiles(
    mask: Mask, sizes: tuple[int, ...], first: int, fused: bool, added: bool, table_heads: int, threads: int
) -> tuple[Tile, ...]:
    batch, num_heads, num_kv_heads, query_len, key_len = sizes
    tiles = lower(
        mask,
        batch,
        query_len,
        key_len,
        first,
        plainly_causal=fused and not added and not table_heads,
        strips=batch * num_heads >= threads,
    )
    parts = _split(tiles, num_kv_heads, threads)
    if not fused:
        parts = capped(parts, SCORES // num_heads)
    elif table_heads:
        parts = capped(parts, MOST_HIDDEN // table_heads)
    return tuple(parts)


def why_composite(given: Arguments, weights: bool) -> list[str]:
    """Why all the scores have to be made; nothing where they haven't."""
    reasons = []
    if weights:
        reasons.append("the weights are wanted: no fused kernel gives them")
    if _transforming() and any(_in_transform(x) for x in given.tensors if x is not None):
        reasons.append("a forward-mode derivative or a transform of torch.func is going on: fused kernels have none")
    if _exporting():
        reasons.append("torch.export is at work: what it writes down is to run without qkv")
    if 0 in (given.query.shape[3], given.value.shape[3]):
        reasons.append("heads without channels: there is nothing to compute")
    return reasons


def _exporting() -> bool:
    """Whether torch.export is at work, as far as this torch tells: those before 2.7 don't."""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()


def _transforming() -> bool:
    """Whether torch.func or forward-mode differentiation may be at work."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def _in_transform(x: Tensor) -> bool:
    """Whether a tensor is what they work with."""
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return True
    return torch.autograd.forward_ad.unpack_dual(x).tangent is not None


def why_blockwise(given: Arguments) -> list[str]:
    """Why torch's fused kernel can't be taken; nothing where it can."""
    reasons = []
    if given.query.device.type not in ("cpu", "meta"):
        reasons.append(f"on {given.query.device}: torch's fused CPU kernel isn't there")
    elif not flash.available():
        reasons.append(f"torch {torch.__version__} has no fused CPU kernel of the form that is known here")
    if given.scale <= 0:
        reasons.append(f"scale={given.scale}: the fused CPU kernel hides by minus infinity before it multiplies")
    if given.softcap is not None:
        reasons.append("softcap: no fused CPU kernel has it")
    if given.dropout_p:
        reasons.append("dropout: no fused CPU kernel has it; what is dropped is drawn again for the gradients")
    if given.precision != "same":
        reasons.append(f"precision={given.precision!r}: the fused kernel has its own")
    return reasons


def _remarks(given: Arguments, tiles: Sequence[Tile]) -> list[str]:
    """What the same call of `F.scaled_dot_product_attention` would have cost, and what else there is to say."""
    remarks = []
    if given.axes < 4:
        remarks.append(f"{given.axes}-D inputs are one head; SDPA would have taken its unfused path")
    if given.value.shape[3] != given.query.shape[3]:
        remarks.append(
            f"value_dim {given.value.shape[3]} is not head_dim {given.query.shape[3]}: the shorter are padded; "
            "SDPA would have taken its unfused path"
        )
    if any(tile.masking == "causal" and tile.width > 512 for tile in tiles):
        remarks.append("of a causal tile the kernel itself skips what comes later, 512 keys at a time")
    if isinstance(given.mask, Causal) and given.first + given.mask.ahead == 0:
        if any(isinstance(tile.masking, Table) for tile in tiles):
            remarks.append("in strips of queries less is made of a short causal square than by the kernel itself")
    elif any(tile.count > 1 or isinstance(tile.masking, Table) for tile in tiles):
        remarks.append("SDPA would have needed a table of this mask, and made all the scores")
    if given.group_size > 1 and given.query_len <= flash.FEW_ROWS:
        remarks.append("a group's queries are laid below each other: its keys are read once; SDPA reads them for each")
    if given.bias is not None and given.bias.requires_grad:
        remarks.append("the gradient of the bias is computed in plain operations: the fused kernel gives none")
    return remarks


def _split(tiles: Iterable[Tile], num_kv_heads: int, threads: int) -> Iterator[Tile]:
    """The tiles, an open one of few rows with its keys shared out to threads that would be idle."""
    for tile in tiles:
        busy = (tile.sequences[1] - tile.sequences[0]) * tile.count * num_kv_heads
        parts = min(threads // max(busy, 1), tile.width // SPLIT)
        if parts < 2 or tile.masking != "open" or tile.rows > flash.FEW_ROWS or tile.count > 1:
            yield tile
            continue
        size, rest = divmod(tile.width, parts)
        yield replace(tile, width=size, count=parts, key_step=size)
        if rest:
            yield replace(tile, keys=tile.keys + tile.width - rest, width=rest, first=False)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
