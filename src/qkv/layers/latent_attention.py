"""Latent attention (MLA): keys and values are made from one small vector a token, and only that is kept.

Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1. Position can't pass through the small vector, so rope has channels
of its own: each head's query has some, and one key of them is shared by all heads.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from qkv.compute import attend
from qkv.layers.cache import Cache
from qkv.layers.own_masks import call_mask, new_cache, own_mask
from qkv.layers.rope import as_rope, turned
from qkv.masks import Mask
from qkv.positions import Rope
from qkv.vocabulary import Pairing


class LatentAttention(nn.Module):
    """Attention whose keys and values are made from a latent vector of each token, batch first.

    A cache holds `latent_dim + rope_dim` numbers a token, whatever the number of heads. Behind a filled cache the
    queries are taken to the latent vectors instead of these to the keys, which gives the same and costs less.

    Args:
        embed_dim: numbers in the vector of a token, coming in and going out.
        num_heads: heads, all with keys and values of their own.
        latent_dim: numbers in the latent vector that keys and values are made from.
        head_dim: numbers in a query or key, those for position apart.
        rope_dim: numbers in it for position.
        value_dim: numbers in a value; None means `head_dim`.
        query_latent_dim: numbers in a latent vector for queries; None makes the queries from the token itself.
        causal: no token attends to a later one.
        mask: a rule that holds in every call besides.
        rope: as in `Attention`, of the channels for position; None leaves position out.
        norm_eps: what is added to the mean square of a latent vector, which is divided by its root.
        scale: what the scores are multiplied by; None means `1/sqrt(head_dim + rope_dim)`.
        dropout: share of the weights set to zero in training. Off in `eval()`.

    Raises:
        SpecError: rope can't turn `rope_dim` channels.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        latent_dim: int,
        head_dim: int,
        rope_dim: int,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        causal: bool = False,
        mask: Mask | None = None,
        rope: Rope | Pairing | None = "halves",
        norm_eps: float = 1e-6,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.rope_dim, self.latent_dim = num_heads, head_dim, rope_dim, latent_dim
        self.value_dim = head_dim if value_dim is None else value_dim
        self.mask, self.rope = own_mask(causal, None, mask), as_rope(rope, rope_dim)
        self.scale = (head_dim + rope_dim) ** -0.5 if scale is None else scale
        self.dropout = dropout

        query_width = num_heads * (head_dim + rope_dim)
        if query_latent_dim is None:
            self.q_proj: nn.Module = nn.Linear(embed_dim, query_width, bias=False)
        else:
            self.q_proj = nn.Sequential(
                nn.Linear(embed_dim, query_latent_dim, bias=False),
                nn.RMSNorm(query_latent_dim, norm_eps),
                nn.Linear(query_latent_dim, query_width, bias=False),
            )
        self.kv_down = nn.Linear(embed_dim, latent_dim + rope_dim, bias=False)
        self.kv_norm = nn.RMSNorm(latent_dim, norm_eps)
        self.kv_up = nn.Linear(latent_dim, num_heads * (head_dim + self.value_dim), bias=False)
        self.out_proj = nn.Linear(num_heads * self.value_dim, embed_dim, bias=False)

    def new_cache(self, max_length: int | None = None, *, spare: int = 0) -> Cache:
        """An empty cache for this layer, as `Attention.new_cache` makes it."""
        return new_cache(self.mask, max_length, spare)

    def forward(
        self,
        inputs: Float[Tensor, "*batch token embed_dim"],
        mask: Mask | Bool[Tensor, ...] | None = None,
        *,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Any:
        """The output for every token, `(batch, token, embed_dim)`; with `need_weights`, a pair with the weights behind.

        Args:
            inputs: `(batch, token, embed_dim)` or `(token, embed_dim)`.
            mask: who may attend to whom besides, as in `Attention`. The tokens in the cache count.
            cache: what is kept of the tokens so far; that of `inputs` is put behind it.
            need_weights: the weights too, `(batch, head, query, key)`, before dropout.
        """
        x = inputs if inputs.ndim > 2 else inputs[None]
        start = 0 if cache is None else cache.length
        query = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # batch head query head_dim+rope_dim
        query, query_turned = query.split([self.head_dim, self.rope_dim], dim=-1)
        query_turned = self._turned(query_turned, start)  # batch head query rope_dim
        latent, key_turned = self.kv_down(x).split([self.latent_dim, self.rope_dim], dim=-1)
        latent = torch.cat([self.kv_norm(latent), self._turned(key_turned, start)], dim=-1)
        latent = latent[:, None]  # batch 1 key latent_dim+rope_dim
        asked = call_mask(self.mask, mask, (x.shape[0], self.num_heads, x.shape[1], start + x.shape[1]))
        first = 0
        if cache is not None:
            cache.must_serve(self.mask, x.shape[1])
            latent, _, first = cache.append(latent, latent[..., :0])  # a value is a part of the key here

        takes = self._to_latents if start else self._to_keys
        query, key, value, up = takes(query, query_turned, latent)
        attended = attend(
            query,
            key,
            value,
            mask=asked.seen_from(first),
            scale=self.scale,
            query_offset=start - first,
            dropout_p=self.dropout if self.training else 0.0,
            return_weights=need_weights,
        )
        context, *weights = attended if isinstance(attended, tuple) else (attended,)
        context = context if up is None else context @ up  # batch head query value_dim
        output = self.out_proj(context.transpose(1, 2).flatten(2))  # batch query embed_dim
        output, *weights = (x if inputs.ndim > 2 else x[0] for x in (output, *weights))
        return (output, *weights) if need_weights else output

    def _to_keys(self, query: Tensor, query_turned: Tensor, latent: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Query, key and value of each head, made from the latent vectors."""
        latent, key_turned = latent.split([self.latent_dim, self.rope_dim], dim=-1)
        made = self.kv_up(latent[:, 0]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        key, value = made.split([self.head_dim, self.value_dim], dim=-1)  # batch head key head_dim, value_dim
        key = torch.cat([key, key_turned.expand(-1, self.num_heads, -1, -1)], dim=-1)
        return torch.cat([query, query_turned], dim=-1), key, value, None

    def _to_latents(self, query: Tensor, query_turned: Tensor, latent: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same with one key head, the latent vectors themselves, and what takes its context to each head's."""
        up = self.kv_up.weight.unflatten(0, (self.num_heads, -1))  # head head_dim+value_dim latent_dim
        key_up, value_up = up.split([self.head_dim, self.value_dim], dim=1)
        query = torch.cat([query @ key_up, query_turned], dim=-1)  # batch head query latent_dim+rope_dim
        return query, latent, latent[..., : self.latent_dim], value_up.mT

    def _turned(self, channels: Tensor, first_position: int) -> Tensor:
        return channels if self.rope is None else turned(channels, first_position, self.rope)
