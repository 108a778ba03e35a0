"""Attentions of torch, transformers, jax and NumPy code by hand, as black boxes: what each computes is read off.

What is expected is a description (:class:`Drawn`), and each box is held against the loop over scores first, so that the
expectation itself is known to be right.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from benchmarks.black_boxes import Drawn, by_rows
from benchmarks.black_boxes.drawn import LONGEST, Visible
from benchmarks.black_boxes.truths import answers
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import qkv

PLAIN = Drawn(0, "BHTD", 6, 2, 8, 8, 8**-0.5)
CAUSAL = Visible(causal=True)
SINKS = (0.5, -1.0, 2.0, 0.0, 1.0, -0.25)
SLOPES = (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)
BAND = np.tri(LONGEST, k=1, dtype=bool) & ~np.tri(LONGEST, k=-3, dtype=bool)
LENGTHS = [(6, 6), (4, 7), (12, 7)]

Box = Callable[[Any, Any, Any], Any]


class Case(NamedTuple):
    """A box, who wrote it, and what it computes."""

    name: str
    build: Callable[[], Box]
    drawn: Drawn
    framework: str = "torch"


def inputs(case: Case, query_len: int, key_len: int, dtype: str) -> list[np.ndarray]:
    drawn, rng = case.drawn, np.random.default_rng(0)
    shapes = [
        (2, drawn.num_heads, query_len, drawn.head_dim),
        (2, drawn.num_kv_heads, key_len, drawn.head_dim),
        (2, drawn.num_kv_heads, key_len, drawn.value_dim),
    ]
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    return [array.swapaxes(1, 2) for array in arrays] if drawn.layout == "BTHD" else arrays


# --- torch ------------------------------------------------------------------------------------------------------------


def scaled_dot_product(backend: SDPBackend, **options: Any) -> Box:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(backend), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the flash kernel warns of what it doesn't take before it refuses
            return F.scaled_dot_product_attention(query, key, value, enable_gqa=True, **options)

    return attention


def flex(score_mod: Any = None, mask_mod: Any = None) -> Box:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        lengths = query.shape[2], key.shape[2]
        block_mask = create_block_mask(mask_mod, None, None, *lengths, device="cpu") if mask_mod else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it is slow when it is not compiled
            return flex_attention(query, key, value, score_mod, block_mask, enable_gqa=True)

    return attention


def alibi_score(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + torch.tensor(SLOPES, dtype=score.dtype)[head] * (key - query)


def capped_score(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return 20.0 * torch.tanh(score / 20.0)


def causal_window(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) & (query - key < 3)


def causal_prefix(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (query >= key) | (key < 2)


# --- transformers -----------------------------------------------------------------------------------------------------


def eager(model: str, causal: bool = True, **options: Any) -> Box:
    """A model's own eager attention, with a stand-in for its module and the mask that a model makes."""
    found = pytest.importorskip(f"transformers.models.{model}.modeling_{model}")
    sinks = torch.tensor(SINKS)
    module = SimpleNamespace(num_key_value_groups=3, training=False, head_dim=8, sinks=sinks)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query_len, key_len = query.shape[2], key.shape[2]
        module.sinks = sinks.to(query.dtype)
        mask = torch.full((query_len, key_len), torch.finfo(torch.float32).min, dtype=query.dtype)
        mask = mask.triu(key_len - query_len + 1)[None, None] if causal else None
        return found.eager_attention_forward(module, query, key, value, mask, **options)[0].transpose(1, 2)

    return attention


# --- jax --------------------------------------------------------------------------------------------------------------


def jax_attention(**options: Any) -> Box:
    jax = pytest.importorskip("jax")

    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        with jax.enable_x64(query.dtype == np.float64):
            return np.asarray(jax.nn.dot_product_attention(query, key, value, **options))

    return attention


# --- NumPy, as several people write it --------------------------------------------------------------------------------


