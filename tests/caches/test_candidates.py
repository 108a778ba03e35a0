"""Attentions with a cache in the styles that people write: right ones are right, and a planted fault is named."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from thinned import thinned

sys.path.append(str(Path(__file__).parent))

import cache_judging

pytest.importorskip("torch")

FILES = Path(__file__).parent / "files"
RIGHT = {
    "tuple_cache": "handed over",
    "cache_object": "handed over",
    "own_buffers": "kept by itself",
    "start_pos": "kept by itself",
    "input_pos": "kept by itself",
    "ring_buffer": "handed over",
    "step_function": "handed over",
    "with_kvcache": "handed over",
    "alibi_dict": "handed over",
    "moving_window": "kept by itself",
    "normed_keys": "handed over",
    "lists_of_other_names": "kept by itself",
}


@dataclass(frozen=True)
class Plant:
    """A file with some of its text replaced, and the fault that this makes."""

    fault: str
    file: str
    edits: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.fault} in {self.file}"

    def __call__(self) -> str:
        source = (FILES / f"{self.file}.py").read_text()
        for old, new in self.edits:
            assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {self.file}"
            source = source.replace(old, new)
        return source


def plant(fault: str, file: str, *edits: tuple[str, str]) -> Plant:
    return Plant(fault, file, edits)


CAT_K = "k = torch.cat((past_k, k), dim=2)"
CAT_V = "v = torch.cat((past_v, v), dim=2)"
PRESENT = "present = (k, v) if use_cache else None"
GROWN = "self.cache_k = torch.cat([self.cache_k, keys_new], dim=1)"
GROWN_V = "self.cache_v = torch.cat([self.cache_v, values_new], dim=1)"
MOVED_ON = "self.ptr_current_pos += query_len"
WRITTEN = "self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk"
WRITTEN_V = "self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv"
READ = "keys = self.cache_k[:bsz, : start_pos + seqlen]"
READ_V = "values = self.cache_v[:bsz, : start_pos + seqlen]"

PLANTS = [
    plant("causal-corner", "tuple_cache", ("self.bias[past : past + tokens, ", "self.bias[:tokens, ")),
    plant(
        "causal-missing", "tuple_cache", ("att = att.masked_fill(~seen,", "att = att.masked_fill(~seen & (past == 0),")
    ),
    plant(
        "cache-order",
        "tuple_cache",
        (CAT_K, CAT_K.replace("past_k, k)", "k, past_k)")),
        (CAT_V, CAT_V.replace("past_v, v)", "v, past_v)")),
    ),
    plant("cache-order", "tuple_cache", (CAT_V, CAT_V.replace("past_v, v)", "v, past_v)"))),
    plant("cache-order", "tuple_cache", (CAT_K, CAT_K.replace("past_k, k)", "k, past_k)"))),
    plant(
        "causal-corner",
        "tuple_cache",
        (
            "self.bias[past : past + tokens, : past + tokens]",
            "torch.cat([self.bias[:tokens, :tokens], torch.ones(tokens, past).bool()], dim=1)",
        ),
    ),
    plant(
        "cache-not-appended",
        "tuple_cache",
        (PRESENT, "present = (k[:, :, -tokens:], v[:, :, -tokens:])"),
        (
            "self.bias[past : past + tokens, : past + tokens]",
            "torch.cat([torch.ones(tokens, past).bool(), self.bias[:tokens, :tokens]], dim=1)",
        ),
    ),
    plant(
        "cache-other-sequence",
        "tuple_cache",
        ("past_k, past_v = layer_past", "past_k, past_v = (one.roll(1, 0) for one in layer_past)"),
    ),
    plant("scale-missing", "tuple_cache", (" / self.head_dim**0.5", " / (self.head_dim**0.5 if past == 0 else 1)")),
    plant("scale-missing", "tuple_cache", (" / self.head_dim**0.5", "")),
    plant("scale-missing", "tuple_cache", (" / self.head_dim**0.5", " / (self.head_dim**0.5 if past else 1)")),
    plant("value-is-key", "tuple_cache", (CAT_V, "v = torch.cat((past_v, k[:, :, past:]), dim=2)")),
    plant(
        "rope-offset-lost",
        "cache_object",
        ("start = len(cache) if cache is not None else 0", "start = 0"),
        ("<= positions[:, None]", "<= positions[:, None] + k.shape[2] - t"),
    ),
    plant(
        "rope-offset-lost", "cache_object", ("q, k = apply_rope(q, positions)", "q, k = apply_rope(q, torch.arange(t))")
    ),
    plant("rope-offset-lost", "cache_object", ("apply_rope(k, positions)", "apply_rope(k, torch.arange(t))")),
    plant(
        "rope-offset-shifted",
        "cache_object",
        ("positions = torch.arange(start, start + t)", "positions = torch.arange(start, start + t) + (start > 0)"),
        ("<= positions[:, None]", "<= torch.arange(start, start + t)[:, None]"),
    ),
    plant(
        "rope-applied-twice",
        "cache_object",
        (
            "k, v = cache.update(k, v)",
            "k, v = cache.update(k, v)\n            cache.key = apply_rope(k, torch.arange(k.shape[2]))",
        ),
    ),
    plant(
        "rope-cache-unturned",
        "cache_object",
        (
            "q, k = apply_rope(q, positions), apply_rope(k, positions)",
            "q, raw, k = apply_rope(q, positions), k, apply_rope(k, positions)",
        ),
        (
            "k, v = cache.update(k, v)",
            "all_raw, v = cache.update(raw, v)\n            k = torch.cat([all_raw[:, :, :start], k], dim=2)",
        ),
    ),
    plant(
        "cache-token-missing",
        "cache_object",
        (
            "k, v = cache.update(k, v)",
            "k, v = cache.update(k, v)\n            k, v = (k[:, :, 1:], v[:, :, 1:]) if start else (k, v)",
        ),
        ("mask = torch.arange(k.shape[2])[None, :]", "mask = torch.arange(start + t - k.shape[2], start + t)[None, :]"),
    ),
    plant(
        "cache-token-doubled",
        "cache_object",
        (
            "k, v = cache.update(k, v)",
            "new_k, new_v = k, v\n            k, v = cache.update(k, v)\n"
            "            if start:\n"
            "                k, v = torch.cat([k, new_k], dim=2), torch.cat([v, new_v], dim=2)",
        ),
        (
            "mask = torch.arange(k.shape[2])[None, :] <= positions[:, None]",
            "places = torch.cat([torch.arange(start + t), positions])[: k.shape[2]]\n"
            "        mask = places[None, :] <= positions[:, None]",
        ),
    ),
    plant(
        "cache-other-sequence",
        "own_buffers",
        ("    def reset_cache(self):", "    def reset_cache(self):\n        return"),
    ),
    plant("causal-corner", "own_buffers", (MOVED_ON, "pass")),
    plant(
        "cache-not-appended",
        "own_buffers",
        (GROWN, "self.cache_k = self.cache_k"),
        (GROWN_V, "pass"),
        (
            "keys, values = self.cache_k, self.cache_v",
            "keys, values = self.cache_k, self.cache_v\n"
            "            if self.ptr_current_pos:\n"
            "                keys = torch.cat([keys, keys_new], 1)\n"
            "                values = torch.cat([values, values_new], 1)",
        ),
        (
            "mask_bool = self.mask.bool()[self.ptr_current_pos : self.ptr_current_pos + query_len, :key_len]",
            "before = key_len - query_len\n"
            "            mask_bool = self.mask.bool()[before : before + query_len, :key_len]",
        ),
    ),
    plant(
        "cache-slot-overwritten",
        "start_pos",
        (WRITTEN, "at = max(start_pos - 1, 0)\n        self.cache_k[:bsz, at : at + seqlen] = xk"),
        (WRITTEN_V, "self.cache_v[:bsz, at : at + seqlen] = xv"),
    ),
    plant(
        "cache-slot-overwritten",
        "start_pos",
        (WRITTEN, WRITTEN.replace("start_pos : start_pos + ", ": ")),
        (WRITTEN_V, WRITTEN_V.replace("start_pos : start_pos + ", ": ")),
    ),
    plant(
        "cache-empty-slots",
        "input_pos",
        (
            "mask = self.causal_mask[None, None, input_pos]",
            "slots = torch.arange(self.max_seq_length)\n"
            "        mask = self.causal_mask[None, None, input_pos] | (slots > input_pos[-1])",
        ),
    ),
    plant(
        "cache-empty-slots",
        "input_pos",
        (
            "mask = self.causal_mask[None, None, input_pos]",
            "mask = self.causal_mask[None, None, input_pos] | (x.shape[1] == 1)",
        ),
    ),
    plant(
        "cache-evicted-positions",
        "ring_buffer",
        (
            "q, k = rotate(q, new_positions), rotate(k, new_positions)",
            "kept = min(start, self.window) + torch.arange(t)\n        q, k = rotate(q, kept), rotate(k, kept)",
        ),
    ),
    plant("window-off-by-one", "ring_buffer", ("(distance < self.window)", "(distance < self.window - (start > 0))")),
    plant(
        "causal-missing",
        "step_function",
        (
            "scores = np.where(hidden, -np.inf, scores)",
            'scores = np.where(hidden & ("k" not in cache), -np.inf, scores)',
        ),
    ),
    plant("causal-corner", "step_function", ("k=k_len - q_len + 1", "k=1")),
    plant(
        "cache-other-sequence",
        "with_kvcache",
        ("keys = k_cache[b, : held + new]", "keys = torch.cat([k_cache[0, :held], k[b]])"),
        ("values = v_cache[b, : held + new]", "values = torch.cat([v_cache[0, :held], v[b]])"),
    ),
    plant(
        "cache-token-missing",
        "with_kvcache",
        ("held = int(cache_seqlens[b])\n", "held = int(cache_seqlens[b])\n        first = int(held > 0)\n"),
        ("k_cache[b, : held + new]", "k_cache[b, first : held + new]"),
        ("v_cache[b, : held + new]", "v_cache[b, first : held + new]"),
        (
            "torch.ones(new, held + new, dtype=torch.bool).tril(held)",
            "torch.ones(new, held + new, dtype=torch.bool).tril(held)[:, first:]",
        ),
    ),
    plant(
        "bias-dropped-in-decode",
        "alibi_dict",
        ("scores = scores + bias", "scores = scores + (bias if not past else 0)"),
    ),
    plant(
        "bias-offset-lost",
        "alibi_dict",
        ("query_at = torch.arange(past, past + t)[:, None]", "query_at = torch.arange(t)[:, None]"),
        ("seen = key_at <= query_at", "seen = key_at <= query_at + past"),
    ),
    plant(
        "cache-evicted-by-chunk",
        "moving_window",
        ("self.keys[:, :, -(self.window - 1 + t) :]", "self.keys[:, :, -self.window :]"),
        ("self.values[:, :, -(self.window - 1 + t) :]", "self.values[:, :, -self.window :]"),
    ),
    plant("window-missing", "moving_window", ("& (distance < self.window)", "")),
    plant("cache-other-sequence", "lists_of_other_names", ("        self.looked_up.clear()\n", "")),
    plant("cache-not-appended", "lists_of_other_names", ("if use_cache:", "if use_cache and t > 1:")),
    plant("padding-off-by-one", "filled_caches", ("< cache_seqlens[:, None]", "<= cache_seqlens[:, None]")),
    plant("padding-missing", "filled_caches", ('scores.masked_fill(~valid[:, None, None], float("-inf"))', "scores")),
    plant("cache-key-value-swapped", "tuple_cache", ("past_k, past_v = layer_past", "past_v, past_k = layer_past")),
    plant("cache-pointer-by-calls", "own_buffers", (MOVED_ON, "self.ptr_current_pos += 1")),
    plant("cache-other-sequence", "own_buffers", ("        self.cache_k, self.cache_v = None, None\n", "")),
    plant(
        "cache-other-sequence",
        "own_buffers",
        (
            "        self.cache_k, self.cache_v = None, None\n        self.ptr_current_pos = 0",
            "        self.cache_k, self.cache_v = 0 * self.cache_k, 0 * self.cache_v",
        ),
    ),
    plant(
        "cache-slot-overwritten",
        "start_pos",
        (WRITTEN_V, WRITTEN_V.replace("start_pos : start_pos + ", "max(start_pos - 1, 0) : max(start_pos - 1, 0) + ")),
    ),
    plant(
        "cache-token-missing",
        "moving_window",
        ("self.keys[:, :, -(self.window - 1 + t) :]", "self.keys[:, :, -(self.window - 2 + t) :]"),
        ("self.values[:, :, -(self.window - 1 + t) :]", "self.values[:, :, -(self.window - 2 + t) :]"),
    ),
    plant(
        "qk-norm-missing",
        "normed_keys",
        ("k = self.k_norm(torch.cat((past_k, k), dim=2))", "k = torch.cat((past_k, k), dim=2)"),
    ),
]


Judge = Callable[[str], Any]


@pytest.fixture(scope="module")
def judged() -> Iterator[Judge]:
    """Judges in a process of its own, which is the same for all tests."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        yield lambda target: process.submit(cache_judging.judged, target).result(timeout=300)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_attention_with_a_cache_is_right(name: str, judged: Judge) -> None:
    judgement = judged(str(FILES / f"{name}.py"))
    assert judgement.verdict == "right", judgement
    assert RIGHT[name] in judgement.cache
    assert "was used" in judgement.cache


