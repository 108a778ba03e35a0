"""Blockwise: a tile computed in plain operations of torch, with its gradients written out.

It does what no fused kernel does on a CPU: softcap, dropout, the gradient of a bias, scores in another precision. It
holds the scores of one tile at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """A tile of scores and what is done to them.

    Attributes:
        query: ``(batch, head, rows, dim)``.
        key: ``(batch, kv_head, width, dim)``.
        value: ``(batch, kv_head, width, value_dim)``.
        added: is added to the scores, and broadcasts to them.
        scale: what the scores are multiplied by.
        softcap: their bound, or None.
        kept: which weights are kept, over the share that is, ``(batch, head, rows, width)``; or None.
        dtype: what the softmax is computed in.
        products: what goes into matrix products.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    added: Tensor | None
    scale: float
    softcap: float | None
    kept: Tensor | None
    dtype: torch.dtype
    products: torch.dtype

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """A matrix product, in the precision of the softmax."""
        return (left.to(self.products) @ right.to(self.products)).to(self.dtype)

    def scores(self) -> tuple[Tensor, Tensor | None]:
        """The scores, ``(batch, head, rows, width)``, and the slope of the softcap at each; None without one."""
        attn_scores = self.product(self.by_group(self.query), self.key.mT)  # batch kv_head group*rows width
        attn_scores = self.by_head(attn_scores).mul_(self.scale)
        slope = None
        if self.softcap is not None:
            bounded = attn_scores.div_(self.softcap).tanh_()
            slope = 1 - bounded.square()
            attn_scores = bounded * self.softcap
        if self.added is not None:
            attn_scores = attn_scores.add_(self.added)
        return attn_scores, slope

    def by_group(self, x: Tensor) -> Tensor:
        """``(batch, head, rows, ...)`` as ``(batch, kv_head, group*rows, ...)``: a group's heads below each other."""
        batch, heads, rows, width = x.shape
        kv_heads = self.key.shape[1]
        return x.reshape(batch, kv_heads, heads // kv_heads * rows, width)

    def by_head(self, x: Tensor) -> Tensor:
        """The opposite."""
        batch, heads, rows, _ = self.query.shape
        return x.reshape(batch, heads, rows, x.shape[-1])


def forward(block: Block) -> tuple[Tensor, Tensor]:
    """The context vectors of a tile and their log-sum-exp, minus infinity for a row that may attend to nothing."""
    attn_scores, _ = block.scores()
    top = attn_scores.amax(-1, keepdim=True)
    top = top.masked_fill_(top == -torch.inf, 0)
    attn_weights = attn_scores.sub_(top).exp_()
    total = attn_weights.sum(-1, keepdim=True)
    lse = (total.log() + top)[..., 0]
    if block.kept is not None:
        attn_weights = attn_weights.mul_(block.kept)
    context = block.by_head(block.product(block.by_group(attn_weights), block.value))
    return context.div_(total.masked_fill_(total == 0, 1)), lse


def backward(
    block: Block, grad: Tensor, output: Tensor, lse: Tensor, grad_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and of the scores through a tile.

    Args:
        block: the tile.
        grad: of the whole attention's output, at these queries.
        output: the whole attention's, at these queries; as merged of all tiles.
        lse: likewise, and finite.
        grad_lse: of the log-sum-exp; or None.
    """
    attn_scores, slope = block.scores()
    attn_weights = attn_scores.sub_(lse[..., None]).exp_()
    grad, output = grad.to(block.dtype), output.to(block.dtype)
    common = (grad * output).sum(-1, keepdim=True)
    if grad_lse is not None:
        common = common - grad_lse[..., None]
    used = attn_weights if block.kept is None else attn_weights * block.kept
    of_value = block.product(block.by_group(used).mT, block.by_group(grad))
    of_weights = block.by_head(block.product(block.by_group(grad), block.value.mT))
    if block.kept is not None:
        of_weights = of_weights.mul_(block.kept)
    of_scores = of_weights.sub_(common).mul_(attn_weights)  # with everything added
    of_products = block.by_group(of_scores if slope is None else of_scores * slope) * block.scale
    of_query = block.by_head(block.product(of_products, block.key))
    of_key = block.product(of_products.mT, block.by_group(block.query))
    return of_query, of_key, of_value, of_scores
