"""Attention, right by construction, on the fastest path that is right."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor
from torch.nn import functional

from qkv.compute.arguments import (
    Arguments,
    EmptyRow,
    Masks,
    Options,
    Precision,
    Rows,
    read_arguments,
    read_rows,
    without_autocast,
)
from qkv.compute.composite import Attended, composite, empty_rows
from qkv.compute.operation import attend_in_graph, has_code
from qkv.compute.planning import Plan, plan_of, tiles_for, why_blockwise, why_composite
from qkv.compute.tiled import tiled
from qkv.compute.work import Work
from qkv.errors import SpecError, nearest
from qkv.masks import Mask, QueryOffset


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_lse: Literal[False] = ...,
    return_weights: Literal[False] | None = ...,
    **options: Unpack[Options],
) -> Tensor: ...
@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_lse: Literal[True],
    return_weights: Rows = ...,
    **options: Unpack[Options],
) -> tuple[Tensor, ...]: ...
@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_lse: bool = ...,
    return_weights: Rows = ...,
    **options: Unpack[Options],
) -> Tensor | tuple[Tensor, ...]: ...
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Masks = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi: bool | Tensor | Sequence[float] | None = None,
    query_offset: QueryOffset | None = None,
    dropout_p: float = 0.0,
    empty_row: EmptyRow = "zero",
    return_lse: bool = False,
    return_weights: Rows = None,
    precision: Precision = "same",
    **unknown: object,
) -> Tensor | tuple[Tensor, ...]:
    """The context vectors, ``(batch, head, query, value_dim)``; in the order of their names, what else is asked for.

    Gradients flow to query, key, value, bias and sinks, as often as wanted. A key that a mask hides must hold finite
    numbers all the same, unless it is hidden from a whole block of queries: kernels multiply it by a weight of zero.
    Autocast casts query, key and value as it does for torch's own attention, and nothing else.

    Args:
        query: ``(batch, head, query, head_dim)``; ``(batch, query, head_dim)`` and ``(query, head_dim)`` are one head.
        key: ``(batch, kv_head, key, head_dim)``. Query head ``h`` has the key head ``h // (heads / kv_heads)``.
        value: ``(batch, kv_head, key, value_dim)``.
        mask: who may attend to whom: ``qkv.causal() & qkv.window(256)``, the same as text, or booleans, True = may
            attend, that broadcast to ``(batch, head, query, key)``; or several of these, of which all have to allow it.
        bias: what is added to the scores, broadcasting likewise.
        scale: what the scores are multiplied by; None means ``1 / sqrt(head_dim)``.
        softcap: ``softcap * tanh(scores / softcap)`` in place of the scores, before anything is added.
        sinks: for each query head the score of a key that takes part in the softmax and has no value, ``(head,)``.
        alibi: True, or a slope for each query head: ``-slope * |query - key|`` is added to the scores.
        query_offset: position of the first query, keys starting at 0: a number, ``top_left`` for 0, or
            ``bottom_right``, which None means too: the last query stands at the last key.
        dropout_p: share of the weights that is set to zero, the rest being scaled up. Pass 0 in evaluation.
        empty_row: what a query gets that may attend to nothing: ``zero``, ``nan``, or ``uniform``, the mean of all
            values.
        return_lse: whether the natural log of what the weights were divided by is given too, ``(batch, head, query)``,
            the sink's share included; minus infinity for an empty row.
        return_weights: whether the weights are given too, ``(batch, head, query, key)``, before dropout. They take the
            memory that this function is there to save; the indices of some queries give the weights of these alone.
        precision: ``same`` computes scores in float32 or the query's float64; ``high`` in float64; ``low`` lets the
            matrix products round to the query's dtype, which is faster for bfloat16 on some CPUs, and less exact.
        unknown: any other is refused, with the one that is meant.

    Raises:
        ShapeError: two of them don't fit; the message names the axis.
        SpecError: a value that can't be meant, or an argument that isn't known.
    """
    _check_known(unknown)
    options = (mask, bias, scale, softcap, sinks, alibi, query_offset, dropout_p, empty_row, precision)
    if torch.compiler.is_compiling() and not _fits_a_graph(mask, return_weights):
        from qkv.compute.uncompiled import as_written  # not before: it loads torch's compiler

        made: Tensor | tuple[Tensor, ...] = as_written(_made, (query, key, value), options, return_lse, return_weights)
        return made
    return _made((query, key, value), options, return_lse, return_weights)


def _made(
    heads: tuple[Tensor, Tensor, Tensor], options: tuple[Any, ...], return_lse: bool, return_weights: Rows
) -> Tensor | tuple[Tensor, ...]:
    query, _, value = heads
    given = read_arguments(*heads, *options)
    rows = read_rows(return_weights, given)
    with without_autocast(query.device):
        attended = _attended(given, return_weights is True, return_lse)
        if rows is not None:
            weights = composite(given, rows=rows).weights
        else:
            weights = attended.weights if return_weights else None
    output = attended.output.reshape(*query.shape[:-1], value.shape[-1])
    extra: list[Tensor] = [attended.lse.reshape(query.shape[:-1])] if return_lse else []
    if weights is not None:
        extra.append(weights.reshape(*query.shape[:-2], *weights.shape[2:]))
    return (output, *extra) if extra else output


def plan(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Plan:
    """How `attend` would compute the same call. Nothing is computed.

    Args:
        query: as `attend` has it.
        key: the same.
        value: the same.
        options: what else `attend` would be given.

    Raises:
        ShapeError: as `attend` does.
        SpecError: as `attend` does.
    """
    _check_known(options.keys() - inspect.signature(attend).parameters.keys())
    weights = options.pop("return_weights", None)
    options.pop("return_lse", None)
    return plan_of(read_arguments(query, key, value, **options), weights=weights is True)


def _attended(given: Arguments, weights_wanted: bool, lse_wanted: bool) -> Attended:
    if why_composite(given, weights_wanted):
        kept = None
        if given.dropout_p:
            sizes = (given.batch, given.num_heads, given.query_len, given.key_len)
            kept = torch.rand(sizes, device=given.query.device) >= given.dropout_p
        return composite(given, kept)
    seed = torch.randint(2**62, ()) if given.dropout_p else None
    if torch.compiler.is_compiling():
        output, lse = attend_in_graph(_of_one_size(given), seed)
    else:
        fused = not why_blockwise(given)
        tiles, number = tiles_for(given, fused=fused), 0 if seed is None else int(seed)
        lse_wanted = lse_wanted or given.empty_row != "zero"
        output, lse = tiled(Work(_of_one_size(given) if fused else given, tiles, fused, lse_wanted, number))
    if output.shape[3] != given.value.shape[3]:
        output = output[..., : given.value.shape[3]]
    if given.empty_row != "zero":
        output = output.where(~empty_rows(lse)[..., None], _of_empty_rows(given))
    return Attended(output, lse)


def _fits_a_graph(mask: Masks, rows: Rows) -> bool:
    """Whether torch.compile can follow what a call says; it can't read texts, NumPy's arrays, and a user's own rule."""
    masks = mask if isinstance(mask, tuple | list) else (mask,)
    said = all(one is None or isinstance(one, Tensor) or (isinstance(one, Mask) and has_code(one)) for one in masks)
    return said and (rows is None or isinstance(rows, bool))


