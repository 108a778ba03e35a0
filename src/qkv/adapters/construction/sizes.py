"""The sizes to build an attention with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Sizes:
    """The sizes of an attention, every one of them known.

    Attributes:
        embed_dim: channels of one token of ``x``.
        num_heads: query heads.
        num_kv_heads: key/value heads, where the class lets them be chosen.
        head_dim: channels of one head's query and key.
        value_dim: channels of one head's value, where the class lets it be chosen.
        context_length: most tokens of a sequence.
    """

    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    context_length: int

    @property
    def width(self) -> int:
        """Channels of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def group_size(self) -> int:
        """How many query heads share one key/value head."""
        return self.num_heads // self.num_kv_heads


def default_sizes(spec: AttentionSpec, stated: Collection[str] = ()) -> Sizes:
    """Sizes for the spec's probes: the spec's own, and where it leaves one open a size that no other axis has.

    Args:
        spec: the spec.
        stated: fields of the spec that were given by the user, so that one head means one head.
    """
    open_heads = spec.num_heads == 1 and "num_heads" not in stated
    heads = 6 if open_heads else spec.num_heads
    kv_heads = spec.num_kv_heads or (heads if "num_kv_heads" in stated else fewer(heads))
    head_dim = spec.head_dim or (spec.embed_dim // heads if spec.embed_dim and not spec.embed_dim % heads else 8)
    value_dim = spec.value_dim or (head_dim if "value_dim" in stated else head_dim + 2)
    return Sizes(
        embed_dim=spec.embed_dim or heads * head_dim + 8,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        context_length=40,
    )


def fewer(heads: int) -> int:
    """The number of key/value heads that shows most: more than one, fewer than query heads."""
    return next((n for n in range(2, heads) if heads % n == 0), 1)
