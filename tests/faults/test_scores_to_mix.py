"""Each fault from scores to mix against the same mistake written by hand in PyTorch, as people write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.errors import ShapeError
from qkv.faults import CATALOGUE, Variant
from qkv.masks import Causal, Documents, Prefix, SlidingWindow
from qkv.oracle import Inputs, Linear, Parameters, Replacements, Run, resume, run_stages
from qkv.oracle.rounding import rounded
from qkv.positions import Alibi, RelativeBias, Rope
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

HEADS, KV_HEADS, HEAD_DIM, VALUE_DIM, EMBED_DIM, BATCH = 6, 2, 8, 10, 56, 2
NEG = float("-inf")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads cost more than they give on arrays of a few hundred numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# --- examples: every axis has a size of its own ---


def make_spec(**fields: object) -> AttentionSpec:
    return AttentionSpec(num_heads=HEADS, num_kv_heads=KV_HEADS, out_proj=False).but(**fields)


def make_inputs(spec: AttentionSpec, query_len: int = 7, key_len: int = 11, **own: object) -> Inputs:
    normal = np.random.default_rng(query_len * key_len).standard_normal
    value_dim = own.pop("value_dim", VALUE_DIM)
    arrays = {
        "query": 1.5 * normal((BATCH, spec.num_heads, query_len, HEAD_DIM)),
        "key": 1.5 * normal((BATCH, spec.kv_heads, key_len, HEAD_DIM)),
        "value": normal((BATCH, spec.kv_heads, key_len, value_dim)),
    }
    if spec.sinks:
        arrays["sinks"] = normal((spec.num_heads,))
    return Inputs(**arrays).but(**own)


def right_padding(key_len: int = 11) -> np.ndarray:
    return np.arange(key_len)[None] < np.array([key_len - 1, key_len - 4])[:, None]


def given_mask(query_len: int = 7, key_len: int = 11) -> np.ndarray:
    mask = np.random.default_rng(5).random((BATCH, 1, query_len, key_len)) > 0.3
    mask[..., 0] = True
    return mask


def two_documents(key_len: int = 11) -> np.ndarray:
    return (np.arange(key_len)[None] >= np.array([2, 7])[:, None]).astype(np.int64)


def given_bias(query_len: int = 7, key_len: int = 11) -> np.ndarray:
    return np.random.default_rng(6).standard_normal((HEADS, query_len, key_len))


def table(reach: int = 4) -> RelativeBias:
    rows = np.random.default_rng(7).standard_normal((HEADS, 2 * reach + 1))
    return RelativeBias(tuple(tuple(row) for row in rows.tolist()))


# --- the hand-written side: plain PyTorch, nothing of qkv ---


def by_hand(inputs: Inputs) -> SimpleNamespace:
    """Everything a person has at hand when they write an attention."""
    t = SimpleNamespace()
    t.q = torch.from_numpy(inputs.query)
    group = inputs.query.shape[1] // inputs.key.shape[1]
    t.k = torch.from_numpy(inputs.key).repeat_interleave(group, dim=1)
    t.v = torch.from_numpy(inputs.value).repeat_interleave(group, dim=1)
    t.d, t.Q, t.K = t.q.shape[-1], t.q.shape[2], t.k.shape[2]
    t.s = t.q @ t.k.transpose(-2, -1)
    t.a = t.s / math.sqrt(t.d)
    t.causal = torch.ones(t.Q, t.K, dtype=torch.bool).tril(t.K - t.Q)
    t.i, t.j = torch.arange(t.K - t.Q, t.K)[:, None], torch.arange(t.K)[None, :]
    t.given = None if inputs.may_attend is None else torch.from_numpy(inputs.may_attend)
    t.pad = None if inputs.is_token is None else torch.from_numpy(inputs.is_token)
    t.doc = None if inputs.document is None else torch.from_numpy(inputs.document)
    t.bias = None if inputs.bias is None else torch.from_numpy(inputs.bias)
    t.sinks = None if inputs.sinks is None else torch.from_numpy(inputs.sinks)
    return t


def attend(scores: Tensor, keep: Tensor | None, value: Tensor) -> Tensor:
    if keep is not None:
        scores = scores.masked_fill(~keep, NEG)
    return torch.softmax(scores, dim=-1) @ value


Hand = Callable[[SimpleNamespace], Tensor]
CAUSAL, WINDOW = make_spec(mask=Causal()), make_spec(mask=Causal() & SlidingWindow(4))
PLAIN, GIVEN, PADDED = make_spec(), {"may_attend": given_mask()}, {"is_token": right_padding()}
SQUARE = {"query_len": 11, "key_len": 11}
SLOPES = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3], dtype=torch.float64)[:, None, None]
ALIBI, TABLE, CAPPED = make_spec(alibi=Alibi(), mask=Causal()), make_spec(relative_bias=table()), {"softcap": 2.0}
SINKS = make_spec(sinks=True, mask=Causal())

Row = tuple[str, str, AttentionSpec, dict[str, object], Hand]


def alibi(t: SimpleNamespace, slopes: Tensor = SLOPES) -> Tensor:
    return t.a - slopes * (t.i - t.j).abs()


def slopes(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None, None]


def relative(t: SimpleNamespace, distance: Tensor) -> Tensor:
    return t.a + torch.tensor(table().table, dtype=torch.float64)[:, distance.clamp(-4, 4) + 4]


def shares_of_all(scores: Tensor) -> Tensor:
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    return shares / shares.sum((-2, -1), keepdim=True)


def alike(document: Tensor) -> Tensor:
    return (document[:, :, None] == document[:, None, :])[:, None]


def with_sink(t: SimpleNamespace, sinks: Tensor) -> Tensor:
    scores = t.a.masked_fill(~t.causal, NEG)
    column = sinks.reshape(len(sinks), -1, 1).expand(BATCH, -1, t.Q, 1)
    return torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1] @ t.v


def scores_rows() -> Iterator[Row]:
    yield (
        "scores-transposed",
        "key @ query^T",
        CAUSAL,
        SQUARE,
        lambda t: attend(t.k @ t.q.transpose(-2, -1) / t.d**0.5, t.causal, t.v),
    )
    yield "key-is-query", "query @ query^T", CAUSAL, SQUARE, lambda t: attend(t.q @ t.q.mT / t.d**0.5, t.causal, t.v)
    yield "query-is-key", "key @ key^T", CAUSAL, SQUARE, lambda t: attend(t.k @ t.k.mT / t.d**0.5, t.causal, t.v)


def scale_rows() -> Iterator[Row]:
    def scaled(factor: Callable[[SimpleNamespace], float]) -> Hand:
        return lambda t: attend(t.s * factor(t), t.causal, t.v)

    own = CAUSAL.but(scale=0.2)
    yield "scale-missing", "", CAUSAL, {}, scaled(lambda t: 1.0)
    yield "scale-by-model-width", "num_heads * head_dim", CAUSAL, {}, scaled(lambda t: 48**-0.5)
    yield "scale-by-model-width", "embed_dim", CAUSAL.but(embed_dim=56), {}, scaled(lambda t: 56**-0.5)
    yield "scale-inverted", "", CAUSAL, {}, scaled(lambda t: 8**0.5)
    yield "scale-inverted", "divided by the scale", own, {}, scaled(lambda t: 5.0)
    yield "scale-twice", "", CAUSAL, {}, scaled(lambda t: 1 / 8)
    yield "scale-twice", "on top", own, {}, scaled(lambda t: 0.2 / 8**0.5)
    yield "scale-zero", "", CAUSAL, {}, scaled(lambda t: 0.0)
    yield "scale-ignored", "", own, {}, scaled(lambda t: 8**-0.5)
    yield (
        "scale-after-softmax",
        "",
        CAUSAL,
        {},
        lambda t: torch.softmax(t.s.masked_fill(~t.causal, NEG), -1) / t.d**0.5 @ t.v,
    )
    yield (
        "scale-after-softmax",
        "before softmax and again",
        CAUSAL,
        {},
        lambda t: torch.softmax(t.a.masked_fill(~t.causal, NEG), -1) / t.d**0.5 @ t.v,
    )
    for note, factor in {
        "1/sqrt(value_dim)": 10**-0.5, "1/sqrt(key_len)": 11**-0.5, "1/sqrt(query_len)": 7**-0.5,
        "1/sqrt(num_heads)": 6**-0.5, "head_dim^-1/4": 8**-0.25, "1/sqrt(head_dim // 2)": 0.5, "minus": -(8**-0.5),
    }.items():  # fmt: skip
        yield "scale-other-constant", note, CAUSAL, {}, scaled(lambda t, factor=factor: factor)


def softcap_rows() -> Iterator[Row]:
    capped, tanh = CAUSAL.but(softcap=2.0), torch.tanh
    yield "softcap-missing", "", capped, {}, lambda t: attend(t.a, t.causal, t.v)
    yield (
        "softcap-after-mask",
        "",
        capped,
        {},
        lambda t: attend(2 * tanh(t.a.masked_fill(~t.causal, NEG) / 2), None, t.v),
    )
    yield (
        "softcap-after-mask",
        "",
        capped,
        {"bias": given_bias()},
        lambda t: attend(2 * tanh((t.a + t.bias).masked_fill(~t.causal, NEG) / 2), None, t.v),
    )
    yield (
        "softcap-after-mask",
        "after both",
        capped,
        {"bias": given_bias()},
        lambda t: attend(2 * tanh(t.a.masked_fill(~t.causal, NEG) / 2) + t.bias, None, t.v),
    )
    yield (
        "softcap-after-bias",
        "",
        capped,
        {"bias": given_bias()},
        lambda t: attend(2 * tanh((t.a + t.bias) / 2), t.causal, t.v),
    )
    yield "softcap-before-scale", "", capped, {}, lambda t: attend(2 * tanh(t.s / 2) / t.d**0.5, t.causal, t.v)
    yield "softcap-other-constant", "multiplied by c again", capped, {}, lambda t: attend(tanh(t.a / 2), t.causal, t.v)
    yield "softcap-other-constant", "divided by c first", capped, {}, lambda t: attend(2 * tanh(t.a), t.causal, t.v)
    yield "softcap-other-constant", "cut off", capped, {}, lambda t: attend(t.a.clamp(-2, 2), t.causal, t.v)
    yield "softcap-other-constant", "is 30", capped, {}, lambda t: attend(30 * tanh(t.a / 30), t.causal, t.v)


def bias_rows() -> Iterator[Row]:
    def sloped(*numbers: float) -> Hand:
        return lambda t: attend(alibi(t, slopes(*numbers)), t.causal, t.v)

    given = {"bias": given_bias()}
    yield "alibi-slopes", "no power of two", ALIBI, {}, sloped(*(2 ** (-8 * (h + 1) / 6) for h in range(6)))
    yield "alibi-slopes", "counted from 0: 2^", ALIBI, {}, sloped(*(2 ** (-8 * h / 6) for h in range(6)))
    yield "alibi-slopes", "not the others", ALIBI, {}, sloped(1, 2**-2, 2**-4, 2**-6, 2**-1, 2**-3)
    yield "alibi-slopes", "1/2^(h+1)", ALIBI, {}, sloped(*(0.5 ** (h + 1) for h in range(6)))
    yield "alibi-slopes", "reverse order", ALIBI, {}, lambda t: attend(alibi(t, SLOPES.flip(0)), t.causal, t.v)
    yield "alibi-slopes", "shared by groups", ALIBI, {}, sloped(*[2**-4] * 3, *[2**-8] * 3)
    yield "alibi-slopes", "over and over", ALIBI, {}, sloped(*[2**-4, 2**-8] * 3)
    yield "alibi-slopes", "paper's own row", ALIBI, {}, sloped(1, 2**-2, 2**-4, 2**-6, 2**-8, 2**-1)
    yield "alibi-slopes", "head 0's slope", ALIBI, {}, sloped(*[2**-2] * 6)
    yield "alibi-slopes", "all slopes 1", ALIBI, {}, sloped(*[1] * 6)
    yield (
        "alibi-slopes",
        "head by head",
        ALIBI,
        {},
        lambda t: attend(alibi(t, SLOPES.repeat_interleave(len(t.a), dim=0).view(len(t.a), 6, 1, 1)), t.causal, t.v),
    )
    twelve_heads = ALIBI.but(num_heads=12)
    first_of_sixteen = sloped(*(2 ** (-8 * (h + 1) / 16) for h in range(12)))
    yield "alibi-slopes", "first slopes of the next power", twelve_heads, {}, first_of_sixteen
    yield "alibi-slopes", "sorted", ALIBI, {}, sloped(2**-1, 2**-2, 2**-3, 2**-4, 2**-6, 2**-8)
    eight_heads = ALIBI.but(num_heads=8)
    yield "alibi-slopes", "half the ratio", eight_heads, {}, sloped(*(2 ** (-4 * (h + 1) / 8) for h in range(8)))
    yield "alibi-slopes", "half the ratio", ALIBI, {}, lambda t: attend(alibi(t, SLOPES.sqrt()), t.causal, t.v)
    yield "alibi-slopes", "twice the ratio", eight_heads, {}, sloped(*(2 ** (-16 * (h + 1) / 8) for h in range(8)))
    yield "alibi-slopes", "twice the ratio", ALIBI, {}, lambda t: attend(alibi(t, SLOPES**2), t.causal, t.v)

    def padded_up(t: SimpleNamespace) -> Tensor:
        up_to_eight = 0.5 ** torch.arange(1, 9, dtype=torch.float64)
        return attend(alibi(t, torch.cat([up_to_eight[::2], up_to_eight[1::2]])[:6, None, None]), t.causal, t.v)

    yield "alibi-slopes", "every second one first", ALIBI, {}, padded_up
    yield "alibi-slopes", "not every second", ALIBI, {}, sloped(2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-2)
    yield "alibi-sign", "", ALIBI, {}, lambda t: attend(alibi(t, -SLOPES), t.causal, t.v)
    both_ways = ALIBI.but(mask=make_spec().mask)
    yield "alibi-sign", "later keys", both_ways, {}, lambda t: attend(t.a + SLOPES * (t.j - t.i), None, t.v)
    yield "alibi-missing", "", ALIBI, {}, lambda t: attend(t.a, t.causal, t.v)
    yield "bias-missing", "given with the call", ALIBI, given, lambda t: attend(alibi(t), t.causal, t.v)
    yield "bias-missing", "relative bias", TABLE, given, lambda t: attend(t.a + t.bias, None, t.v)
    yield "bias-missing", "every bias", TABLE, given, lambda t: attend(t.a, None, t.v)
    yield "bias-scaled", "", ALIBI, {}, lambda t: attend((t.s - SLOPES * (t.i - t.j).abs()) / t.d**0.5, t.causal, t.v)
    yield (
        "bias-scaled",
        "only the bias given",
        ALIBI,
        given,
        lambda t: attend(alibi(t) + t.bias / t.d**0.5, t.causal, t.v),
    )
    yield (
        "bias-after-softmax",
        "",
        CAUSAL,
        given,
        lambda t: (torch.softmax(t.a.masked_fill(~t.causal, NEG), -1) + t.bias) @ t.v,
    )
    yield (
        "bias-offset-lost",
        "",
        both_ways,
        {},
        lambda t: attend(t.a - SLOPES * (torch.arange(t.Q)[:, None] - t.j).abs(), None, t.v),
    )
    yield "relative-bias-index", "query - key", TABLE, {}, lambda t: attend(relative(t, t.i - t.j), None, t.v)
    yield "relative-bias-index", "too late", TABLE, {}, lambda t: attend(relative(t, t.j - t.i + 1), None, t.v)
    yield (
        "relative-bias-index",
        "count from the end",
        TABLE,
        {},
        lambda t: attend(
            t.a + torch.tensor(table().table, dtype=torch.float64)[:, (t.j - t.i).clamp(-4, 4)], None, t.v
        ),
    )
    swapped = {**SQUARE, "bias": given_bias(11, 11)}
    yield "relative-bias-index", "axes swapped", PLAIN, swapped, lambda t: attend(t.a + t.bias.mT, None, t.v)
    some = {"bias": np.where(given_bias() > 0, 0.0, given_bias())}
    yield "bias-read-as-mask", "not 0 is kept", PLAIN, some, lambda t: attend(t.a, t.bias.bool(), t.v).nan_to_num()
    yield "bias-read-as-mask", "not 0 is hidden", PLAIN, some, lambda t: attend(t.a, ~t.bias.bool(), t.v).nan_to_num()


def causal_rows() -> Iterator[Row]:
    both = CAUSAL.but(mask=(Causal() & SlidingWindow(4)) | Prefix(3))
    yield "causal-missing", "", CAUSAL, {}, lambda t: attend(t.a, None, t.v)
    yield "causal-missing", "", CAUSAL, PADDED, lambda t: attend(t.a, t.pad[:, None, None], t.v)
    yield "causal-missing", "", WINDOW, {}, lambda t: attend(t.a, (t.i - t.j).abs() < 4, t.v)
    yield "causal-missing", "", both, {}, lambda t: attend(t.a, ((t.i - t.j).abs() < 4) | (t.j < 3), t.v)
    yield "causal-missing", "only ends the past", WINDOW, {}, lambda t: attend(t.a, t.i - t.j < 4, t.v)
    yield "causal-missing", "only ends the past", both, {}, lambda t: attend(t.a, (t.i - t.j < 4) | (t.j < 3), t.v)
    yield "causal-missing", "padding included", CAUSAL, PADDED, lambda t: attend(t.a, None, t.v)
    yield "causal-strict", "give NaN", CAUSAL, SQUARE, lambda t: attend(t.a, torch.ones(11, 11).tril(-1) > 0, t.v)
    yield (
        "causal-strict",
        "mean of all",
        CAUSAL,
        SQUARE,
        lambda t: torch.softmax(t.a.masked_fill(torch.ones(11, 11).triu(0).bool(), -1e9), -1) @ t.v,
    )
    yield "causal-strict", "", both, {}, lambda t: attend(t.a, ((t.j < t.i) & (t.i - t.j < 4)) | (t.j < 3), t.v)
    yield "causal-one-ahead", "", CAUSAL, SQUARE, lambda t: attend(t.a, ~torch.ones(11, 11).triu(2).bool(), t.v)
    yield "causal-one-ahead", "", CAUSAL, {}, lambda t: attend(t.a, t.j <= t.i + 1, t.v)
    yield "causal-inverted", "j > i; rows without any key give NaN", CAUSAL, {}, lambda t: attend(t.a, ~t.causal, t.v)
    yield "causal-inverted", "j >= i", CAUSAL, SQUARE, lambda t: attend(t.a, torch.ones(11, 11).triu().bool(), t.v)
    yield "causal-inverted", "j >= i", WINDOW, {}, lambda t: attend(t.a, (t.j >= t.i) & (t.j - t.i < 4), t.v)
    yield (
        "causal-inverted",
        "padding included",
        CAUSAL,
        PADDED,
        lambda t: attend(t.a, ~(t.causal & t.pad[:, None, None]), t.v),
    )
    yield (
        "causal-inverted",
        "padding included; rows without any key give the mean",
        CAUSAL,
        {},
        lambda t: soft_fill(t.a, ~t.causal, t.v),
    )
    yield "causal-corner", "top left", CAUSAL, {}, lambda t: attend(t.a, torch.ones(7, 11).tril().bool(), t.v)
    square = CAUSAL.but(query_offset="top_left")
    yield "causal-corner", "bottom right", square, {}, lambda t: attend(t.a, t.causal, t.v)
    yield (
        "causal-corner",
        "the window with it",
        WINDOW,
        {},
        lambda t: attend(t.a, (t.i - 4 >= t.j) & (t.i - 4 - t.j < 4), t.v),
    )


def window_rows() -> Iterator[Row]:
    def within(size: int) -> Hand:
        return lambda t: attend(t.a, t.causal & (t.i - t.j < size), t.v)

    both = make_spec(mask=SlidingWindow(4))
    yield "window-off-by-one", "too many", WINDOW, {}, within(5)
    yield "window-off-by-one", "too few", WINDOW, {}, within(3)
    yield (
        "window-off-by-one",
        "before the query",
        both,
        {},
        lambda t: attend(t.a, (t.i - t.j <= 4) & (t.j - t.i < 4), t.v),
    )
    yield "window-missing", "", WINDOW, {}, within(99)
    yield "window-missing", "", WINDOW, PADDED, lambda t: attend(t.a, t.causal & t.pad[:, None, None], t.v)
    yield "window-other-size", "twice", WINDOW, {}, within(8)
    yield "window-other-size", "half the window:", WINDOW, {}, within(2)
    yield "window-other-size", "fixed blocks", WINDOW, {}, lambda t: attend(t.a, t.causal & (t.i // 4 == t.j // 4), t.v)
    yield "window-direction", "after the query are not limited", both, {}, lambda t: attend(t.a, t.i - t.j < 4, t.v)
    yield "window-direction", "before the query are not", both, {}, lambda t: attend(t.a, t.j - t.i < 4, t.v)
    sides = make_spec(mask=Causal(1) & SlidingWindow(4))
    yield "window-direction", "1 keys before", sides, {}, lambda t: attend(t.a, (t.i - t.j < 2) & (t.j - t.i < 4), t.v)
    yield "window-centred", "", WINDOW, {}, lambda t: attend(t.a, (t.i - t.j).abs() <= 2, t.v)


def padding_rows() -> Iterator[Row]:
    padded = {**SQUARE, **PADDED}
    given = {**PADDED, **GIVEN}
    yield "padding-missing", "", CAUSAL, PADDED, lambda t: attend(t.a, t.causal, t.v)
    yield "padding-missing", "", PLAIN, given, lambda t: attend(t.a, t.given, t.v)
    yield (
        "padding-on-queries",
        "rows without any key give NaN",
        PLAIN,
        padded,
        lambda t: attend(t.a, t.pad[:, None, :, None].expand(-1, 1, -1, 11), t.v),
    )
    yield (
        "padding-on-queries",
        "both hidden; rows without any key give the mean",
        CAUSAL,
        padded,
        lambda t: (
            torch.softmax(t.a.masked_fill(~(t.causal & t.pad[:, None, :, None] & t.pad[:, None, None]), -1e9), -1) @ t.v
        ),
    )
    yield "padding-wrong-side", "other side", PLAIN, PADDED, lambda t: attend(t.a, t.pad.flip(1)[:, None, None], t.v)
    yield (
        "padding-wrong-side",
        "mirrored along the keys",
        PLAIN,
        given,
        lambda t: attend(t.a, (t.given & t.pad[:, None, None]).flip(-1), t.v),
    )
    yield "padding-wrong-side", "padding for tokens", PLAIN, PADDED, lambda t: attend(t.a, ~t.pad[:, None, None], t.v)
    yield (
        "padding-off-by-one",
        "attended to",
        PLAIN,
        PADDED,
        lambda t: attend(t.a, (torch.arange(11) <= torch.tensor([[10], [7]]))[:, None, None], t.v),
    )
    yield (
        "padding-off-by-one",
        "is hidden",
        PLAIN,
        PADDED,
        lambda t: attend(t.a, (torch.arange(11) < torch.tensor([[9], [6]]))[:, None, None], t.v),
    )

    def folded(t: SimpleNamespace, mask: Tensor) -> Tensor:
        scores = t.a.reshape(BATCH * HEADS, t.Q, t.K).masked_fill(~mask, NEG)
        return (torch.softmax(scores, -1) @ t.v.reshape(BATCH * HEADS, t.K, -1)).reshape(BATCH, HEADS, t.Q, -1)

    yield "mask-of-other-sequence", "as a whole", PLAIN, PADDED, lambda t: folded(t, t.pad[:, None].repeat(HEADS, 1, 1))
    yield "mask-of-other-sequence", "the first one's", PLAIN, PADDED, lambda t: attend(t.a, t.pad[0], t.v)
    yield "mask-of-other-sequence", "before", PLAIN, PADDED, lambda t: attend(t.a, t.pad.roll(1, 0)[:, None, None], t.v)


def mask_rows() -> Iterator[Row]:
    both = {**SQUARE, **PADDED}
    prefix = make_spec(mask=(Causal() & SlidingWindow(4)) | Prefix(3))
    packed = make_spec(mask=Causal() & Documents())
    documents = {**SQUARE, "document": two_documents()}
    square_given = {**SQUARE, "may_attend": given_mask(11, 11)}
    yield "mask-not-applied", "", PLAIN, GIVEN, lambda t: attend(t.a, None, t.v)
    yield "mask-not-applied", "", CAUSAL, PADDED, lambda t: attend(t.a, None, t.v)
    yield "mask-not-applied", "given with the call is ignored", CAUSAL, GIVEN, lambda t: attend(t.a, t.causal, t.v)
    yield "mask-not-applied", "", CAUSAL, {}, lambda t: attend(t.a, None, t.v)
    yield "mask-not-applied", "", PLAIN, PADDED, lambda t: attend(t.a, None, t.v)
    yield (
        "mask-not-applied",
        "all but the padding and the given mask",
        CAUSAL,
        {**PADDED, **GIVEN},
        lambda t: attend(t.a, t.pad[:, None, None] & t.given, t.v),
    )
    yield "mask-inverted", "NaN", CAUSAL, {}, lambda t: attend(t.a, ~t.causal, t.v)
    yield "mask-inverted", "", PLAIN, PADDED, lambda t: attend(t.a, ~t.pad[:, None, None], t.v)
    yield (
        "mask-inverted",
        "the padding and the mask given with the call are right; rows without any key give NaN",
        CAUSAL,
        PADDED,
        lambda t: attend(t.a, ~t.causal & t.pad[:, None, None], t.v),
    )
    yield "mask-inverted", "", PLAIN, GIVEN, lambda t: attend(t.a, ~t.given, t.v)
    yield (
        "mask-inverted",
        "rows without any key give NaN",
        WINDOW,
        {},
        lambda t: attend(t.a, ~(t.causal & (t.i - t.j < 4)), t.v),
    )
    yield (
        "mask-inverted",
        "only the mask given with the call; rows without any key give NaN",
        CAUSAL,
        GIVEN,
        lambda t: attend(t.a, t.causal & ~t.given, t.v),
    )
    yield "mask-transposed", "", CAUSAL, SQUARE, lambda t: attend(t.a, torch.ones(11, 11).triu().bool(), t.v)
    yield (
        "mask-transposed",
        "NaN",
        PLAIN,
        both,
        lambda t: attend(t.a, t.pad[:, None, None].expand(-1, 1, 11, -1).mT, t.v),
    )
    yield "mask-transposed", "NaN", PLAIN, square_given, lambda t: attend(t.a, t.given.mT, t.v)
    yield (
        "mask-transposed",
        "only the mask given with the call; rows without any key give NaN",
        CAUSAL,
        square_given,
        (lambda t: attend(t.a, t.causal & t.given.mT, t.v)),
    )
    yield (
        "mask-transposed",
        "NaN",
        CAUSAL,
        both,
        lambda t: attend(t.a, (t.causal & t.pad[:, None, None]).transpose(-2, -1), t.v),
    )
    yield (
        "prefix-block-missing",
        "prefix is missing",
        prefix,
        {},
        lambda t: attend(t.a, t.causal & (t.i - t.j < 4), t.v),
    )
    yield (
        "prefix-block-missing",
        "none is meant",
        PLAIN,
        PADDED,
        lambda t: attend(t.a, t.causal & t.pad[:, None, None], t.v),
    )
    yield "prefix-block-missing", "top left", PLAIN, {}, lambda t: attend(t.a, torch.ones(7, 11).tril() > 0, t.v)
    yield (
        "prefix-off-by-one",
        "too long",
        prefix,
        {},
        lambda t: attend(t.a, (t.causal & (t.i - t.j < 4)) | (t.j <= 3), t.v),
    )
    yield "documents-leak", "", packed, documents, lambda t: attend(t.a, t.causal, t.v)
    ends = {**SQUARE, "document": np.array([[0] * 3 + [1] * 8, [0] * 9 + [1] * 2])}
    bounds = torch.tensor([[0, 3, 11], [0, 9, 11]])
    yield (
        "documents-leak", "the first one too", packed, ends,
        lambda t: attend(t.a, t.causal & alike(torch.searchsorted(bounds, t.j.expand(2, -1).contiguous())), t.v),
    )  # fmt: skip
    for note, left in ("the last one", slice(3, None)), ("the first one", slice(3)), ("all but the", slice(3, None)):
        yield (
            "documents-left-out", note, packed, {**SQUARE, "document": np.array([[0] * 3 + [1] * 8] * 2)},
            lambda t, left=left: attend(t.a, t.causal & alike(t.doc), t.v).index_fill(2, torch.arange(11)[left], 0.0),
        )  # fmt: skip
    three = {**SQUARE, "document": np.array([[0, 0, 5, 5, 5, 5, 2, 2, 2, 2, 2], [3, 4, 4, 4, 4, 4, 4, 4, 8, 8, 8]])}
    begins = torch.tensor([2, 1])[:, None, None], torch.tensor([6, 8])[:, None, None]
    for note, begin in zip(("the last two count as one", "the first two count as one"), begins, strict=True):
        yield (
            "documents-leak", note, packed, three,
            lambda t, begin=begin: attend(t.a, t.causal & ((t.j >= begin) == (t.i >= begin))[:, None], t.v),
        )  # fmt: skip
    yield (
        "documents-leak",
        "late",
        packed,
        documents,
        lambda t: attend(
            t.a,
            t.causal
            & ((t.j >= torch.tensor([3, 8])[:, None, None]) == (t.i >= torch.tensor([3, 8])[:, None, None]))[:, None],
            t.v,
        ),
    )
    yield (
        "mask-order",
        "window(4) & (causal | prefix(3))",
        prefix,
        {},
        lambda t: attend(t.a, (t.causal | (t.j < 3)) & ((t.i - t.j).abs() < 4), t.v),
    )
    yield (
        "mask-order",
        "causal | window(4), for",
        WINDOW,
        {},
        lambda t: attend(t.a, t.causal | ((t.i - t.j).abs() < 4), t.v),
    )
    texts = make_spec(mask=Causal() & SlidingWindow(4) & Documents())
    yield (
        "mask-order",
        "(window(4) | documents) & causal",
        texts,
        {**SQUARE, "document": two_documents()},
        lambda t: attend(t.a, t.causal & ((t.i - t.j < 4) | (t.doc[:, None, :, None] == t.doc[:, None, None])), t.v),
    )
    early = {**SQUARE, "is_token": right_padding()[:, ::-1].copy()}
    yield (
        "mask-order",
        "opened after the padding",
        prefix,
        early,
        lambda t: attend(t.a, (t.causal & (t.i - t.j < 4) & t.pad[:, None, None]) | (t.j < 3), t.v),
    )
    yield (
        "mask-order",
        "to the padding with 'or'",
        CAUSAL,
        PADDED,
        lambda t: attend(t.a, t.causal | t.pad[:, None, None], t.v),
    )


def form_rows() -> Iterator[Row]:
    soft = torch.softmax
    yield "mask-added-as-number", "may be seen", CAUSAL, {}, lambda t: soft(t.a + t.causal.double(), -1) @ t.v
    yield "mask-added-as-number", "key is hidden", CAUSAL, {}, lambda t: soft(t.a + (~t.causal).double(), -1) @ t.v
    yield (
        "mask-added-as-number",
        "seen, before the scale",
        CAUSAL,
        {},
        lambda t: soft((t.s + t.causal.double()) / t.d**0.5, -1) @ t.v,
    )
    yield (
        "mask-added-as-number",
        "seen; only the padding",
        CAUSAL,
        PADDED,
        lambda t: attend(t.a + t.pad[:, None, None].double(), t.causal, t.v),
    )
    yield "masked-scores-zeroed", "", CAUSAL, {}, lambda t: soft(t.a * t.causal, -1) @ t.v
    yield "masked-scores-zeroed", "", CAUSAL, SQUARE, lambda t: soft(t.a.tril(), -1) @ t.v
    yield "masked-scores-zeroed", "only the mask given", CAUSAL, GIVEN, lambda t: attend(t.a * t.given, t.causal, t.v)
    yield (
        "masked-scores-zeroed",
        "added after",
        ALIBI,
        {},
        lambda t: soft(t.a * t.causal - SLOPES * (t.i - t.j).abs(), -1) @ t.v,
    )
    yield "masked-scores-zeroed", "1e-9", CAUSAL, {}, lambda t: soft(t.a.masked_fill(~t.causal, 1e-9), -1) @ t.v
    yield "mask-after-softmax", "", CAUSAL, {}, lambda t: soft(t.a, -1) * t.causal @ t.v
    yield (
        "mask-after-softmax",
        "only the padding",
        CAUSAL,
        PADDED,
        lambda t: soft(t.a.masked_fill(~t.causal, NEG), -1) * t.pad[:, None, None] @ t.v,
    )
    yield "mask-after-softmax", "-1e9", CAUSAL, {}, lambda t: soft(t.a, -1).masked_fill(~t.causal, -1e9) @ t.v
    yield "mask-fill-too-small", "are -5", CAUSAL, {}, lambda t: soft(t.a.masked_fill(~t.causal, -5.0), -1) @ t.v
    yield (
        "mask-fill-too-small",
        "are -20, before",
        CAUSAL,
        {},
        lambda t: soft(t.s.masked_fill(~t.causal, -20.0) / t.d**0.5, -1) @ t.v,
    )
    yield "mask-fill-too-small", "have -5 added", CAUSAL, {}, lambda t: soft(t.a + (~t.causal) * -5.0, -1) @ t.v
    yield (
        "mask-fill-too-small",
        "have -10 added, before",
        CAUSAL,
        {},
        lambda t: soft((t.s + (~t.causal) * -10.0) / t.d**0.5, -1) @ t.v,
    )
    yield "mask-fill-too-small", "+1e9", CAUSAL, {}, lambda t: soft(t.a.masked_fill(~t.causal, 1e9), -1) @ t.v


def softmax_rows() -> Iterator[Row]:
    def masked(t: SimpleNamespace, fill: float = NEG) -> Tensor:
        return t.a.masked_fill(~t.causal, fill)

    def blocked(t: SimpleNamespace, size: int) -> Tensor:
        """Online softmax that forgets to rescale both the sum and the context."""
        top = torch.full((BATCH, HEADS, t.Q, 1), NEG, dtype=torch.float64)
        total, acc = 0.0, 0.0
        for start in range(0, t.K, size):
            scores = masked(t)[..., start : start + size]
            top = torch.maximum(top, scores.amax(-1, keepdim=True))
            p = torch.exp(scores - top)
            total, acc = total + p.sum(-1, keepdim=True), acc + p @ t.v[:, :, start : start + size]
        return acc / total

    def one_query_more(t: SimpleNamespace) -> Tensor:
        keep = t.causal if t.pad is None else t.causal & t.pad[:, None, None]
        sink = t.sinks.reshape(1, -1, 1, 1).expand(BATCH, -1, 1, t.K)
        return torch.softmax(torch.cat([t.a.masked_fill(~keep, NEG), sink], -2), -2)[..., :-1, :] @ t.v

    def whole_blocks(t: SimpleNamespace, size: int) -> Tensor:
        """Online softmax over as many blocks as are full."""
        top = torch.full((BATCH, HEADS, t.Q, 1), NEG, dtype=torch.float64)
        total, acc = torch.zeros_like(top), torch.zeros(BATCH, HEADS, t.Q, VALUE_DIM, dtype=torch.float64)
        for block in range(t.K // size):
            scores, value = (x[..., block * size : (block + 1) * size] for x in (masked(t), t.v.mT))
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            old, p, top = torch.exp(top - new_top), torch.exp(scores - new_top), new_top
            total, acc = total * old + p.sum(-1, keepdim=True), acc * old + p @ value.mT
        return acc / total

    hidden = {"is_token": np.zeros((BATCH, 11), dtype=bool)}
    one_row = {"may_attend": np.arange(7)[:, None] + 0 * np.arange(11) != 2}
    yield "empty-row", "give NaN", PLAIN, hidden, lambda t: attend(t.a, t.pad[:, None, None], t.v)
    yield "empty-row", "mean of all", PLAIN, one_row, lambda t: soft_fill(t.a, t.given, t.v)
    yield "empty-row", "see every key", PLAIN, one_row, lambda t: attend(t.a, None, t.v)
    yield "softmax-over-queries", "over the queries", CAUSAL, {}, lambda t: torch.softmax(masked(t), -2) @ t.v
    yield (
        "softmax-over-queries",
        "over the queries",
        CAUSAL,
        PADDED,
        lambda t: torch.softmax(t.a.masked_fill(~(t.causal & t.pad[:, None, None]), NEG), -2) @ t.v,
    )
    yield (
        "softmax-over-queries",
        "over the queries; even",
        CAUSAL,
        PADDED,
        lambda t: torch.softmax(t.a.masked_fill(~(t.causal & t.pad[:, None, None]), -1e9), -2) @ t.v,
    )
    yield "softmax-over-queries", "the sum over both", CAUSAL, {}, lambda t: shares_of_all(masked(t)) @ t.v
    for own in ({}, PADDED):
        yield "softmax-over-queries", "the sink among them", SINKS, own, one_query_more
    yield (
        "softmax-over-queries",
        "together",
        CAUSAL,
        {},
        lambda t: torch.softmax(masked(t).flatten(2), -1).reshape(t.a.shape) @ t.v,
    )
    yield "softmax-over-heads-or-batch", "over the heads", CAUSAL, {}, lambda t: torch.softmax(masked(t), 1) @ t.v
    yield (
        "softmax-over-heads-or-batch",
        "over the heads; even",
        CAUSAL,
        {},
        lambda t: torch.softmax(masked(t, -1e9), 1) @ t.v,
    )
    yield (
        "softmax-over-heads-or-batch",
        "over the batch; even",
        CAUSAL,
        {},
        lambda t: torch.softmax(masked(t, -1e9), 0) @ t.v,
    )
    yield "softmax-missing", "the scores are the weights", CAUSAL, {}, lambda t: masked(t, 0.0) @ t.v
    yield (
        "softmax-missing",
        "divided by",
        CAUSAL,
        {},
        lambda t: masked(t, 0.0) / masked(t, 0.0).sum(-1, keepdim=True) @ t.v,
    )
    yield "softmax-missing", "exp", CAUSAL, {}, lambda t: masked(t).exp() @ t.v
    yield "softmax-missing", "sigmoid", CAUSAL, {}, lambda t: masked(t).sigmoid() @ t.v
    yield "softmax-missing", "hidden ones -1e9", CAUSAL, {}, lambda t: masked(t, -1e9) @ t.v
    yield "softmax-twice", "", CAUSAL, {}, lambda t: torch.softmax(torch.softmax(masked(t), -1), -1) @ t.v
    yield "softmax-twice", "before both", CAUSAL, {}, lambda t: attend(torch.softmax(masked(t), -1), t.causal, t.v)
    yield (
        "softmax-base",
        "2^s",
        ALIBI,
        {},
        lambda t: (two := torch.exp2(alibi(t).masked_fill(~t.causal, NEG))) / two.sum(-1, keepdim=True) @ t.v,
    )
    yield "softmax-base", "without exp2", CAUSAL, {}, lambda t: torch.softmax(masked(t) * 1.4426950408889634, -1) @ t.v
    yield (
        "softmax-off-by-one",
        "exp(s)",
        CAUSAL,
        {},
        lambda t: (e := masked(t).exp()) / (1 + e.sum(-1, keepdim=True)) @ t.v,
    )
    yield (
        "softmax-off-by-one",
        "taken off",
        CAUSAL,
        {},
        lambda t: (e := (masked(t) - masked(t).amax(-1, keepdim=True)).exp()) / (1 + e.sum(-1, keepdim=True)) @ t.v,
    )
    yield "online-softmax-max", "blocks of 4 keys", CAUSAL, {}, lambda t: blocked(t, 4)
    yield "online-softmax-max", "blocks of 2 keys", CAUSAL, {}, lambda t: blocked(t, 2)
    yield (
        "tail-block",
        "4 keys, the last one dropped",
        CAUSAL,
        {},
        lambda t: attend(t.a[..., :8], t.causal[:, :8], t.v[:, :, :8]),
    )
    yield "tail-block", "4 keys, the last one dropped even if alone", CAUSAL, {}, lambda t: whole_blocks(t, 4)
    yield (
        "tail-block",
        "16 keys, the last one dropped even if alone; rows without any key give NaN",
        CAUSAL,
        {},
        lambda t: whole_blocks(t, 16),
    )
    yield (
        "tail-block",
        "16 keys, the last one dropped even if alone",
        CAUSAL,
        {},
        lambda t: torch.zeros(BATCH, HEADS, t.Q, VALUE_DIM, dtype=torch.float64),
    )
    yield (
        "tail-block",
        "16 keys, the last one filled",
        CAUSAL,
        {},
        lambda t: (
            torch.softmax(torch.cat([masked(t), torch.zeros(BATCH, HEADS, t.Q, 5, dtype=torch.float64)], -1), -1)
            @ torch.cat([t.v, torch.zeros(BATCH, HEADS, 5, VALUE_DIM, dtype=torch.float64)], 2)
        ),
    )
    yield "sink-missing", "", SINKS, {}, lambda t: attend(t.a, t.causal, t.v)
    yield "sink-counted-per-block", "2 times", SINKS, {}, lambda t: with_sink(t, t.sinks + math.log(2))
    tiles = torch.tensor([math.ceil(min(i - i % 4 + 4, 11) / 4) for i in range(11)])
    for note, counts in (
        ("every block of 4 keys", torch.full((11,), 3)),
        ("every block of 4 keys, and once more at the start", torch.full((11,), 4)),
        ("every block of 4 keys of which a row sees any", torch.arange(11) // 4 + 1),
        ("every block of 4 keys that a tile of queries sees", tiles),
    ):
        yield (
            "sink-counted-per-block", note, SINKS, SQUARE,
            lambda t, counts=counts: with_sink(t, t.sinks[:, None] + counts.double().log()),
        )  # fmt: skip
    yield "sink-of-other-head", "reverse", SINKS, {}, lambda t: with_sink(t, t.sinks.flip(0))
    yield "sink-of-other-head", "by groups", SINKS, {}, lambda t: with_sink(t, t.sinks[:2].repeat_interleave(3))
    yield "sink-scaled", "times the scale", SINKS, {}, lambda t: with_sink(t, t.sinks / t.d**0.5)
    yield "sink-scaled", "sign", SINKS, {}, lambda t: with_sink(t, -t.sinks)

    def beside(t: SimpleNamespace, top: Tensor) -> Tensor:
        shares = torch.exp(t.a.masked_fill(~t.causal, NEG) - top)
        return shares / (shares.sum(-1, keepdim=True) + t.sinks[:, None, None].exp()) @ t.v

    def largest(t: SimpleNamespace) -> Tensor:
        return t.a.masked_fill(~t.causal, NEG).amax(-1, keepdim=True)

    yield "sink-scaled", "largest score is", SINKS, {}, lambda t: beside(t, largest(t))
    yield "sink-scaled", "it included", SINKS, {}, lambda t: beside(t, largest(t).maximum(t.sinks[:, None, None]))


def soft_fill(scores: Tensor, keep: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~keep, -1e9), -1) @ value


def mix_rows() -> Iterator[Row]:
    def weights(t: SimpleNamespace) -> Tensor:
        return torch.softmax(t.a.masked_fill(~t.causal, NEG), -1)

    narrow = {"value_dim": HEAD_DIM}
    yield "weights-times-key", "weights @ key", CAUSAL, narrow, lambda t: weights(t) @ t.k
    yield "weights-times-key", "weights @ query", CAUSAL, {**narrow, **SQUARE}, lambda t: weights(t) @ t.q
    yield "weights-transposed", "", CAUSAL, SQUARE, lambda t: weights(t).mT @ t.v
    yield "weights-averaged-over-heads", "", CAUSAL, {}, lambda t: weights(t).mean(1, keepdim=True) @ t.v
    yield "quantised-scale", "by 1/2", CAUSAL, {}, lambda t: weights(t) @ (t.v / 2)


def step_rows() -> Iterator[Row]:
    def tiled(t: SimpleNamespace) -> Tensor:
        first = (t.i // 8 * 8) // 4
        return attend(t.a, t.causal & (t.j // 4 <= first), t.v)

    yield "causal-tiles-skipped", "blocks of 4 keys", CAUSAL, SQUARE, tiled
    yield "weights-out-of-step", "before", CAUSAL, {}, lambda t: attend(t.a, t.causal, t.v[:, :, [-1, *range(10)]])
    yield "weights-out-of-step", "after", CAUSAL, {}, lambda t: attend(t.a, t.causal, t.v[:, :, [*range(1, 11), 0]])

    def cut_behind(t: SimpleNamespace) -> Tensor:
        column = t.sinks.reshape(1, -1, 1, 1).expand(BATCH, -1, t.Q, 1)
        return torch.cat([column, t.a.masked_fill(~t.causal, NEG)], -1).softmax(-1)[..., :-1] @ t.v

    yield "weights-out-of-step", "cut off", SINKS, {}, cut_behind


ROWS = [
    *scores_rows(), *scale_rows(), *softcap_rows(), *bias_rows(), *causal_rows(), *window_rows(), *padding_rows(),
    *mask_rows(), *form_rows(), *softmax_rows(), *mix_rows(), *step_rows(),
]  # fmt: skip


def context_of(run: Run) -> np.ndarray:
    return np.asarray(run.before[Stage.MERGE].context)


def under(right: Run, replacements: Replacements) -> np.ndarray:
    """The context with some stages replaced; what comes before them is taken from the right run."""
    first = min(replacements)
    return context_of(resume(right.before[first], replacements, first.order))


def variant_of(spec: AttentionSpec, name: str, note: str) -> Variant:
    """The first way of a fault whose note holds these words."""
    return next(v for v in CATALOGUE[name].variants(spec) if note in v.note)


@pytest.mark.parametrize(("name", "note", "spec", "given", "hand"), ROWS, ids=[f"{row[0]}:{row[1]}" for row in ROWS])
def test_a_fault_gives_the_numbers_of_the_mistake_written_by_hand(
    name: str, note: str, spec: AttentionSpec, given: dict[str, object], hand: Hand
) -> None:
    inputs = make_inputs(spec, **given)
    right = run_stages(spec, inputs)
    got = under(right, variant_of(spec, name, note).replacements)
    np.testing.assert_allclose(got, hand(by_hand(inputs)).numpy(), rtol=1e-10, atol=1e-10)
    assert not np.allclose(got, context_of(right), rtol=0, atol=1e-6)


OWN = [entry for entry in CATALOGUE.values() if Stage.SCORES.order <= entry.stage.order <= Stage.MIX.order]


KERNELS = {
    *("alibi-local-heads", "bias-extra", "key-positions-per-block", "lse-base", "mask-mutated", "ring-causal"),
    "scale-in-block-loop",
    "window-layers-swapped",
}
"""Written by hand in test_kernels_and_devices.py."""

CACHES = {
    *("bias-dropped-in-decode", "cache-empty-slots", "cache-evicted-by-chunk", "cache-not-appended"),
    *("cache-token-doubled", "cache-token-missing"),
}
"""Written by hand as candidates with caches, in tests/caches."""


def test_every_fault_of_these_stages_is_written_by_hand_too() -> None:
    elsewhere = {"dropout-in-eval", "softmax-low-precision"}  # below: random, and only equal to rounding
    assert {entry.id for entry in OWN} == {row[0] for row in ROWS} | elsewhere | KERNELS | CACHES


# --- the catalogue as a whole, on examples that leave room for everything ---

EXAMPLES: dict[str, tuple[AttentionSpec, dict[str, object]]] = {
    "nothing masked": (PLAIN, SQUARE),
    "causal": (CAUSAL, SQUARE),
    "causal and padded": (CAUSAL, {**SQUARE, **PADDED}),
    "fewer queries than keys": (WINDOW.but(relative_bias=table(), scale=0.25), {**PADDED}),
    "window and prefix": (make_spec(mask=Causal() & SlidingWindow(3) | Prefix(2)), SQUARE),
    "window on both sides": (make_spec(mask=SlidingWindow(4)), {}),
    "mask given": (CAUSAL.but(mask=PLAIN.mask, empty_row="nan"), {**GIVEN, **PADDED, "bias": given_bias()}),
    "everything at once": (
        make_spec(
            mask=Causal() & SlidingWindow(3) & Documents() | Prefix(2),
            rope=Rope(),
            alibi=Alibi(),
            softcap=1.5,
            qk_norm="head",
            sinks=True,
        ),
        {
            **SQUARE,
            **PADDED,
            "may_attend": given_mask(11, 11),
            "document": two_documents(),
            "bias": np.where(given_bias(11, 11) > 1, 0, given_bias(11, 11)),
        },
    ),
    "rows without keys": (PLAIN, {"may_attend": np.arange(7)[:, None] + 0 * np.arange(11) != 2}),
    "as wide a value as a key": (CAUSAL, {**SQUARE, "value_dim": HEAD_DIM}),
}
"""A spec, and what its inputs have of their own."""


def example(name: str) -> tuple[AttentionSpec, Inputs]:
    spec, own = EXAMPLES[name]
    return spec, make_inputs(spec, **own)


@cache
def all_ways(name: str) -> dict[tuple[str, str], tuple[Variant, np.ndarray]]:
    """Every way of every fault that is possible on an example and changes it, with the context it gives."""
    spec, inputs = example(name)
    right = run_stages(spec, inputs)
    before = [array.copy() for array in inputs.arrays()]
    ways = {}
    for entry in OWN:
        for variant in entry.variants(spec) if entry.absent(spec, inputs) is None else ():
            try:
                context = under(right, variant.replacements)
            except ShapeError:
                continue
            if not np.allclose(context, context_of(right), rtol=0, atol=1e-6, equal_nan=True):
                ways[entry.id, variant.note] = (variant, context)
    for array, copy in zip(inputs.arrays(), before, strict=True):
        np.testing.assert_array_equal(array, copy, err_msg="a fault changed an array in place")
    return ways


def test_every_fault_shows_on_some_example() -> None:
    # Inputs that come at once show no fault that only a later call has.
    later = (CACHES - {"cache-empty-slots"}) | {"mask-mutated"}
    assert {fault_id for name in EXAMPLES for fault_id, _ in all_ways(name)} == {entry.id for entry in OWN} - later


IDENTICAL = {
    # c * tanh(-100 / c) is -c: a fill before the softcap is the same as the softcap after the mask
    ("mask-fill-too-small", "softcap-after-mask"),
    # -100 hides as well as minus infinity does, but for rows where everything is hidden
    ("empty-row", "mask-fill-too-small"),
    # where causal is the whole rule, all that is left of the mask is the padding
    ("causal-missing", "mask-not-applied"),
    ("causal-inverted", "mask-inverted"),
}
"""Faults with ways that give the same numbers wherever both are possible, and why."""


def test_no_two_faults_give_the_same_numbers_everywhere() -> None:
    """General faults (a mask not applied at all) may: they give way to the particular one (a causal mask missing)."""
    numbers: dict[tuple[str, str], dict[str, bytes]] = {}
    for name in EXAMPLES:
        for way, (_, context) in all_ways(name).items():
            if np.isfinite(context).any() and not CATALOGUE[way[0]].general:
                numbers.setdefault(way, {})[name] = (np.round(context, 6) + 0.0).tobytes()
    ways_by_numbers: dict[tuple[str, bytes], list[tuple[str, str]]] = {}
    for way, by_name in numbers.items():
        for name, found in by_name.items():
            ways_by_numbers.setdefault((name, found), []).append(way)
    same = {
        (*sorted((one[0], other[0])), one[1], other[1])
        for ways in ways_by_numbers.values()
        for one, other in combinations(ways, 2)
        if one[0] != other[0]
        and all(numbers[one][n] == numbers[other][n] for n in numbers[one].keys() & numbers[other])
    }
    assert {ids[:2] for ids in same} == IDENTICAL, sorted(same)


@pytest.mark.parametrize("name", ["fewer queries than keys", "mask given", "everything at once"])
def test_a_fault_gives_the_same_numbers_on_torch_tensors(name: str) -> None:
    spec, inputs = example(name)
    right = run_stages(spec, inputs.map(lambda array: torch.from_numpy(np.ascontiguousarray(array))))
    for variant, context in all_ways(name).values():
        got = under(right, variant.replacements)
        np.testing.assert_allclose(got, context, rtol=1e-9, atol=1e-9, err_msg=f"{variant.fault.id}: {variant.note}")


def test_ways_of_one_fault_have_notes_of_their_own() -> None:
    for name in EXAMPLES:
        for entry in OWN:
            notes = [variant.note for variant in entry.variants(example(name)[0])]
            assert len(notes) == len(set(notes)), entry.id


def test_projections_swapped_by_name_are_swapped_before_norm_and_rope() -> None:
    spec = AttentionSpec(num_heads=HEADS, rope=Rope(), qk_norm="head", mask=Causal())
    normal = np.random.default_rng(1).standard_normal
    q, k = Linear(normal((HEADS * HEAD_DIM, EMBED_DIM))), Linear(normal((HEADS * HEAD_DIM, EMBED_DIM)))
    v, out = Linear(normal((HEADS * VALUE_DIM, EMBED_DIM))), Linear(normal((EMBED_DIM, HEADS * VALUE_DIM)))
    inputs = Inputs(x=normal((BATCH, 5, EMBED_DIM)), parameters=Parameters(q, k, v, out))
    swapped = inputs.but(parameters=Parameters(k, q, v, out))
    got = run_stages(spec, inputs, variant_of(spec, "scores-transposed", "are swapped").replacements)
    np.testing.assert_allclose(got.output, run_stages(spec, swapped).output, rtol=1e-12)
    same = run_stages(spec, inputs, variant_of(spec, "key-is-query", "q_proj").replacements)
    shared = inputs.but(parameters=Parameters(q, q, v, out))
    np.testing.assert_allclose(same.output, run_stages(spec, shared).output, rtol=1e-12)


# --- numbers that are estimated, and draws that are read off ---


def filled(t: SimpleNamespace, value: float) -> Tensor:
    return torch.softmax(t.a.masked_fill(~t.causal, value), -1) @ t.v


def added(t: SimpleNamespace, value: float) -> Tensor:
    return torch.softmax(t.a + value * ~t.causal, -1) @ t.v


NUMBERS: list[tuple[str, int, AttentionSpec, float, str, Callable[[SimpleNamespace, float], Tensor]]] = [
    *(
        ("scale-other-constant", 0, CAUSAL, value, words, lambda t, a: attend(a * t.s, t.causal, t.v))
        for value, words in (
            (10**-0.5, "1/sqrt(value_dim)"), (144**-0.5, "1/sqrt(144)"), (math.log(2) / 8**0.5, "ln(2) * the scale"),
        )
    ),
    (
        "softcap-other-constant", 0, CAUSAL.but(softcap=2.0), 1.0, "softcap / 2",
        lambda t, c: attend(c * torch.tanh(t.a / c), t.causal, t.v),
    ),
    ("alibi-slopes", 0, ALIBI, 8**-0.5, "the scale", lambda t, f: attend(alibi(t, f * SLOPES), t.causal, t.v)),
    ("mask-fill-too-small", 0, CAUSAL, -10.0, "-10", filled),
    ("mask-fill-too-small", 1, CAUSAL, -10.0, "-10", added),
    ("mask-added-as-number", 0, CAUSAL, -1.0, "-1", added),
    ("sink-counted-per-block", 0, SINKS, 4.0, "4 times", lambda t, n: with_sink(t, t.sinks + math.log(n))),
    ("quantised-scale", 0, CAUSAL, 8**-0.5, "the scale", lambda t, f: attend(t.a, t.causal, f * t.v)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place", "spec", "value", "words", "hand"), NUMBERS, ids=[f"{row[0]}:{row[4]}" for row in NUMBERS]
)
def test_a_family_names_its_number_and_gives_what_is_written_by_hand(
    name: str,
    place: int,
    spec: AttentionSpec,
    value: float,
    words: str,
    hand: Callable[[SimpleNamespace, float], Tensor],
) -> None:
    family, inputs = CATALOGUE[name].families[place], make_inputs(spec)
    assert words in family.note(spec, inputs, value)
    assert family.accepts(value)
    right = run_stages(spec, inputs)
    got = under(right, family.replacements(value))
    np.testing.assert_allclose(got, hand(by_hand(inputs), value).numpy(), rtol=1e-10, atol=1e-10)
    assert not np.allclose(got, context_of(right), rtol=0, atol=1e-6)


def test_every_family_is_written_by_hand_too() -> None:
    families = {(entry.id, place) for entry in OWN for place in range(len(entry.families)) if entry.id not in CACHES}
    assert families == {row[:2] for row in NUMBERS} | {("scale-other-constant", 1)}  # a factor: test_debugger.py


def test_a_number_added_to_hidden_scores_is_one_faults_or_the_others() -> None:
    (small,), (_, large) = CATALOGUE["mask-added-as-number"].families, CATALOGUE["mask-fill-too-small"].families
    for value in (-50.0, -5.0, -2.0, -1.9, -0.1, 0.1, 5.0):
        assert small.accepts(value) != large.accepts(value)


def test_a_window_of_any_size_is_found() -> None:
    further = CATALOGUE["window-other-size"].further
    assert further is not None
    run = run_stages(WINDOW, make_inputs(WINDOW))
    other = run_stages(WINDOW.but(mask=Causal() & SlidingWindow(7)), run.inputs)
    notes = [
        note
        for note, replacements in further(run)
        if np.allclose(context_of(run_stages(WINDOW, run.inputs, replacements)), context_of(other), rtol=0, atol=1e-12)
    ]
    assert notes == ["the window is 7 for 4"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype_of_run", [np.float32, np.float64], ids=["float32", "float64"])
def test_rounding_is_that_of_the_low_precision(dtype: torch.dtype, dtype_of_run: type) -> None:
    numbers = np.random.default_rng(2).standard_normal(4000) * 10.0 ** np.random.default_rng(3).integers(-9, 6, 4000)
    numbers = np.concatenate([numbers, [0.0, 1.0, -np.inf, np.inf, 65504.0, 1e5]]).astype(np.float32)
    with np.errstate(all="ignore"):
        got = rounded(np, numbers.astype(dtype_of_run), str(dtype).removeprefix("torch."))
    np.testing.assert_array_equal(got, torch.from_numpy(numbers).to(dtype).double().numpy())


def each_step(scores: Tensor, dtype: torch.dtype) -> Tensor:
    shares = (scores - scores.amax(-1, keepdim=True)).to(dtype).exp()
    return shares / shares.sum(-1, keepdim=True)


def fused(t: SimpleNamespace, dtype: torch.dtype) -> Tensor:
    q, k, v = (x.to(dtype).float() for x in (t.q, t.k, t.v))
    weights = torch.softmax((q @ k.mT / t.d**0.5).masked_fill(~t.causal, NEG), -1).to(dtype)
    return (weights.float() @ v).to(dtype)


LOW: dict[str, Callable[[SimpleNamespace, Tensor, torch.dtype], Tensor]] = {
    "scores and weights in": lambda t, scores, dtype: torch.softmax(scores.to(dtype), -1).double() @ t.v,
    "scores in": lambda t, scores, dtype: torch.softmax(scores.to(dtype).double(), -1) @ t.v,
    "weights in": lambda t, scores, dtype: torch.softmax(scores, -1).to(dtype).double() @ t.v,
    "every step in": lambda t, scores, dtype: each_step(scores.to(dtype), dtype).double() @ t.v,
    "every step from exp() on in": lambda t, scores, dtype: each_step(scores, dtype).double() @ t.v,
    "query, key and value in": lambda t, scores, dtype: fused(t, dtype).double(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("note", LOW)
def test_softmax_in_low_precision_is_near_torchs_own(note: str, dtype: torch.dtype) -> None:
    inputs = make_inputs(CAUSAL)
    t = by_hand(inputs)
    low = LOW[note](t, t.a.masked_fill(~t.causal, NEG), dtype).numpy()
    name = str(dtype).removeprefix("torch.")
    ways = CATALOGUE["softmax-low-precision"].variants(CAUSAL)
    (way,) = (way for way in ways if way.note.startswith(f"{note} {name}"))
    right = run_stages(CAUSAL, inputs)
    assert np.abs(under(right, way.replacements) - low).max() < 0.1 * np.abs(low - context_of(right)).max()


def test_every_low_precision_is_written_by_hand_too() -> None:
    notes = {way.note for way in CATALOGUE["softmax-low-precision"].variants(CAUSAL)}
    tried = {(note, dtype) for note in LOW for dtype in ("bfloat16", "float16")}
    assert {way for way in tried if any(note.startswith(" ".join(way)) for note in notes)} == tried
    assert len(notes) == len(tried)
