"""The attention to use: every option in one layer, computed by `attend` on the fastest path that is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from qkv.compute import attend
from qkv.errors import SpecError
from qkv.layers.cache import Cache
from qkv.layers.fused_projections import split_fused_projections
from qkv.layers.head_sizes import checked_group_size, checked_head_dim
from qkv.layers.own_masks import call_mask, is_causal, new_cache, own_mask, window_of
from qkv.layers.rope import as_rope, turned
from qkv.layers.spec_options import options_of
from qkv.masks import Mask
from qkv.positions import Rope
from qkv.spec import AttentionSpec
from qkv.vocabulary import Pairing


class Attention(nn.Module):
    """Multi-head attention with all its usual options, batch first.

    Its parameters have the names of `MultiHeadAttention`'s; where both have an option, both give the same. The last
    query stands at the last key. A query that may attend to nothing gets the bias of `out_proj`, or zero.

    Args:
        embed_dim: numbers in the vector of a token that comes in.
        num_heads: query heads.
        num_kv_heads: key and value heads, each shared by a group of query heads; None means `num_heads`.
        head_dim: numbers in a query or key; None means `embed_dim / num_heads`.
        value_dim: numbers in a value; None means `head_dim`.
        kdim: numbers in what the keys are made from in cross-attention; None means `embed_dim`.
        vdim: numbers in what the values are made from; None means `kdim`.
        bias: the projections add a trainable constant.
        out_bias: so does `out_proj`; None means as `bias` says.
        out_dim: numbers in the vector that goes out; None means `embed_dim`.
        out_proj: the heads go through an output projection; without it they come out side by side.
        qk_norm: query and key are divided by their root mean square, per `head` or over the `width` of all heads.
        norm_eps: what is added to the mean square.
        causal: no token attends to a later one.
        window: a token sees so many keys at most, its own included; without `causal`, as many on either side.
        mask: a rule that holds in every call besides, such as `qkv.causal() | qkv.prefix(32)`.
        rope: query and key turn with position: the pairing of channels, `halves` or `adjacent`, or a `Rope` with base,
            channels and scaling. The angles are never in half precision.
        alibi: a slope times the distance is taken off the scores; True for the paper's slopes, or one for each head.
        softcap: no score goes beyond this number.
        sinks: each head has a learned score that takes weight and gives no value.
        scale: what the scores are multiplied by; None means `1/sqrt(head_dim)`.
        dropout: share of the weights set to zero in training. Off in `eval()`.

    Raises:
        SpecError: the sizes do not divide, or an option can't be; the message says what can.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        out_dim: int | None = None,
        out_proj: bool = True,
        qk_norm: Literal["head", "width"] | None = None,
        norm_eps: float = 1e-6,
        causal: bool = False,
        window: int | None = None,
        mask: Mask | None = None,
        rope: Rope | Pairing | None = None,
        alibi: bool | Sequence[float] = False,
        softcap: float | None = None,
        sinks: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.group_size = checked_group_size(num_heads, self.num_kv_heads)
        self.head_dim = checked_head_dim(embed_dim, num_heads, head_dim)
        self.value_dim = self.head_dim if value_dim is None else value_dim
        self.mask = own_mask(causal, window, mask)
        self.causal, self.window = is_causal(self.mask), window_of(self.mask)
        self.rope = as_rope(rope, self.head_dim)
        self.alibi = alibi if isinstance(alibi, bool) else tuple(alibi)
        self.softcap, self.scale, self.dropout = softcap, scale, dropout

        kdim = embed_dim if kdim is None else kdim
        self.q_proj = nn.Linear(embed_dim, num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(kdim, self.num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(kdim if vdim is None else vdim, self.num_kv_heads * self.value_dim, bias=bias)
        self.q_norm, self.k_norm = (
            _norm(qk_norm, self.head_dim, heads, norm_eps) for heads in (num_heads, self.num_kv_heads)
        )
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks else None
        self.out_proj = (
            nn.Linear(num_heads * self.value_dim, out_dim or embed_dim, bias=bias if out_bias is None else out_bias)
            if out_proj
            else nn.Identity()
        )
        self.register_load_state_dict_pre_hook(split_fused_projections)  # type: ignore[no-untyped-call]

    @classmethod
    def of_spec(cls, spec: AttentionSpec, embed_dim: int | None = None, **options: Any) -> Attention:
        """A layer that computes what a spec says.

        Args:
            spec: for instance `qkv.read_spec("config.json")`.
            embed_dim: numbers in the vector of a token, where the spec leaves them open.
            options: of the constructor; they go before the spec's.

        Raises:
            SpecError: the spec says something that this layer has no option for.
        """
        return cls(**{**options_of(spec, embed_dim), **options})

    def new_cache(self, max_length: int | None = None, *, spare: int = 0) -> Cache:
        """An empty cache for this layer: fixed for a `max_length`, a ring for a window, else one that grows.

        Args:
            max_length: the most tokens that it has to hold.
            spare: how many tokens a ring lets be taken back; the others let all.
        """
        return new_cache(self.mask, max_length, spare)

    def attention_weights(
        self,
        query: Float[Tensor, "*batch query_len embed_dim"],
        key: Float[Tensor, "*batch key_len key_embed_dim"] | None = None,
        mask: Mask | Bool[Tensor, ...] | None = None,
    ) -> Float[Tensor, "*batch num_heads query_len key_len"]:
        """How much each query (row) attends to each key (column) in each head, before dropout."""
        value = None if key is None else key.new_zeros(*key.shape[:-1], self.v_proj.in_features)
        return self(query, key, value, mask, need_weights=True)[1]

    def forward(
        self,
        query: Float[Tensor, "*batch query_len embed_dim"],
        key: Float[Tensor, "*batch key_len key_embed_dim"] | None = None,
        value: Float[Tensor, "*batch key_len value_embed_dim"] | None = None,
        mask: Mask | Bool[Tensor, ...] | None = None,
        *,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Any:
        """The output for every query, `(batch, query, embed_dim)`; with `need_weights`, a pair with the weights behind.

        Args:
            query: what the queries are made from, `(batch, token, embed_dim)` or `(token, embed_dim)`; alone, it is
                self-attention.
            key: what the keys are made from; None means `query`.
            value: what the values are made from; None means `key`.
            mask: who may attend to whom besides: a mask such as `qkv.padding(lengths)`, or booleans, True = may attend,
                that broadcast to batch, head, query, key. The keys in the cache count.
            cache: keys and values of the tokens so far; those of `query` are put behind them.
            need_weights: the weights too, `(batch, head, query, key)`, before dropout.

        Raises:
            SpecError: a cache in cross-attention, or one that this layer can't use.
        """
        if cache is not None and (key is not None or value is not None):
            raise SpecError(
                "a cache holds the keys of the tokens themselves, and this call hands over others.\n"
                "In cross-attention leave the cache out: layer(query, key)."
            )
        key = query if key is None else key
        q, k, v = self._heads(query, key, key if value is None else value)  # batch head token dim, thrice
        start = 0 if cache is None else cache.length
        at = start + k.shape[2] - q.shape[2]  # position of the first query
        if self.rope is not None:
            q, k = turned(q, at, self.rope), turned(k, start, self.rope)  # batch head token head_dim, twice
        asked = call_mask(self.mask, mask, (q.shape[0], self.num_heads, q.shape[2], start + k.shape[2]))
        first = 0
        if cache is not None:  # last, so that a call that is refused leaves it as it was
            cache.must_serve(self.mask, q.shape[2])
            k, v, first = cache.append(k, v)  # batch kv_head key dim, twice
        attended = attend(
            q,
            k,
            v,
            mask=asked.seen_from(first),
            scale=self.scale,
            softcap=self.softcap,
            sinks=self.sinks,
            alibi=self.alibi,
            query_offset=at - first,
            dropout_p=self.dropout if self.training else 0.0,
            return_weights=need_weights,
        )
        context, *weights = attended if isinstance(attended, tuple) else (attended,)
        output = self.out_proj(context.transpose(1, 2).flatten(2))  # batch query embed_dim
        output, *weights = (x if query.ndim > 2 else x[0] for x in (output, *weights))
        return (output, *weights) if need_weights else output

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (x if x.ndim > 2 else x[None] for x in (query, key, value))
        q = _normed(self.q_norm, self.q_proj(query))  # batch token num_heads*head_dim
        k = _normed(self.k_norm, self.k_proj(key))  # batch token num_kv_heads*head_dim
        v = self.v_proj(value)  # batch token num_kv_heads*value_dim
        return _split(q, self.num_heads), _split(k, self.num_kv_heads), _split(v, self.num_kv_heads)


def _split(projected: Float[Tensor, "batch token width"], heads: int) -> Float[Tensor, "batch heads token dim"]:
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)  # batch head token dim


def _norm(kind: str | None, head_dim: int, heads: int, eps: float) -> nn.RMSNorm | None:
    if kind not in (None, "head", "width"):
        raise SpecError(f"qk_norm={kind!r}; write 'head', 'width' or None")
    return None if kind is None else nn.RMSNorm(head_dim if kind == "head" else heads * head_dim, eps)


def _normed(norm: nn.RMSNorm | None, projected: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes width"]:
    """What was projected, normalised in pieces as wide as the norm's weight: each head, or all together."""
    return projected if norm is None else norm(projected.unflatten(-1, (-1, *norm.normalized_shape))).flatten(-2)
