"""What a loop counts: the numbers of another head, token or row are told and mended where nothing else tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.adapters.process import HostProcess
from qkv.adapters.texts import text_of
from qkv.repair import explained_and_mended
from qkv.report import Verdict
from qkv.report.anatomy import Anatomy

TOKENS = """\
import numpy as np
rng = np.random.default_rng(1)
x = rng.normal(size=(3, 5))
W_q, W_k, W_v = (rng.normal(size=(5, 2)) for _ in range(3))
queries, keys, values = x @ W_q, x @ W_k, x @ W_v
scores = np.zeros((3, 3))
for i in range(3):
    for j in range(3):
        scores[i, j] = queries[i] @ keys[j] / 2**0.5
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
context = np.zeros((3, 2))
for i in range(3):
    for j in range(3):
        context[i] += weights[i, j] * values[j]
"""

HEADS = """\
import numpy as np
rng = np.random.default_rng(2)
num_heads, num_kv_heads, head_dim = 4, 2, 3
x = rng.normal(size=(5, 6))
queries = (x @ rng.normal(size=(6, 12))).reshape(5, 4, 3).transpose(1, 0, 2)
keys = (x @ rng.normal(size=(6, 6))).reshape(5, 2, 3).transpose(1, 0, 2)
values = (x @ rng.normal(size=(6, 6))).reshape(5, 2, 3).transpose(1, 0, 2)
group_size = num_heads // num_kv_heads
contexts = []
for h in range(num_heads):
    scores = queries[h] @ keys[h // group_size].T / head_dim**0.5
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    contexts.append(weights @ values[h // group_size])
output = np.concatenate(contexts, axis=-1)
"""

LISTS = """\
import math
inputs = [[1.0, 0.2, 0.0], [0.3, 0.9, 0.5], [0.1, 0.4, 1.1], [0.7, 0.1, 0.2]]
scores = [[sum(a * b for a, b in zip(query, key)) for key in inputs] for query in inputs]
weights = [[math.exp(one) / sum(map(math.exp, row)) for one in row] for row in scores]
context = [[sum(w * v[d] for w, v in zip(row, inputs)) for d in range(3)] for row in weights]
"""

SLIPS = {
    "the value of the query's token": (TOKENS, "* values[j]", "* values[i]", "other-index", 14),
    "the key of the query's token": (TOKENS, "@ keys[j]", "@ keys[i]", "other-index", 9),
    "one token for all": (TOKENS, "@ keys[j]", "@ keys[0]", "other-index", 9),
    "a head that does not exist": (HEADS, "keys[h // group_size]", "keys[h]", "kv-heads-tiled", 11),
    "values of no such head": (HEADS, "values[h // group_size]", "values[h]", "kv-heads-tiled", 13),
    "heads in turn": (HEADS, "values[h // group_size]", "values[h % num_kv_heads]", "kv-heads-tiled", 13),
    "a head for all": (HEADS, "values[h // group_size]", "values[0]", "kv-head-divisor", 13),
    "rows of lists": (LISTS, "zip(query, key)) for", "zip(query, query)) for", "other-index", 3),
}
SLOW = [pytest.mark.slow]
"""Lists are held against every fault of the catalogue."""


def found(source: str, host: HostProcess, folder: Path, seconds: float = 9.0) -> Anatomy:
    (file := folder / "mine.py").write_text(source)
    return explained_and_mended(text_of(str(file)), host, "", seconds)


@pytest.mark.parametrize(
    ("right", "old", "new", "fault", "line"),
    [pytest.param(*slip, id=name, marks=SLOW if slip[0] == LISTS else []) for name, slip in SLIPS.items()],
)
def test_another_index_is_mended(
    right: str, old: str, new: str, fault: str, line: int, host: HostProcess, tmp_path: Path
) -> None:
    anatomy = found(right.replace(old, new), host, tmp_path)
    report = anatomy.report
    assert report.line is not None
    assert report.patch is not None
    assert report.line.line == report.patch.line == line
    assert (report.verdict, [one.id for one in report.faults]) == (Verdict.WRONG, [fault])
    again = found(report.patch.edited.decode(), host, tmp_path, 0).report
    assert again.verdict is Verdict.RIGHT
    assert [one.line for one in anatomy.lines if one.mark == "wrong"] == [line]


@pytest.mark.parametrize("source", [TOKENS, HEADS, LISTS], ids=["tokens", "heads", "lists"])
def test_what_these_were_made_of_is_right(source: str, host: HostProcess, tmp_path: Path) -> None:
    assert found(source, host, tmp_path).report.verdict is Verdict.RIGHT


def test_context_vectors_that_are_no_mix_are_not_right(host: HostProcess, tmp_path: Path) -> None:
    source = (
        TOKENS.replace("weights[i, j] * values[j]", "weights[i, j] * values[j] ** 2") + "right = weights @ values\n"
    )
    report = found(source, host, tmp_path, 0).report
    assert report.verdict is Verdict.UNDECIDED
    assert (
        report.why == "context is made of weights and values, and is not the sum of all values, each times its weight"
    )
