"""Multi-head attention, the last rung: several attentions side by side, each with its own view of the tokens."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from qkv.layers.fused_projections import split_fused_projections
from qkv.layers.head_sizes import checked_group_size, checked_head_dim
from qkv.layers.masked_softmax import softmax_over_keys
from qkv.layers.rope import check_rope, rotate
from qkv.vocabulary import Pairing


class MultiHeadAttention(nn.Module):
    """Attention in several heads, batch first; it loads the state dict of `torch.nn.MultiheadAttention`.

    The last query meets the last key: `causal` and `rope` put query i at position `key_len - query_len + i`.
    Sources: Vaswani et al. 2017, section 3.2.2; for shared keys and values, Shazeer 2019 and Ainslie et al. 2023.

    Args:
        embed_dim: numbers in the vector of a token, coming in and going out.
        num_heads: query heads.
        num_kv_heads: key and value heads, each shared by a group of query heads; None means `num_heads`.
        head_dim: numbers in a query, key or value; None means `embed_dim / num_heads`.
        bias: all four projections add a trainable constant.
        dropout: share of the weights set to zero in training. Off in `eval()`.
        causal: no token attends to a later one.
        rope: which channels turn together, `halves` or `adjacent`; None leaves position out.
        rope_base: how slowly the slow pairs turn.

    Raises:
        SpecError: the sizes do not divide; the message says which do.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        causal: bool = False,
        rope: Pairing | None = None,
        rope_base: float = 10000.0,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.group_size = checked_group_size(num_heads, num_kv_heads)
        self.head_dim = checked_head_dim(embed_dim, num_heads, head_dim)
        if rope is not None:
            check_rope(self.head_dim, rope)
        self.causal, self.rope, self.rope_base = causal, rope, rope_base
        self.q_proj = nn.Linear(embed_dim, num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, num_kv_heads * self.head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * self.head_dim, embed_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.register_load_state_dict_pre_hook(split_fused_projections)  # type: ignore[no-untyped-call]

    def attention_weights(
        self,
        query: Float[Tensor, "*batch query_len embed_dim"],
        key: Float[Tensor, "*batch key_len key_embed_dim"] | None = None,
        mask: Bool[Tensor, ...] | None = None,
    ) -> Float[Tensor, "*batch num_heads query_len key_len"]:
        """How much each query (row) attends to each key (column) in each head, before dropout."""
        q = self._split(self.q_proj(query))  # batch head query head_dim
        k = self._split(self.k_proj(query if key is None else key))  # batch kv_head key head_dim
        if self.rope is not None:
            q = rotate(q, k.shape[-2] - q.shape[-2], self.rope, self.rope_base)  # batch head query head_dim
            k = rotate(k, 0, self.rope, self.rope_base)  # batch kv_head key head_dim
        k = k.repeat_interleave(self.group_size, dim=-3)  # batch head key head_dim
        attn_scores = (q / self.head_dim**0.5) @ k.mT  # batch head query key
        return softmax_over_keys(attn_scores, mask, causal=self.causal)  # batch head query key

    def forward(
        self,
        query: Float[Tensor, "*batch query_len embed_dim"],
        key: Float[Tensor, "*batch key_len key_embed_dim"] | None = None,
        value: Float[Tensor, "*batch key_len value_embed_dim"] | None = None,
        mask: Bool[Tensor, ...] | None = None,
    ) -> Float[Tensor, "*batch query_len embed_dim"]:
        """The output for every query. A query that may attend to nothing gets the bias of `out_proj`, or zero.

        Args:
            query: what the queries are made from; alone, it is self-attention.
            key: what the keys are made from; None means `query`.
            value: what the values are made from; None means `key`.
            mask: True = may attend; broadcasts to batch, head, query, key.
        """
        key = query if key is None else key
        attn_weights = self.dropout(self.attention_weights(query, key, mask))  # batch head query key
        v = self._split(self.v_proj(key if value is None else value))  # batch kv_head key head_dim
        context = attn_weights @ v.repeat_interleave(self.group_size, dim=-3)  # batch head query head_dim
        return self.out_proj(context.transpose(-3, -2).flatten(-2))  # batch query embed_dim

    def _split(self, projected: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch heads token head_dim"]:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)  # batch head token head_dim