LAYERS = ("CausalLlama", "CausalQwen2", "WindowedMistral", "WindowedGemma2")


@pytest.mark.parametrize("name", LAYERS)
def test_an_attention_of_transformers_is_right_with_its_cache(name: str, judged: Judge) -> None:
    pytest.importorskip("transformers")
    judgement = judged(str(FILES / f"transformers_layers.py:{name}"))
    assert judgement.verdict == "right", judgement
    assert "was used" in judgement.cache


@pytest.mark.parametrize("planted", thinned(PLANTS, 5))
def test_a_fault_of_the_cache_is_named(planted: Plant, tmp_path: Path, judged: Judge) -> None:
    file = tmp_path / f"{planted.file}.py"
    file.write_text(planted())
    judgement = judged(str(file))
    assert judgement.verdict == "wrong", judgement
    assert judgement.faults == [planted.fault], judgement


def test_numbers_that_nothing_explains_are_wrong_where_other_splits_are_right(tmp_path: Path, judged: Judge) -> None:
    late = "att = att.masked_fill(~seen,"
    planted = plant(
        "", "tuple_cache", (late, f"att = att * (1 + (past > 5) * torch.arange(att.shape[-1]) / 9)\n        {late}")
    )
    file = tmp_path / "tuple_cache.py"
    file.write_text(planted())
    judgement = judged(str(file))
    assert judgement.verdict == "wrong", judgement
    assert judgement.faults == []
    assert "with its cache at other places" in judgement.why


LEFT_ALONE = {
    "filled_caches": ("right", ""),
    "masks_kept": ("right", "was not used: it keeps no keys and values"),
    "cache_unused": ("right", "was not used: the call leaves nothing"),
    "one_token_apart": ("undecided", "was used"),
    "cross_cached": ("right", ""),
    "weights_kept": ("right", ""),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_no_cache_or_not_meant_so_is_not_called_wrong(name: str, judged: Judge) -> None:
    judgement = judged(str(FILES / f"{name}.py"))
    verdict, said = LEFT_ALONE[name]
    assert judgement.verdict == verdict, judgement
    assert said in judgement.cache
