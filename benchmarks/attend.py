"""`attend` side by side with what a user would otherwise pick, in time and memory.

Run: ``python -m benchmarks.attend``, or with words that name rows: ``python -m benchmarks.attend window decoding``.

`attend` is slower where there is little to compute, below some 500 tokens: it reads its arguments and its plan in some
60 microseconds, and SDPA runs the same kernel.

Each row is run with one thread and with all cores, everything in turn, five times; a figure is the median over the
turns of a pick's time over `attend`'s in the same turn: above 1, `attend` is faster. The last rows tell how time and
memory grow with the length; memory is the peak of a process of its own over what it held before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.long import cost
from qkv.compute import attend
from qkv.masks import Mask, causal, documents, padding, prefix, window
from qkv.positions.alibi import alibi_slopes

TURNS = 5
Attention = Callable[..., Any]
"""Of query, key and value."""

sdpa: Attention = functional.scaled_dot_product_attention


class Figure(NamedTuple):
    """A pick beside `attend`.

    Attributes:
        ratio: how many times as long it takes: the median over the turns.
        ours: seconds of `attend`, the median.
        theirs: seconds of the pick, likewise.
    """

    ratio: float
    ours: float
    theirs: float

    def __str__(self) -> str:
        return f"{self.ratio:8.2f} {self.ours * 1e3:9.2f} {self.theirs * 1e3:9.2f}"


@dataclass(frozen=True)
class Row:
    """One thing to compute, by `attend` and by what a user would pick.

    Attributes:
        name: what it is.
        heads: query, key and value.
        options: what `attend` is given besides.
        picks: others that compute it of query, key and value.
        train: whether the gradients are computed too.
        ours: what is done by `attend`, where that is more than a call of it.
    """

    name: str
    heads: Sequence[Tensor]
    options: Mapping[str, Any]
    picks: Mapping[str, Attention]
    train: bool = False
    ours: Attention | None = None

    def seconds(self, attention: Attention) -> float:
        """How long one of them takes."""
        for x in self.heads:
            x.grad = None
            x.requires_grad_(self.train)
        started = time.perf_counter()
        with torch.set_grad_enabled(self.train):
            output = attention(*self.heads)
            if self.train:
                output.sum().backward()
        return time.perf_counter() - started

    def measured(self) -> dict[str, Figure]:
        """What each pick takes beside `attend`."""
        both: dict[str, Attention] = {"attend": self.ours or partial(attend, **self.options), **self.picks}
        for attention in both.values():
            self.seconds(attention)
        turns = [{name: self.seconds(attention) for name, attention in both.items()} for _ in range(TURNS)]
        ours = statistics.median(turn["attend"] for turn in turns)
        return {
            name: Figure(
                statistics.median(turn[name] / turn["attend"] for turn in turns),
                ours,
                statistics.median(turn[name] for turn in turns),
            )
            for name in self.picks
        }


def heads(
    query_len: int,
    key_len: int | None = None,
    *,
    batch: int = 1,
    num_heads: int = 8,
    kv_heads: int | None = None,
    head_dim: int = 64,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Query, key and value."""
    kv_heads, key_len = kv_heads or num_heads, key_len or query_len
    sizes = (
        (num_heads, query_len, head_dim),
        (kv_heads, key_len, head_dim),
        (kv_heads, key_len, value_dim or head_dim),
    )
    return [torch.randn(batch, *size, dtype=dtype) for size in sizes]


def masked(name: str, mask: Mask, length: int, *, batch: int = 1, train: bool = False) -> Row:
    """A mask that SDPA has to be given as a table."""
    table = mask.dense(length, length, batch=batch if any(mask.varies) else None, xp=torch)
    picks = {"SDPA with a boolean mask": partial(sdpa, attn_mask=table)}
    return Row(name, heads(length, batch=batch), {"mask": mask}, picks, train)


def plainly_causal(length: int, *, train: bool = False) -> Row:
    """The one mask that SDPA skips work for."""
    name = f"{'training, ' if train else ''}causal, {length:,} tokens"
    return Row(name, heads(length), {"mask": causal()}, {"SDPA is_causal": partial(sdpa, is_causal=True)}, train)


def dense(length: int, *, train: bool = False) -> Row:
    """No mask at all: nothing can be saved."""
    return Row(f"{'training, ' if train else ''}no mask, {length:,} tokens", heads(length), {}, {"SDPA": sdpa}, train)


