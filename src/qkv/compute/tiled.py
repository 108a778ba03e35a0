"""Tiled: attention tile by tile, parts of a row merged by their log-sum-exp; forward and backward.

The gradient of a part needs only the output and the log-sum-exp of the whole row: with these, the backward of each
tile is exact, sinks included, and nothing of the score matrix is kept in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qkv.compute import blockwise, flash
from qkv.compute.arguments import without_autocast
from qkv.compute.composite import composite, finite, precise
from qkv.compute.lowering import SCORES, capped
from qkv.compute.tiles import Tile
from qkv.compute.work import Work


def tiled(work: Work) -> tuple[Tensor, Tensor]:
    """The context vectors and their log-sum-exp, where it is wanted; with gradients where some are."""
    tensors = work.given.tensors
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        output, lse = _Tiled.apply(replace(work, lse=True), *tensors)  # type: ignore[no-untyped-call]
        return output, lse
    return forward(work)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        output, lse = forward(work.but(*tensors))
        ctx.save_for_backward(*tensors, output, lse)
        ctx.work = work.but(*(None for _ in tensors))
        ctx.set_materialize_grads(False)
        return output, lse

    @staticmethod
    def backward(ctx: Any, *of_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        grad, grad_lse = of_outputs
        *tensors, output, lse = ctx.saved_tensors
        work = ctx.work.but(*tensors)
        if grad is None and grad_lse is None:
            return (None,) * (1 + len(tensors))
        wanted = ctx.needs_input_grad[1:]
        with without_autocast(output.device):
            if torch.is_grad_enabled():
                return None, *differentiable(work, wanted, grad, grad_lse)
            return None, *gradients(work, wanted, output, lse, grad, grad_lse)


def forward(work: Work) -> tuple[Tensor, Tensor]:
    """The context vectors and their log-sum-exp, in which no number counts where it isn't wanted."""
    given, query = work.given, work.given.query
    exact = precise(query.dtype, given.precision)
    sizes = (*query.shape[:3], given.value.shape[3])
    calls = list(work.calls())
    if len(calls) == 1 and given.sinks is None and calls[0][1].holds(given.batch, given.query_len):
        part, of_part = _part(work, *calls[0])
        return part.to(query.dtype), of_part
    # Parts that are put together in half precision would be rounded each time.
    output = query.new_zeros(sizes, dtype=exact if work.merges else query.dtype)
    lse = query.new_full(query.shape[:3], -torch.inf, dtype=exact)
    for number, call in calls:
        part, of_part = _part(work, number, call)
        if work.lse or work.merges:
            _merge(call, output, lse, part, of_part)
        else:
            call.of_queries(output).copy_(part)
    if given.sinks is not None:
        whole = torch.logaddexp(lse, given.sinks.to(exact)[:, None])
        output *= torch.exp(lse - finite(whole))[..., None]
        lse = whole
    return output.to(query.dtype), lse


def _part(work: Work, number: int, call: Tile) -> tuple[Tensor, Tensor]:
    if not work.fused:
        return blockwise.forward(work.block(number, call))
    given = work.given
    heads = call.of_queries(given.query), call.of_keys(given.key), call.of_keys(given.value)
    added = work.added(call, torch.promote_types(given.query.dtype, torch.float32), in_kernel=True)
    output, lse = flash.forward(*heads, added, causal=call.masking == "causal", scale=given.scale)
    empty = work.empty(call, added) if work.lse or work.merges else None
    return output, lse if empty is None else lse.masked_fill(empty, -torch.inf)


def _merge(call: Tile, output: Tensor, lse: Tensor, part: Tensor, of_part: Tensor) -> None:
    """A part put to where it belongs, merged with what stands there."""
    if call.query_step == 0 and call.count > 1:
        whole = torch.logsumexp(of_part, 0, keepdim=True)
        part = (part * torch.exp(of_part - finite(whole))[..., None]).sum(0, keepdim=True)
        call, of_part = replace(call, count=1), whole
    there, of_there = call.of_queries(output), call.of_queries(lse)
    if call.first:
        there.copy_(part)
        of_there.copy_(of_part)
        return
    whole = torch.logaddexp(of_there, of_part)
    share = torch.exp(of_part - finite(whole))
    there.lerp_(part.to(there.dtype), share[..., None].to(there.dtype))
    of_there.copy_(whole)


