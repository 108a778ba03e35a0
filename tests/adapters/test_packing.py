"""Texts packed into one sequence, whose boundaries a kernel is given: it is read, judged, and its faults are named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.packing import boundaries, tokens_of_texts
from qkv.debugger import check
from qkv.oracle import Inputs
from qkv.spec import AttentionSpec

Array = Any


def inputs(query_len: int, key_len: int, document: list[int] | None = None, batch: int = 1) -> Inputs:
    given = None if document is None else np.array([document])
    shape = (batch, 1, query_len, 2)
    return Inputs(query=np.ones(shape), key=np.ones((batch, 1, key_len, 2)), value=np.ones((batch, 1, key_len, 2)),
                  document=given)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "queries", "keys"),
    [
        (inputs(3, 5), [3], [5]),
        (inputs(5, 5, [4, 4, 1, 1, 1]), [2, 3], [2, 3]),
        (inputs(2, 5, [0, 0, 0, 1, 1]), [0, 2], [3, 2]),
        (inputs(3, 5, [0, 0, 0, 1, 1]), [1, 2], [3, 2]),
    ],
)
def test_texts_are_counted_for_queries_and_for_keys(given: Inputs, queries: list[int], keys: list[int]) -> None:
    counted = tokens_of_texts(AttentionSpec(), given, apart=True)
    assert [list(counts) for counts in counted] == [queries, keys]
    assert list(boundaries(counted[1])) == [0, *np.cumsum(keys)]
    assert boundaries(counted[1]).dtype == np.int32


@pytest.mark.parametrize(
    ("given", "apart"),
    [
        (inputs(5, 5, batch=2), True),
        (inputs(5, 5, [0, 1, 1, 0, 0]), True),
        (inputs(6, 5, [0, 0, 0, 1, 1]), True),
        (inputs(3, 5), False),
    ],
)
def test_what_boundaries_cannot_say_is_left_out(given: Inputs, apart: bool) -> None:
    with pytest.raises(NotApplicable):
        tokens_of_texts(AttentionSpec(), given, apart=apart)


def packed(q: Array, k: Array, v: Array, ends: list[int], key_ends: list[int]) -> Array:
    out = np.zeros((*q.shape[:2], v.shape[2]))
    for (a, z), (b, y) in zip(pairwise(ends), pairwise(key_ends), strict=True):
        scores = np.einsum("qhd,khd->hqk", q[a:z], k[b:y]) / q.shape[-1] ** 0.5
        seen = np.arange(y - b)[None] <= np.arange(z - a)[:, None] + (y - b) - (z - a)
        shares = np.exp(np.where(seen, scores, -np.inf))
        total = shares.sum(-1, keepdims=True)
        out[a:z] = np.einsum("hqk,khd->qhd", shares / np.where(total == 0, 1, total), v[b:y])
    return out


def one_array(q: Array, k: Array, v: Array, cu_seqlens: Array) -> Array:
    return packed(q, k, v, cu_seqlens.tolist(), cu_seqlens.tolist())


def two_arrays(q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array,
               max_seqlen_q: int, max_seqlen_k: int) -> Array:  # fmt: skip
    assert (np.diff(cu_seqlens_q).max(), np.diff(cu_seqlens_k).max()) == (max_seqlen_q, max_seqlen_k)
    return packed(q, k, v, cu_seqlens_q.tolist(), cu_seqlens_k.tolist())


def last_two_joined(q: Array, k: Array, v: Array, cu_seqlens: Array) -> Array:
    ends = cu_seqlens.tolist()
    ends = [*ends[:-2], ends[-1]] if len(ends) > 3 else ends
    return packed(q, k, v, ends, ends)


def not_apart(q: Array, k: Array, v: Array, cu_seqlens: Array) -> Array:
    ends = [0, int(cu_seqlens[-1])]
    return packed(q, k, v, ends, ends)


@pytest.mark.parametrize(
    ("kernel", "faults"),
    [(one_array, []), (two_arrays, []), (last_two_joined, ["documents-leak"]), (not_apart, ["documents-leak"])],
)
def test_a_packed_kernel_is_judged(kernel: Callable[..., Array], faults: list[str]) -> None:
    report = check(kernel, {"num_heads": 3, "head_dim": 8, "causal": True, "documents": True})
    assert [fault.id for fault in report.faults] == faults, report.why
    assert any(probe.name.startswith("documents 3") for probe in report.probes)


def annotated(q: Array, k: Array, v: Array, lengths_of_blocks: np.ndarray) -> Array:
    assert lengths_of_blocks.sum() == 3
    ends = [0, len(q)]
    return packed(q, k, v, ends, ends)


def test_a_list_given_for_an_argument_annotated_as_an_array_is_one() -> None:
    spec = {"num_heads": 3, "head_dim": 8, "causal": True}
    assert check(annotated, spec, call={"lengths_of_blocks": [1, 2]}, layout="THD").verdict == "right"
