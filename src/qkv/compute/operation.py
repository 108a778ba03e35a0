"""Operation: the tiles as one operation of torch, which `torch.compile` takes into its graph as it is.

Traced, they would be a graph of their own for each length and mask, or, as `composite`, all the scores. Here a length
that changes is no other graph, and nothing but the output and its log-sum-exp is kept for the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from qkv.compute.arguments import LEARNED, Arguments, without_autocast
from qkv.compute.composite import precise
from qkv.compute.planning import tiles_for, why_blockwise
from qkv.compute.tiled import differentiable, forward, gradients
from qkv.compute.work import Work
from qkv.masks import (
    And,
    Causal,
    Dilated,
    Everything,
    GlobalTokens,
    Mask,
    Not,
    Or,
    Prefix,
    Shifted,
    SlidingWindow,
)

KINDS: tuple[Any, ...] = (Everything, Causal, SlidingWindow, Prefix, Dilated, GlobalTokens, And, Or, Not, Shifted)
"""Masks that are whole numbers and other such masks."""
TOLD = {
    **dict.fromkeys(("query", "key", "value"), "Tensor"),
    **dict.fromkeys(("bias", "sinks", "table", "slopes", "seed"), "Tensor?"),
    "mask": "SymInt[]",
    "scale": "float",
    "softcap": "float?",
    "first": "SymInt",
    "dropout_p": "float",
    "precision": "str",
}
"""What the operation is told, as torch's schemas have it; dropout's seed is a tensor, so that each run has its own."""
TENSORS = 8
"""How many of these are tensors; they come first, and the learned ones before the others."""
_TOLD = ", ".join(f"{kind} {name}" for name, kind in TOLD.items())


def has_code(mask: Mask) -> bool:
    """Whether a mask is of known kinds throughout, so that whole numbers can stand for it in a graph."""
    return all(type(part) in KINDS for part in mask.parts())


def coded(mask: Mask) -> list[int]:
    """The mask as whole numbers: its kind, and what it carries. A graph can leave them open where they change."""
    code = [KINDS.index(type(mask))]
    for name in mask.__match_args__:  # type: ignore[attr-defined]  # every concrete mask is a dataclass
        part = getattr(mask, name)
        code += coded(part) if isinstance(part, Mask) else [part]
    return code


@lru_cache
def decoded(code: tuple[int, ...]) -> Mask:
    """The mask that whole numbers stand for."""
    return _next_mask(iter(code))


def _next_mask(code: Iterator[int]) -> Mask:
    kind = KINDS[next(code)]
    return kind(*(_next_mask(code) if field.type == "Mask" else next(code) for field in fields(kind)))


def attend_in_graph(given: Arguments, seed: Tensor | None) -> tuple[Tensor, Tensor]:
    """The context vectors and their log-sum-exp, with gradients; of a call and dropout's seed."""
    tensors = (*given.tensors, given.table, given.slopes, seed)
    others = (coded(given.mask), given.scale, given.softcap, given.first, given.dropout_p, given.precision)
    output, of_output = _attend(*tensors, *others)
    return output, of_output


def _work(arguments: Sequence[Any]) -> Work:
    """What is to be computed, by what the operation was told."""
    told = dict(zip(TOLD, arguments, strict=True))
    seed = told.pop("seed")
    told["mask"] = decoded(tuple(told["mask"]))
    given = Arguments(**told, empty_row="zero", axes=4)
    fused = not why_blockwise(given)
    return Work(given, tiles_for(given, fused=fused), fused, lse=True, seed=0 if seed is None else int(seed))


@torch.library.custom_op("qkv::attend", mutates_args=(), schema=f"({_TOLD}) -> (Tensor, Tensor)")
def _attend(*told: Any) -> tuple[Tensor, Tensor]:
    with without_autocast(told[0].device):
        output, lse = forward(_work(told))
    return output.contiguous(), lse.contiguous()


@_attend.register_fake
def _(*told: Any) -> tuple[Tensor, Tensor]:
    query, _, value, *_, precision = told
    dtype = precise(query.dtype, precision)
    return query.new_empty(*query.shape[:3], value.shape[3]), query.new_empty(query.shape[:3], dtype=dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:TENSORS], *output)
    ctx.told = inputs[TENSORS:]


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, output, lse = ctx.saved_tensors
    told, wanted = (*tensors, *ctx.told), ctx.needs_input_grad[: len(LEARNED)]
    if torch.is_grad_enabled():
        made = list(differentiable(_work(told), wanted, grad, grad_lse))
    else:
        some = iter(_gradients(*told, output, lse, grad, grad_lse, list(wanted)))
        made = [next(some) if want else None for want in wanted]
    return *made, *(None for _ in told[len(LEARNED) :])


@torch.library.custom_op(
    "qkv::attend_backward",
    mutates_args=(),
    schema=f"({_TOLD}, Tensor output, Tensor of_output, Tensor? grad, Tensor? grad_lse, bool[] wanted) -> Tensor[]",
)
def _gradients(*arguments: Any) -> list[Tensor]:
    *told, output, lse, grad, grad_lse, wanted = arguments
    with without_autocast(output.device):
        made = gradients(_work(told), wanted, output, lse, grad, grad_lse)
    return [x for x in made if x is not None]


@_gradients.register_fake
def _(*arguments: Any) -> list[Tensor]:
    wanted = arguments[-1]
    return [x.new_empty(x.shape) for x, want in zip(arguments[: len(wanted)], wanted, strict=True) if want]


_attend.register_autograd(_backward, setup_context=_keep)
