"""Faults of kernels, of several devices and of layers put together, each as somebody would write it, and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import qkv.size_sweep
from qkv.debugger import check
from qkv.report import Verdict

Tensor = torch.Tensor
Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(autouse=True)
def _no_hurry(unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qkv.size_sweep, "SECONDS", 20.0)


def seen_by(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys, the last query at the last key."""
    rows, columns = query.shape[-2], key.shape[-2]
    return torch.arange(columns - rows, columns)[:, None], torch.arange(columns)[None, :]


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None = None, bias: Tensor | float = 0.0) -> Tensor:
    logits = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5 + bias
    if keep is not None:
        logits = logits.masked_fill(~keep, float("-inf"))
    return logits.softmax(-1) @ value


def split_kv(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two splits of the keys, joined by their log-sum-exp, which was divided by ln 2 for a kernel that takes exp2."""
    parts = [
        (query @ k.mT / query.size(-1) ** 0.5, v) for k, v in zip(key.chunk(2, -2), value.chunk(2, -2), strict=True)
    ]
    lse = torch.stack([logits.logsumexp(-1, keepdim=True) for logits, _ in parts]) / np.log(2)
    return (lse.softmax(0) * torch.stack([logits.softmax(-1) @ v for logits, v in parts])).sum(0)


def rescaled_by_another_base(query: Array, key: Array, value: Array) -> Array:
    """Tiles of 4 keys with exp2, of which the sums so far are rescaled by exp."""
    top, total, out = np.full((*query.shape[:3], 1), -1e9), 0.0, 0.0
    for start in range(0, key.shape[-2], 4):
        logits = query @ key[..., start : start + 4, :].swapaxes(-1, -2) * query.shape[-1] ** -0.5 / np.log(2)
        new = np.maximum(top, logits.max(-1, keepdims=True))
        shares, kept = np.exp2(logits - new), np.exp(top - new)
        total = total * kept + shares.sum(-1, keepdims=True)
        out, top = out * kept + shares @ value[..., start : start + 4, :], new
    return out / total


def loop_over_tiles(query: Array, key: Array, value: Array) -> Array:
    """Tiles of 4 keys; the query is scaled in the loop."""
    q, logits = query, []
    for start in range(0, key.shape[-2], 4):
        q = q * query.shape[-1] ** -0.5
        logits.append(q @ key[..., start : start + 4, :].swapaxes(-1, -2))
    shares = np.exp(np.concatenate(logits, -1) - logits[0].max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def counted_anew(query: Array, key: Array, value: Array, penalised: bool = False) -> Array:
    """Tiles of 8 keys; a key's position is its place in the tile."""
    rows, logits = np.arange(query.shape[2])[:, None] + key.shape[2] - query.shape[2], []
    for start in range(0, key.shape[2], 8):
        tile = key[:, :, start : start + 8]
        ahead = np.arange(tile.shape[2]) - rows
        steep = (2.0 ** (-2 * np.arange(1, 5)))[:, None, None]  # of 4 heads
        tile_logits = query @ tile.swapaxes(-1, -2) / query.shape[-1] ** 0.5 + penalised * steep * ahead
        later = ahead > 0 if not penalised else ahead + start > 0
        logits.append(np.where(later, -np.inf, tile_logits))
    joined = np.concatenate(logits, -1)
    shares = np.exp(joined - joined.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def alibi_counted_anew(query: Array, key: Array, value: Array) -> Array:
    """The same in the distances of alibi alone."""
    return counted_anew(query, key, value, penalised=True)


def sixteen_bits(query: Array, key: Array, value: Array) -> Array:
    """Offsets in 16 bits, as in a kernel that gathers its values."""
    flat = value.reshape(-1)
    offsets = np.arange(flat.size).astype(np.uint16)
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ flat[offsets].reshape(value.shape)


def ring_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two ranks; each masks every block that comes round as if it were its own. Causal."""
    i, j = seen_by(query, key)
    chunk = (key.size(-2) + 1) // 2
    return attend(query, key, value, i.remainder(chunk) >= j.remainder(chunk))


def two_ranks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Tensor parallel over two ranks, and every rank takes the first slice."""
    share = query.size(1) // 2
    out = [attend(query[:, :share], key[:, :share], value[:, :share]) for _ in range(2)]
    return torch.cat(out, dim=1)


def alibi_on_two_ranks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal alibi; each rank counts its heads from 0."""
    heads = query.size(1)
    slopes = torch.tensor([2.0 ** (-8 * (h % (heads // 2) + 1) / heads) for h in range(heads)], dtype=query.dtype)
    i, j = seen_by(query, key)
    return attend(query, key, value, j <= i, -slopes[:, None, None] * (i - j).abs())


def penalty_everywhere(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal."""
    slopes = 2.0 ** -(8 / query.size(1) * torch.arange(1, query.size(1) + 1, dtype=query.dtype))
    i, j = seen_by(query, key)
    return attend(query, key, value, j <= i, (j - i) * slopes[:, None, None])


def smoothed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal, after an average over three tokens."""
    i, j = seen_by(query, key)

    def pooled(x: Tensor) -> Tensor:
        return nn.functional.avg_pool1d(x.mT.flatten(0, 1), 3, 1, 1).view_as(x.mT).mT

    return attend(pooled(query), pooled(key), pooled(value), j <= i)


def local_layer(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal, with the window of another layer."""
    i, j = seen_by(query, key)
    return attend(query, key, value, (j <= i) & (i - j < 6))


def stable_by_columns(query: Array, key: Array, value: Array) -> Array:
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    shares = np.exp(logits - logits.max(-2, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def key_of_the_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    logits = torch.einsum("bhqd,hkd->bhqk", query, key[0]) * query.size(-1) ** -0.5
    return logits.softmax(-1) @ value


def program_decoded_wrongly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One program for each sequence and head, numbered with the head fastest, and decoded the other way for k and v."""
    out = torch.empty(*query.shape[:3], value.size(-1), dtype=query.dtype)
    batch, heads = query.shape[:2]
    for program in range(batch * heads):
        b, h = divmod(program, heads)
        out[b, h] = attend(query[b, h], key[program % batch, h], value[program % batch, h])
    return out


HEADS = {"num_heads": 4, "num_kv_heads": 4, "causal": False}
CAUSAL = {**HEADS, "causal": True}

NAMED: dict[Callable[..., Any], tuple[str, dict[str, Any]]] = {
    key_of_the_first: ("sequence-confused", HEADS),
    program_decoded_wrongly: ("sequence-confused", HEADS),
    split_kv: ("lse-base", HEADS),
    rescaled_by_another_base: ("online-softmax-max", HEADS),
    loop_over_tiles: ("scale-in-block-loop", HEADS),
    counted_anew: ("key-positions-per-block", CAUSAL),
    alibi_counted_anew: ("key-positions-per-block", {**CAUSAL, "alibi": True}),
    ring_attention: ("ring-causal", CAUSAL),
    two_ranks: ("tensor-parallel-heads", HEADS),
    alibi_on_two_ranks: ("alibi-local-heads", {**CAUSAL, "alibi": True}),
    penalty_everywhere: ("bias-extra", CAUSAL),
    smoothed: ("leak-before-attention", CAUSAL),
    local_layer: ("window-layers-swapped", CAUSAL),
    stable_by_columns: ("softmax-over-queries", HEADS),
}


@pytest.mark.parametrize("candidate", NAMED, ids=lambda candidate: candidate.__name__)
def test_a_function_with_the_fault_is_named(candidate: Callable[..., Any]) -> None:
    fault, spec = NAMED[candidate]
    report = check(candidate, {**spec, "query_offset": "bottom_right"})
    assert (report.verdict, [named.id for named in report.faults]) == (Verdict.WRONG, [fault])


class Attention(nn.Module):
    def __init__(self, embed_dim: int = 24, num_heads: int = 3) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = attend(self.heads(query), self.heads(key), self.heads(value))
        return self.out_proj(out.transpose(1, 2).flatten(2))


class PixelsByView(Attention):
    """Takes (batch, tokens, channels) back into channels and makes tokens of them by a view."""

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, channels = x.shape
        image = x.transpose(1, 2).contiguous()
        x = image.view(batch, tokens, channels)
        return self.mixed(self.q_proj(x), self.k_proj(x), self.v_proj(x))


class ValueOfKey(Attention):
    def forward(self, x: Tensor) -> Tensor:
        query, key = self.q_proj(x), self.k_proj(x)
        return self.mixed(query, key, self.v_proj(key))


@pytest.mark.parametrize(
    ("candidate", "fault"), [(PixelsByView, "tokens-split-by-view"), (ValueOfKey, "projections-chained")]
)
def test_a_module_with_the_fault_is_named(candidate: type[nn.Module], fault: str) -> None:
    report = check(candidate, {"causal": False})
    assert (report.verdict, [named.id for named in report.faults]) == (Verdict.WRONG, [fault])


def test_an_index_that_starts_again_shows_in_large_arrays_only() -> None:
    report = check(sixteen_bits, HEADS)
    assert report.only_when == "the count of numbers in the value > 65536"
    assert [named.id for named in report.faults] == ["index-overflow"]


def test_a_mask_that_is_changed_in_place_has_a_name_of_its_own() -> None:
    def both(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        out = attend(query, key, value, mask)
        mask &= torch.ones_like(mask).tril()
        return out

    report = check(both, {"num_heads": 2, "causal": False}, mask_argument="keep")
    assert [named.id for named in report.faults] == ["mask-mutated"]


def test_an_inverted_mask_hides_everything_where_it_should_hide_nothing() -> None:
    def turned(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return attend(query, key, value, ~mask).nan_to_num(0)

    report = check(turned, {"num_heads": 2, "causal": False}, mask_argument="keep")
    assert [named.id for named in report.faults] == ["mask-inverted"]


@pytest.mark.slow
def test_two_faults_of_the_mask_are_named_together() -> None:
    def both(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        i, j = seen_by(query, key)
        return attend(query, key, value, (j <= i + 1) & (i - j <= 4))

    report = check(both, {"num_heads": 2, "causal": True, "window": 4, "query_offset": "bottom_right"})
    assert {named.id for named in report.faults} == {"causal-one-ahead", "window-off-by-one"}
