"""Which numbers of heads and which sizes of a head go together."""

from __future__ import annotations

from qkv.errors import SpecError


def checked_group_size(num_heads: int, num_kv_heads: int) -> int:
    """How many query heads share one key and value head.

    Raises:
        SpecError: the query heads do not fall into equal groups.
    """
    if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
        raise SpecError(
            f"num_heads={num_heads} and num_kv_heads={num_kv_heads}: the query heads must fall into equal groups, one "
            f"for each key and value head.\nWrite num_kv_heads={_nearest_divisor(num_heads, num_kv_heads)}."
        )
    return num_heads // num_kv_heads


def checked_head_dim(embed_dim: int, num_heads: int, head_dim: int | None) -> int:
    """The size of a head: `head_dim` where it is given, and an equal share of `embed_dim` otherwise.

    Args:
        embed_dim: what the heads share.
        num_heads: how many share it.
        head_dim: the size that was asked for.

    Raises:
        SpecError: there is no equal share.
    """
    if head_dim is not None:
        return head_dim
    if embed_dim % num_heads:
        raise SpecError(
            f"embed_dim={embed_dim} does not divide into num_heads={num_heads} equal heads.\n"
            f"Write num_heads={_nearest_divisor(embed_dim, num_heads)}, or say head_dim yourself: "
            f"head_dim={embed_dim // num_heads or 1}."
        )
    return embed_dim // num_heads


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [size for size in range(1, number + 1) if number % size == 0] or [1]
    return min(divisors, key=lambda size: abs(size - wanted))