def repeated(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Grouped heads as most code has them."""
    group_size = query.shape[1] // key.shape[1]
    output: Tensor = sdpa(query, *(x.repeat_interleave(group_size, 1) for x in (key, value)), **options)
    return output


def grouped() -> Iterator[Row]:
    """Several query heads to a key head: decoding from a cache, and a prompt."""
    for dtype in (torch.float32, torch.bfloat16):
        yield Row(
            f"decoding, 32/8 heads of 128, 16,384 keys, {str(dtype).removeprefix('torch.')}",
            heads(1, 16_384, num_heads=32, kv_heads=8, head_dim=128, dtype=dtype),
            {"mask": causal()},
            {"SDPA enable_gqa": partial(sdpa, enable_gqa=True), "SDPA repeat_interleave": repeated},
        )
    yield Row(
        "causal, 8/2 heads, 1,024 tokens",
        heads(1024, kv_heads=2),
        {"mask": causal()},
        {
            "SDPA enable_gqa": partial(sdpa, is_causal=True, enable_gqa=True),
            "SDPA repeat_interleave": partial(repeated, is_causal=True),
        },
    )


def eager(
    query: Tensor, key: Tensor, value: Tensor, *, softcap: float | None = None, sinks: Tensor | None = None
) -> Tensor:
    """Causal attention as one would write it where SDPA has no such option."""
    attn_scores = query @ key.mT / query.shape[-1] ** 0.5
    if softcap is not None:
        attn_scores = softcap * torch.tanh(attn_scores / softcap)
    attn_scores = attn_scores.masked_fill(~causal().dense(*attn_scores.shape[-2:], xp=torch), -torch.inf)
    if sinks is not None:
        column = sinks[None, :, None, None].expand(*attn_scores.shape[:3], 1)
        return torch.cat([attn_scores, column], -1).softmax(-1)[..., :-1] @ value
    return attn_scores.softmax(-1) @ value


def extras() -> Iterator[Row]:
    """What SDPA hasn't, or has only on its unfused path."""
    length = 2048
    sinks, position = torch.randn(8), torch.arange(length)
    slopes = torch.tensor(alibi_slopes(8))[:, None, None]
    distances = -slopes * (position[:, None] - position).abs()
    bias = distances.masked_fill(position[:, None] < position, -torch.inf)[None]
    table = torch.rand(length, length) > 0.5
    once = {"mask": causal()}
    yield Row(
        "softcap, causal, 2,048", heads(length), {**once, "softcap": 30.0}, {"eager": partial(eager, softcap=30.0)}
    )
    yield Row("sinks, causal, 2,048", heads(length), {**once, "sinks": sinks}, {"eager": partial(eager, sinks=sinks)})
    with_bias = {"SDPA with a bias": partial(sdpa, attn_mask=bias)}
    yield Row("alibi, causal, 2,048", heads(length), {**once, "alibi": True}, with_bias)
    yield Row("a bias, 2,048", heads(length), {"bias": bias}, with_bias)
    yield Row("any booleans, 2,048", heads(length), {"mask": table}, {"SDPA with them": partial(sdpa, attn_mask=table)})
    causally = {"SDPA is_causal": partial(sdpa, is_causal=True)}
    yield Row("MLA shapes, 192 beside 128, causal, 1,024", heads(1024, head_dim=192, value_dim=128), once, causally)
    yield Row("3-D inputs (8, 1,024, 64), causal", [x[0] for x in heads(1024)], once, causally)
    dropping = {"SDPA dropout_p": partial(sdpa, is_causal=True, dropout_p=0.1)}
    for train in (False, True):
        name = f"{'training, ' if train else ''}dropout, causal, 1,024"
        yield Row(name, heads(1024), {**once, "dropout_p": 0.1}, dropping, train)


def module(length: int) -> Row:
    """The whole module that torch has, in evaluation, beside the same projections around `attend`."""
    theirs = nn.MultiheadAttention(512, 8, batch_first=True).eval().requires_grad_(False)
    hidden = ~causal().dense(length, length, xp=torch)

    def whole(query: Tensor, key: Tensor, value: Tensor) -> Any:
        x = query.transpose(1, 2).flatten(2)
        return theirs(x, x, x, attn_mask=hidden, need_weights=False)

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        x = functional.linear(query.transpose(1, 2).flatten(2), theirs.in_proj_weight, theirs.in_proj_bias)
        made = (part.unflatten(-1, (8, 64)).transpose(1, 2) for part in x.chunk(3, dim=-1))
        output: Tensor = theirs.out_proj(attend(*made, mask=causal()).transpose(1, 2).flatten(2))
        return output

    return Row(
        f"whole module, causal, {length:,} tokens", heads(length), {}, {"nn.MultiheadAttention": whole}, ours=ours
    )


def flexible() -> Row:
    """The compiled kernel that torch makes of a mask. Its first call takes a minute."""
    mask = causal() & window(256)
    blocks = create_block_mask(mask.mask_mod(), None, None, 4096, 4096, device="cpu")
    compiled = torch.compile(flex_attention)
    pick = {"compiled flex_attention": partial(compiled, block_mask=blocks)}
    return Row("flex, window 256, 4,096 tokens", heads(4096), {"mask": mask}, pick)


def rows() -> Iterator[Row]:
    """Everything that is measured, made when it is its turn."""
    lengths = [96, 200, 333, 480, 600, 700, 900, 1024]
    yield masked("window 256, 4,096 tokens", causal() & window(256), 4096)
    yield masked("16 packed documents of 256", causal() & packed(4096, 256), 4096)
    yield masked("ragged documents, 4,096 tokens", causal() & ragged(4096), 4096)
    yield masked("padded batch of 8, 96 to 1,024", padding(lengths, queries=True), 1024, batch=8)
    yield masked("padded batch, padding's rows made too", padding(lengths), 1024, batch=8)
    yield masked("window 256 and a prefix of 64, 2,048", causal() & window(256) | prefix(64), 2048)
    yield masked("training, window 256, 2,048 tokens", causal() & window(256), 2048, train=True)
    yield masked("training, 8 packed documents of 256", causal() & packed(2048, 256), 2048, train=True)
    yield from grouped()
    yield from extras()
    for length in (128, 256, 512, 1024, 2048, 4096):
        yield plainly_causal(length)
    for length in (128, 512, 1024, 2048):
        yield dense(length)
    for length in (512, 1024, 2048):
        yield plainly_causal(length, train=True)
    yield dense(1024, train=True)
    yield module(1024)
    yield flexible()


def packed(length: int, size: int) -> Mask:
    """Documents of one size, side by side."""
    return documents([token // size for token in range(length)])


def ragged(length: int) -> Mask:
    """Documents of very different sizes."""
    starts = [0, 37, 160, 700, 800, 1900, 2000, 2048, 3300]
    return documents([sum(start <= token for start in starts) for token in range(length)])


GROWING: dict[str, Callable[[int], Mask]] = {
    "causal": lambda length: causal(),
    "window 256": lambda length: causal() & window(256),
    "documents of 512": lambda length: causal() & packed(length, 512),
}
LENGTHS = (1024, 4096, 16_384, 65_536, 131_072)


def growth(name: str, length: int) -> str:
    """Seconds and memory of one forward run of 1 head of 64, in this process."""
    row = Row(name, heads(length, num_heads=1), {"mask": GROWING[name](length)}, {})
    run = partial(attend, **row.options)
    attend(*heads(256, num_heads=1), mask=causal())
    first = cost(lambda: row.seconds(run))
    again = row.seconds(run)
    return (
        f"{name:18} {length:9,} tokens {first.seconds:9.3f} s first, {again:9.3f} s again {first.memory / 1e6:7.0f} MB"
    )


def main() -> None:
    match sys.argv[1:]:
        case ["--growth", name, length]:
            print(growth(name, int(length)))
            return
        case words:
            compared(words)
    if not words or "growth" in words:
        for name in GROWING:
            for tokens in LENGTHS:
                command = [sys.executable, "-m", "benchmarks.attend", "--growth", name, str(tokens)]
                print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def compared(words: list[str]) -> None:
    torch.manual_seed(0)
    cores = torch.get_num_threads()
    print(f"torch {torch.__version__}: a pick's time over attend's, and the milliseconds of both", flush=True)
    columns = "".join(f"{f'{threads} thr.':>8} {'attend':>9} {'pick':>9}" for threads in (1, cores))
    print(" " * 75 + columns, flush=True)
    for row in rows():
        if words and not any(word in row.name for word in words):
            continue
        figures = []
        for threads in (1, cores):
            torch.set_num_threads(threads)
            figures.append(row.measured())
        for pick in row.picks:
            each = [of[pick] for of in figures]
            behind = "   attend is slower" if min(figure.ratio for figure in each) < 0.97 else ""
            print(f"{row.name:48} {pick:26}" + "".join(map(str, each)) + behind, flush=True)


if __name__ == "__main__":
    main()