def _of_one_size(given: Arguments) -> Arguments:
    """The arguments with heads of one size for query, key and value, and their channels side by side."""
    heads = (given.query, given.key, given.value)
    longest = max(x.shape[3] for x in heads)
    if all(x.shape[3] == longest and x.stride(3) == 1 for x in heads):
        return given
    query, key, value = (_side_by_side(functional.pad(x, (0, longest - x.shape[3]))) for x in heads)
    return replace(given, query=query, key=key, value=value)


def _side_by_side(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def _of_empty_rows(given: Arguments) -> Tensor:
    """What a query gets that may attend to nothing."""
    if given.empty_row == "nan" or given.key_len == 0:
        return given.value.new_full((), torch.nan if given.empty_row == "nan" else 0.0)
    return given.value.mean(2, keepdim=True).repeat_interleave(given.group_size, 1)


_SAID_OTHERWISE = {
    "is_causal": "mask=qkv.causal(); query_offset='top_left' is the corner that SDPA draws it from",
    "attn_mask": "mask= takes booleans, True = may attend; bias= takes numbers that are added to the scores",
    "enable_gqa": "fewer key and value heads are shared without a word",
}
"""What torch's own function calls it."""


def _check_known(unknown: Collection[str]) -> None:
    for name in sorted(unknown):
        known = inspect.signature(attend).parameters.keys() - {"unknown"}
        raise SpecError(f"attend has no argument {name!r}; {_SAID_OTHERWISE.get(name) or nearest(name, known)}")
