"""Tiny attentions on which every kind of fault can be shown: three or four tokens, a few short numbers each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from qkv.oracle import Inputs, Linear, Norm, Parameters, Run, run_stages
from qkv.spec import AttentionSpec, spec_from_mapping

SMALL: Mapping[str, Any] = {"num_heads": 1, "head_dim": 2}
TWO_HEADS: Mapping[str, Any] = {"num_heads": 2, "head_dim": 2}
GROUPED: Mapping[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 2}
ROPE: Mapping[str, Any] = {"num_heads": 1, "head_dim": 4, "rope": {"pairing": "halves"}}
YARN: Mapping[str, Any] = {"pairing": "halves", "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 4}}
PROJECTED: Mapping[str, Any] = {**TWO_HEADS, "embed_dim": 4, "out_proj": True, "projection_bias": True}


@cache
def tiny_runs() -> tuple[Run, ...]:
    """Right runs of the oracle, the plainest first: a fault is shown on the first one on which it shows."""
    with np.errstate(all="ignore"):
        return tuple(run_stages(spec, inputs) for spec, inputs in _cases())


def _cases() -> Iterator[tuple[AttentionSpec, Inputs]]:
    yield _given(SMALL)
    yield _given({**SMALL, "causal": True})
    yield _given(TWO_HEADS)
    yield _given({**SMALL, "scale": 1.0})
    yield _given({**TWO_HEADS, "head_dim": 4})
    yield _given(GROUPED)
    yield from (_given({**fields, "causal": True}) for fields in (TWO_HEADS, GROUPED, ROPE))
    yield _projected(PROJECTED)
    yield _projected({**PROJECTED, "causal": True})
    yield _projected({**PROJECTED, "projection_bias": False}, fused=True)
    yield _projected(PROJECTED, source=3)
    yield from _of_positions()
    for norm in ("head", "width"):
        yield _projected({**PROJECTED, "qk_norm": norm}, norm=norm)
        yield _projected({**PROJECTED, "qk_norm": norm, "rope": {"pairing": "halves"}}, norm=norm)
    yield from _of_masks()
    yield from _of_calls()


def _of_positions() -> Iterator[tuple[AttentionSpec, Inputs]]:
    yield _given(ROPE)
    yield _given({**ROPE, "num_heads": 2})
    yield _given({**ROPE, "num_heads": 4, "num_kv_heads": 2})
    yield _given({**ROPE, "causal": True}, queries=2)
    yield _given({**ROPE, "rope": {"pairing": "adjacent", "dims": 2}})
    yield _given({**ROPE, "head_dim": 6, "rope": {"pairing": "halves", "dims": 4}})
    yield _given({**ROPE, "rope": YARN})
    yield _given({**SMALL, "softcap": 2.0})
    yield _given({**SMALL, "softcap": 2.0, "causal": True})
    yield _given({**TWO_HEADS, "alibi": True, "causal": True})
    yield _given({**SMALL, "softcap": 2.0}, bias=_numbers("bias", 1, 1, 3, 3))
    yield _given({**TWO_HEADS, "alibi": True, "causal": True}, queries=2)
    yield _given({**GROUPED, "alibi": True, "causal": True})
    yield _given({**SMALL, "sinks": True}, sinks=np.array([0.5]))
    yield _given({**TWO_HEADS, "sinks": True}, sinks=np.array([0.5, -1.0]))


def _of_masks() -> Iterator[tuple[AttentionSpec, Inputs]]:
    documents, real = np.array([[0, 0, 1, 1]]), np.array([[True, True, False], [True, True, True]])
    yield _given({**SMALL, "causal": True}, queries=2)
    yield _given({**SMALL, "causal": True, "window": 2}, tokens=4)
    yield _given({**SMALL, "window": 2}, tokens=4)
    yield _given({**SMALL, "mask": "causal | prefix(2)"}, tokens=4)
    yield _given({**SMALL, "documents": True, "causal": True}, tokens=4, document=documents)
    yield _given(SMALL, batch=2, is_token=real)
    yield _given({**SMALL, "causal": True}, tokens=4, queries=2)
    yield _given({**SMALL, "causal": True, "empty_row": "zero"}, tokens=2, queries=3)
    yield _given({**SMALL, "causal": True}, tokens=8)
    yield _given({**SMALL, "causal": True, "window": 3}, tokens=8)


def _of_calls() -> Iterator[tuple[AttentionSpec, Inputs]]:
    """A sequence that comes bit by bit, behind another one."""
    bias = {"bias": _numbers("bias", 1, 1, 4, 4)}
    for fields in (SMALL, ROPE, {**SMALL, "window": 2}, {**ROPE, "window": 2}, {**TWO_HEADS, "alibi": True}):
        yield _in_calls(fields, (2, 1, 1))
    yield _in_calls(SMALL, (2, 1, 1), **bias)
    yield _in_calls({**SMALL, "window": 2}, (2, 2))


def _in_calls(fields: Mapping[str, Any], steps: tuple[int, ...], **extra: Any) -> tuple[AttentionSpec, Inputs]:
    causal = {**fields, "causal": True}
    (spec, inputs), (_, earlier) = _given(causal, tokens=4, **extra), _given(causal, tokens=4, draw=1)
    return spec, replace(inputs, steps=steps, earlier=replace(earlier, steps=steps))


def _given(
    fields: Mapping[str, Any], *, tokens: int = 3, queries: int | None = None, batch: int = 1, draw: int = 0,
    **extra: Any,
) -> tuple[AttentionSpec, Inputs]:  # fmt: skip
    spec = spec_from_mapping(fields)
    heads, kv_heads, dim = spec.num_heads, spec.kv_heads, spec.head_dim
    rows = tokens if queries is None else queries
    query = _numbers(f"query {draw}", batch, heads, rows, dim)
    key = _numbers(f"key {draw}", batch, kv_heads, tokens, dim)
    value = _numbers(f"value {draw}", batch, kv_heads, tokens, dim)
    return spec, Inputs(query=query, key=key, value=value, strided=True, **extra)


def _projected(
    fields: Mapping[str, Any], *, fused: bool = False, norm: str = "", source: int = 0
) -> tuple[AttentionSpec, Inputs]:
    spec = spec_from_mapping(fields)
    width = spec.num_heads * 2
    q, k, v, out = (_linear(name, width, spec.projection_bias) for name in ("q", "k", "v", "out"))
    joined = Linear(np.concatenate([one.weight for one in (q, k, v)])) if fused else None
    norms = {}
    if norm:
        size = 2 if norm == "head" else width
        norms = {name: Norm(weight=_numbers(name, size) + 1) for name in ("q_norm", "k_norm")}
    x = _numbers("x", 1, 3, width)
    elsewhere = {"source": _numbers("source", 1, source, width)} if source else {}
    return spec, Inputs(x=x, parameters=Parameters(q, k, v, out, fused=joined, **norms), **elsewhere)


def _linear(name: str, width: int, bias: bool) -> Linear:
    return Linear(_numbers(name, width, width), _numbers(f"{name} bias", width) if bias else None)


def _numbers(name: str, *shape: Any) -> Any:
    """Short numbers: halves and whole ones, the same for the same name."""
    return np.round(2 * np.random.default_rng([*name.encode()]).normal(size=shape)) / 2 + 0.0
