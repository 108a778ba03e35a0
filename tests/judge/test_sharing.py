"""Key/value heads that are shared: a function that takes fewer of them is held to it, and no other one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qkv.debugger import check
from qkv.report import Report, Verdict

TEXT = """import os
import numpy as np


def attend(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def attention(q, k, v):
    \"\"\"Every query sees all keys. Arrays are (batch, head, token, dim).\"\"\"
    H, KV = q.shape[1], k.shape[1]
    out = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for b in range(len(q)):
        {loop}
    return out
"""


def judged(folder: Path, loop: str, spec: dict[str, Any] | None = None) -> Report:
    path = folder / "candidate.py"
    path.write_text(TEXT.format(loop=loop))
    return check(f"{path}:attention", spec)


EACH = "for h in range(H): "
SHARED = {
    "in runs": (EACH + "out[b, h] = attend(q[b, h], k[b, h * KV // H], v[b, h * KV // H])", None),
    "in turn": (EACH + "out[b, h] = attend(q[b, h], k[b, h % KV], v[b, h % KV])", "kv-heads-tiled"),
    "in turn, of values": (EACH + "out[b, h] = attend(q[b, h], k[b, h * KV // H], v[b, h % KV])", None),
}


@pytest.mark.parametrize("way", SHARED)
def test_what_takes_fewer_key_value_heads_is_held_to_sharing_them(way: str, tmp_path: Path) -> None:
    loop, fault = SHARED[way]
    report = judged(tmp_path, loop)
    assert report.verdict == (Verdict.RIGHT if way == "in runs" else Verdict.WRONG)
    assert any("6 query heads over 2 key/value heads, shared in runs" in one for one in report.assumptions)
    if fault is not None:
        assert [one.id for one in report.faults] == [fault]


OWN = {
    "raises": EACH + "out[b, h] = attend(q[b, h], k[b, h], v[b, h])",
    "leaves heads out": "for h, (key, value) in enumerate(zip(k[b], v[b])): out[b, h] = attend(q[b, h], key, value)",
    "cuts what it has into as many as it needs": EACH
    + "keys = k.reshape(len(q), H, -1, k.shape[3])[b, h]; "
    + "out[b, h] = attend(q[b, h], keys, v.reshape(len(q), H, -1, v.shape[3])[b, h])",
    "ends its process": EACH + "H == KV or os.abort(); out[b, h] = attend(q[b, h], k[b, h], v[b, h])",
}


@pytest.mark.parametrize("way", OWN)
def test_what_has_a_key_value_head_for_each_head_stays_right(way: str, tmp_path: Path) -> None:
    report = judged(tmp_path, OWN[way])
    assert report.verdict is Verdict.RIGHT
    assert report.spec.num_kv_heads is None


def test_a_number_of_heads_that_was_said_is_meant(tmp_path: Path) -> None:
    assert judged(tmp_path, SHARED["in turn"][0], {"num_heads": 4}).verdict is Verdict.RIGHT
