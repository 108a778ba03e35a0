"""Listening: the attention weights that torch computes while a module runs. Imports torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qkv.errors import CandidateError
from qkv.vocabulary import HIDDEN_BELOW

MOST_ENTRIES = 1 << 28
"""Weights that are kept of one run: 1 GiB of them."""


@dataclass(frozen=True)
class Heard:
    """The weights of one call of a softmax or of a fused attention.

    Attributes:
        module: dotted name of the innermost module that made the call; empty for the outermost.
        weights: ``(batch, head, query, key)`` in float32, NaN where a mask is known to hide the key.
        value: what the weights mix, ``(batch, kv head, key, dim)``; None where it was not seen.
    """

    module: str
    weights: Tensor
    value: Tensor | None = None


@contextmanager
def listening(module: Any) -> Iterator[list[Heard]]:
    """A list that fills with what the module attends to while it runs in this thread, call by call.

    Heard are ``softmax`` in all its forms, ``scaled_dot_product_attention`` and torch's own multi-head attention;
    weights that are made in another way, as by ``exp`` and a sum, are not. Fused calls give no weights, so these are
    computed from their query, key and mask.

    Args:
        module: the module whose parts name what is heard; anything else is heard without names.
    """
    names: list[str] = []
    heard: list[Heard] = []
    with ExitStack() as stack:
        for name, part in module.named_modules() if isinstance(module, nn.Module) else ():
            stack.callback(part.register_forward_pre_hook(_entering(names, name)).remove)
            stack.callback(part.register_forward_hook(_leaving(names), always_call=True).remove)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_Ear(heard, names))
        stack.enter_context(torch.no_grad())
        yield heard


def _entering(names: list[str], name: str) -> Any:
    return lambda *_: names.append(name)


def _leaving(names: list[str]) -> Any:
    def leave(*_: Any) -> None:
        names.pop()

    return leave


class _Ear(TorchFunctionMode):
    def __init__(self, heard: list[Heard], names: list[str]) -> None:
        super().__init__()
        self._heard, self._names, self._room = heard, names, MOST_ENTRIES

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """What the function gives."""
        given, name = dict(kwargs or {}), str(getattr(func, "__name__", ""))
        if name == "multi_head_attention_forward":
            return self._of_multi_head(func, args, given)
        result = func(*args, **given)
        if name == "scaled_dot_product_attention":
            weights = _weights(*args, **given)
            self._hear(weights, args[2] if len(args) > 2 else given["value"])
        elif name in ("softmax", "_softmax") and isinstance(result, Tensor):
            self._hear(result)
        return result

    def _of_multi_head(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """What torch's own attention gives; it is asked for the weights of each head, and gives what was asked for."""
        wanted, averaged = given.get("need_weights", True), given.get("average_attn_weights", True)
        output, weights = func(*args, **{**given, "need_weights": True, "average_attn_weights": False})
        self._hear(weights)
        return output, None if not wanted else weights.mean(dim=-3) if averaged else weights

    def _hear(self, weights: Tensor, value: Tensor | None = None) -> None:
        if weights.ndim < 2:
            return
        self._room -= weights.numel()
        if self._room < 0:
            message = f"the run makes more than {MOST_ENTRIES / 1e6:.0f} million attention weights"
            raise CandidateError(message, hint="give it fewer tokens, or hand over the part that is of interest")
        name = self._names[-1] if self._names else ""
        self._heard.append(Heard(name, _four_axes(weights).float(), None if value is None else _four_axes(value)))


def _four_axes(tensor: Tensor) -> Tensor:
    """``(batch, head, …)`` of a tensor that may lack either, or have more in front."""
    if tensor.ndim > 4:
        return tensor.flatten(0, tensor.ndim - 4)  # batch head row column
    # Three axes are heads of one sequence where there are several, and sequences of one head as often: nothing tells.
    return tensor[(None,) * (4 - tensor.ndim)]  # batch head row column


def _weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The weights of a call of ``scaled_dot_product_attention``, NaN where its mask hides the key."""
    query, key = query.float(), key.float()
    if enable_gqa and key.ndim > 2:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)  # ... head key dim
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)  # ... query key
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)  # query key
    if is_causal:
        visible = visible.tril()
    if attn_mask is not None:
        keeps = attn_mask if attn_mask.dtype == torch.bool else attn_mask > HIDDEN_BELOW
        visible = visible & keeps  # ... query key
        scores = scores if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)  # ... query key
    return weights.masked_fill(~visible, torch.nan)
