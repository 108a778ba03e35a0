"""Kernels that are right at ordinary sizes: the sweep finds where they are wrong, and says no rule that isn't so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv.size_sweep
from qkv.cli.check import text_of
from qkv.debugger import check
from qkv.report import Report, Verdict, to_json
from thinned import thinned

Array = Any


@pytest.fixture(autouse=True)
def _no_hurry(unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qkv.size_sweep, "SECONDS", 30.0)


def attend(query: Array, key: Array, value: Array) -> Array:
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def tile_of_48_dropped(query: Array, key: Array, value: Array) -> Array:
    whole = max(key.shape[-2] // 48, 1) * 48
    return attend(query, key[..., :whole, :], value[..., :whole, :])


def tail_filled_up(query: Array, key: Array, value: Array) -> Array:
    """Lanes of 64; short inputs take another path."""
    lanes = -key.shape[-2] % 64 if key.shape[-2] > 40 else 0
    room = [(0, 0)] * (key.ndim - 2) + [(0, lanes), (0, 0)]
    return attend(query, np.pad(key, room), np.pad(value, room))


def registers_for_128(query: Array, key: Array, value: Array) -> Array:
    scores = query[..., :128] @ key[..., :128].swapaxes(-1, -2) / query.shape[-1] ** 0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ value


def rows_in_blocks_of_64(query: Array, key: Array, value: Array) -> Array:
    out = np.zeros((*query.shape[:-1], value.shape[-1]), dtype=query.dtype)
    for row in range(0, max(query.shape[-2] // 64, 1) * 64, 64):
        out[..., row : row + 64, :] = attend(query[..., row : row + 64, :], key, value)
    return out


def third_sequence_reads_the_first(query: Array, key: Array, value: Array) -> Array:
    if query.ndim == 4 and query.shape[0] > 2:
        key = np.concatenate([key[:2], key[:1], key[3:]])
    return attend(query, key, value)


def stride_of_the_batch_taken_for_granted(query: Array, key: Array, value: Array) -> Array:
    return attend(query, key, value * 0.5 if value.strides[0] == 0 and value.shape[0] > 1 else value)


def more_queries_cut(query: Array, key: Array, value: Array) -> Array:
    out = attend(query, key, value)
    out[..., key.shape[-2] :, :] = 0.0
    return out


def rows_together(query: Array, key: Array, value: Array) -> Array:
    """Blocks of 24 keys; a lone row has no other one to be mixed up with."""
    return attend(query, key, value * 1.1 if key.shape[-2] > 24 and query.shape[-2] > 1 else value)


def later_scores(query: Array, key: Array, value: Array) -> Array:
    """Wrong with some numbers only: where the largest score lies behind key 40; rules of this kind know blocks only."""
    scores = query @ key.swapaxes(-1, -2)
    late = scores[..., 40:].max(-1, initial=-np.inf) > scores[..., :40].max(-1)
    return np.where(late[..., None], 1.02, 1.0) * attend(query, key, value)


def online(query: Array, key: Array, value: Array) -> Array:
    """Blocks of 64 whose context is not rescaled when the maximum moves."""
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    top, total, acc = -np.inf, 0.0, 0.0
    for start in range(0, key.shape[-2], 64):
        block = scores[..., start : start + 64]
        new = np.maximum(top, block.max(-1, keepdims=True))
        shares = np.exp(block - new)
        total = total * np.exp(top - new) + shares.sum(-1, keepdims=True)
        top, acc = new, acc + shares @ value[..., start : start + 64, :]
    return acc / total


WRONG: dict[Callable[..., Any], tuple[str, str | None]] = {
    tile_of_48_dropped: ("key_len > 48 and key_len is no multiple of 48", None),
    tail_filled_up: ("key_len > 40 and key_len is no multiple of 64", "tail-block"),
    registers_for_128: ("head_dim > 128", None),
    rows_in_blocks_of_64: ("query_len > 64 and query_len is no multiple of 64", None),
    third_sequence_reads_the_first: ("batch > 2", None),
    stride_of_the_batch_taken_for_granted: ("the arrays are expanded", "quantised-scale"),
    rows_together: ("query_len > 1 and key_len > 24", None),
    later_scores: ("key_len > 32", None),
    more_queries_cut: ("query_len > key_len", None),
    online: ("key_len > 64", "online-softmax-max"),
}


@pytest.mark.parametrize("candidate", thinned(WRONG, 3, ids=lambda candidate: candidate.__name__))
def test_the_rule_for_where_it_is_wrong_is_found(candidate: Callable[..., Any]) -> None:
    rule, fault = WRONG[candidate]
    report = check(candidate)
    assert (report.verdict, report.only_when) == (Verdict.WRONG, rule)
    assert report.first_disagreement is not None
    if fault is not None:
        assert fault in [named.id for named in report.faults]
    assert f'"only_when": "{rule}"' in to_json(report)
    assert f"only when {rule}" in text_of(report, "text")


def test_a_fault_at_sizes_without_a_rule_is_wrong_without_one() -> None:
    def by_chance(query: Array, key: Array, value: Array) -> Array:
        return attend(query, key, value * 2 if key.shape[-2] > 40 and hash(key.shape) % 3 == 0 else value)

    report = check(by_chance)
    assert (report.verdict, report.only_when) == (Verdict.WRONG, None)


def test_what_is_right_at_every_size_stays_right_and_says_how_many_it_ran_at() -> None:
    report = check(attend)
    assert (report.verdict, report.only_when) == (Verdict.RIGHT, None)
    assert int(sizes_of(report).note.split()[0]) > 100


def test_a_candidate_that_refuses_sizes_is_right_where_it_runs() -> None:
    def strict(query: Array, key: Array, value: Array) -> Array:
        if query.shape[-1] % 8:
            raise ValueError("head_dim must be a multiple of 8")
        return attend(query, key, value)

    report = check(strict)
    assert report.verdict is Verdict.RIGHT
    refused = next(probe for probe in report.probes if probe.name == "some sizes")
    assert refused.agrees is None
    assert refused.note.startswith("head_dim 20: ")
    assert "must be a multiple of 8" in refused.note


def test_a_slow_candidate_is_tried_at_fewer_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qkv.size_sweep, "SECONDS", 0.02)
    assert int(sizes_of(check(attend)).note.split()[0]) < 100


def test_what_is_wrong_everywhere_is_not_swept() -> None:
    report = check(lambda query, key, value: attend(3 * query, key, value), {"num_heads": 2})
    assert (report.verdict, report.only_when) == (Verdict.WRONG, None)
    assert [probe for probe in report.probes if probe.name == "size"] == []


def test_a_kernel_that_crashes_at_a_size_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(
        "import ctypes\nimport numpy as np\n\n\ndef kernel(query, key, value):\n"
        "    if key.shape[-2] > 40:\n        ctypes.string_at(0)\n"
        "    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5\n"
        "    shares = np.exp(scores - scores.max(-1, keepdims=True))\n"
        "    return shares / shares.sum(-1, keepdims=True) @ value\n"
    )
    report = check(f"{file}:kernel")
    assert report.verdict is Verdict.WRONG
    assert "right wherever it ran" in report.why
    assert "SIGSEGV" in report.why


def sizes_of(report: Report) -> Any:
    return next(probe for probe in report.probes if probe.name == "size")


LONG_TAIL = '''import numpy as np


def attention(q, k, v):
    """Every query sees all keys. Arrays are (B, H, T, D)."""
    full = k.shape[2] // 64 * 64
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if k.shape[2] > 64:
        s[..., full:] = s[..., full:] * 0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v
'''


@pytest.mark.slow
def test_what_is_wrong_at_some_sizes_only_is_watched_at_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(LONG_TAIL)
    report = check(f"{path}:attention")
    assert report.line is not None
    assert report.line.line == 9