def with_einsum() -> Box:
    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        batch, length, heads, dim = q.shape
        grouped = q.reshape(batch, length, k.shape[2], heads // k.shape[2], dim)
        logits = np.einsum("bqkgd,bskd->bkgqs", grouped, k) / np.sqrt(dim).astype(q.dtype)
        probabilities = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        return np.einsum("bkgqs,bskd->bqkgd", probabilities, v).reshape(batch, length, heads, v.shape[-1])

    return attention


def with_loops() -> Box:
    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        out = np.zeros((*q.shape[:3], v.shape[-1]), dtype=q.dtype)
        for b, h, i in np.ndindex(q.shape[:3]):
            g = h // (q.shape[1] // k.shape[1])
            last = min(i + 1, k.shape[2])
            e = np.array([np.exp(q[b, h, i] @ k[b, g, j] / 8**0.5) for j in range(last)])
            for j in range(last):
                out[b, h, i] += e[j] / e.sum() * v[b, g, j]
        return out

    return attention


def in_chunks(chunk: int = 4) -> Box:
    """Online softmax over blocks of keys, with a window, as a kernel does it."""

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
        m_i = np.full((*q.shape[:3], 1), -np.inf, dtype=q.dtype)
        l_i, acc = np.zeros_like(m_i), np.zeros((*q.shape[:3], v.shape[-1]), dtype=q.dtype)
        rows = np.arange(q.shape[2])[:, None]
        for start in range(0, k.shape[2], chunk):
            k_blk, v_blk = k[:, :, start : start + chunk], v[:, :, start : start + chunk]
            s = 0.25 * (q @ k_blk.swapaxes(-1, -2))
            cols = start + np.arange(k_blk.shape[2])
            s = np.where((cols <= rows) & (rows - cols < 5), s, -np.inf)
            m_new = np.maximum(m_i, s.max(-1, keepdims=True))
            shift = np.where(np.isfinite(m_new), m_new, 0)
            p, correction = np.exp(s - shift), np.exp(m_i - shift)
            l_i, acc, m_i = l_i * correction + p.sum(-1, keepdims=True), acc * correction + p @ v_blk, m_new
        return (acc / np.where(l_i == 0, 1, l_i)).astype(q.dtype)

    return attention


CASES = [
    Case("sdpa math", lambda: scaled_dot_product(SDPBackend.MATH), PLAIN),
    Case("sdpa flash", lambda: scaled_dot_product(SDPBackend.FLASH_ATTENTION), PLAIN),
    Case(
        "sdpa math causal",
        lambda: scaled_dot_product(SDPBackend.MATH, is_causal=True, scale=0.3),
        replace(PLAIN, visible=CAUSAL, scale=0.3),
    ),
    Case(
        "sdpa flash causal",
        lambda: scaled_dot_product(SDPBackend.FLASH_ATTENTION, is_causal=True, scale=1.0),
        replace(PLAIN, visible=CAUSAL, scale=1.0),
    ),
    Case(
        "flex alibi", lambda: flex(alibi_score), replace(PLAIN, slopes=SLOPES, slopes_name="other", signed=True)
    ),
    Case(
        "flex softcap in a causal window",
        lambda: flex(capped_score, causal_window),
        replace(PLAIN, softcap=20.0, visible=Visible(causal=True, window=3)),
    ),
    Case("flex prefix", lambda: flex(None, causal_prefix), replace(PLAIN, visible=Visible(causal=True, prefix=2))),
    Case(
        "llama", lambda: eager("llama", scaling=8**-0.5),
        replace(PLAIN, visible=CAUSAL, offset="bottom_right", empty_row="uniform"),
    ),
    Case("qwen3 not causal", lambda: eager("qwen3", causal=False, scaling=0.5), replace(PLAIN, scale=0.5)),
    Case(
        "gemma2", lambda: eager("gemma2", softcap=50.0, scaling=0.0625),
        replace(PLAIN, visible=CAUSAL, offset="bottom_right", softcap=50.0, scale=0.0625, empty_row="uniform"),
    ),
    Case(
        "gpt-oss", lambda: eager("gpt_oss", scaling=8**-0.5),
        replace(PLAIN, visible=CAUSAL, offset="bottom_right", sinks=SINKS),
    ),
    Case(
        "jax causal", lambda: jax_attention(is_causal=True),
        replace(PLAIN, layout="BTHD", visible=CAUSAL), "numpy",
    ),
    Case(
        "jax window", lambda: jax_attention(local_window_size=(2, 1), scale=0.2),
        replace(PLAIN, layout="BTHD", visible=Visible(pairs=BAND), scale=0.2, empty_row="uniform"), "numpy",
    ),
    Case("numpy einsum", with_einsum, replace(PLAIN, layout="BTHD"), "numpy"),
    Case("numpy loops", with_loops, replace(PLAIN, visible=CAUSAL), "numpy"),
    Case(
        "numpy in chunks", in_chunks,
        replace(PLAIN, value_dim=6, scale=0.25, visible=Visible(causal=True, window=5)), "numpy",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_description_gives_the_numbers_of_the_box(case: Case, lengths: tuple[int, int]) -> None:
    arrays = inputs(case, *lengths, "float32")
    box = case.build()
    got = box(*map(torch.from_numpy, arrays)).numpy() if case.framework == "torch" else box(*arrays)
    assert got.shape == (expected := by_rows(case.drawn, *arrays)).shape
    assert np.allclose(got, expected, atol=2e-6, equal_nan=True)


SLOW = ("numpy loops",)
"""Boxes that loop over single scores in Python."""


def cases() -> list[Any]:
    return [pytest.param(case, marks=[pytest.mark.slow] * (case.name in SLOW), id=case.name) for case in CASES]


@pytest.mark.parametrize("case", cases())
def test_it_is_identified(case: Case) -> None:
    identity = qkv.identify(case.build(), case.drawn.given, layout=case.drawn.layout)
    assert [answer for answer in answers(case.drawn, identity) if answer.verdict != "right"] == []