def gradients(
    work: Work,
    wanted: tuple[bool, ...],
    output: Tensor,
    lse: Tensor,
    grad: Tensor | None,
    grad_lse: Tensor | None,
) -> list[Tensor | None]:
    """The gradients of query, key, value, bias and sinks."""
    given = work.given
    exact = precise(given.query.dtype, given.precision)
    grad = torch.zeros_like(output) if grad is None else grad
    of_query, of_key, of_value = (x.new_zeros(x.shape, dtype=exact) for x in (given.query, given.key, given.value))
    of_bias = None if given.bias is None or not wanted[3] else given.bias.new_zeros(given.bias.shape, dtype=exact)
    lse = finite(lse)
    by_blocks = not work.fused or of_bias is not None or grad_lse is not None
    if by_blocks:
        work = replace(work, tiles=tuple(capped(work.tiles, SCORES // given.num_heads)))
    for number, call in work.calls():
        here = call.of_queries(grad), call.of_queries(output), call.of_queries(lse)
        if by_blocks:
            of_lse = None if grad_lse is None else call.of_queries(grad_lse)
            *parts, of_scores = blockwise.backward(work.block(number, call), *here, of_lse)
            if of_bias is not None:
                _add_to_pairs(call, of_bias, of_scores)
        else:
            heads = call.of_queries(given.query), call.of_keys(given.key), call.of_keys(given.value)
            added, causal = work.added(call, exact, in_kernel=True), call.masking == "causal"
            parts = list(flash.backward(here[0], *heads, *here[1:], added, causal=causal, scale=given.scale))
        _add_to_queries(call, of_query, parts[0])
        _add_to_keys(call, of_key, parts[1])
        _add_to_keys(call, of_value, parts[2])
    of_sinks = None
    if given.sinks is not None and wanted[4]:
        towards = (output * grad).sum(-1) if grad_lse is None else (output * grad).sum(-1) - grad_lse
        of_sinks = -(torch.exp(given.sinks.to(exact)[:, None] - lse) * towards).sum((0, 2))
    made = zip((of_query, of_key, of_value, of_bias, of_sinks), given.tensors, wanted, strict=True)
    return [x.to(like.dtype) if want and x is not None and like is not None else None for x, like, want in made]


def _add_to_queries(call: Tile, whole: Tensor, parts: Tensor) -> None:
    """Gradients of the queries of a call's rectangles, added where they belong."""
    if call.query_step == 0 and call.count > 1:
        call, parts = replace(call, count=1), parts.sum(0, keepdim=True)
    call.of_queries(whole).add_(parts)


def _add_to_keys(call: Tile, whole: Tensor, parts: Tensor) -> None:
    """Gradients of the keys of a call's rectangles, added where they belong; rectangles may overlap."""
    if call.count == 1:
        call.of_keys(whole).add_(parts)
    elif call.key_step == 0:
        one = replace(call, count=1)
        one.of_keys(whole).add_(parts.sum(0, keepdim=True))
    else:
        for start in range(0, call.width, call.key_step):
            stop = min(start + call.key_step, call.width)
            piece = replace(call, keys=call.keys + start, width=stop - start)
            piece.of_keys(whole).add_(parts[:, :, start:stop])


def _add_to_pairs(call: Tile, whole: Tensor, parts: Tensor) -> None:
    """Gradients of a call's scores, added up to a tensor that was broadcast to them."""
    for number, rectangle in enumerate(call.rectangles()):
        place = rectangle.of_pairs(whole)
        part = parts if call.count == 1 else parts[number : number + 1]
        place += part.sum_to_size(place.shape)


def differentiable(
    work: Work, wanted: tuple[bool, ...], grad: Tensor | None, grad_lse: Tensor | None
) -> Iterator[Tensor | None]:
    """The same as `gradients` gives, which can be differentiated again: by way of all the scores."""
    given, tensors = work.given, work.given.tensors
    asked = [x for x, want in zip(tensors, wanted, strict=True) if want and x is not None]
    attended = composite(given, dropped(work))
    pairs = [(attended.output, grad), (attended.lse, grad_lse)]
    outputs, grads = zip(*((x, g) for x, g in pairs if g is not None), strict=True)
    made = iter(torch.autograd.grad(outputs, asked, grads, create_graph=True))
    return (next(made) if want and x is not None else None for x, want in zip(tensors, wanted, strict=True))


def dropped(work: Work) -> Tensor | None:
    """Which weights dropout keeps, ``(batch, head, query, key)``; None without dropout."""
    given = work.given
    if not given.dropout_p:
        return None
    kept = given.query.new_zeros(given.batch, given.num_heads, given.query_len, given.key_len)
    for number, call in work.calls():
        part = work.kept(number, call)
        assert part is not None
        call.of_pairs(kept).copy_(part)
    return (kept > 0).to(kept.dtype)
