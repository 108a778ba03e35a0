"""Rotary position: query and key are turned by an angle that grows with their position.

A score then depends on how far apart query and key stand, and not on where. Source: Su et al. 2021, "RoFormer".
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from qkv.errors import SpecError, nearest
from qkv.vocabulary import Pairing


def check_rope(head_dim: int, pairing: str) -> None:
    """Nothing, when rope can turn heads of this size.

    Raises:
        SpecError: no such pairing, or an odd channel would be left without a partner.
    """
    if pairing not in ("halves", "adjacent"):
        raise SpecError(f"rope={pairing!r} names no pairing of channels; {nearest(pairing, ['halves', 'adjacent'])}")
    if head_dim % 2:
        raise SpecError(
            f"head_dim={head_dim} is odd, and rope turns channels in pairs.\n"
            f"Write head_dim={head_dim + 1}, or rope=None."
        )


def rotate(
    heads: Float[Tensor, "*batch token head_dim"],
    first_position: int = 0,
    pairing: Pairing = "halves",
    base: float = 10000.0,
) -> Float[Tensor, "*batch token head_dim"]:
    """Every query or key, pair i of its channels turned by the angle `position * base ** (-2 * i / head_dim)`.

    Args:
        heads: queries or keys, split into heads.
        first_position: where the first token stands; the others follow it.
        pairing: which two channels turn together. `halves` pairs channel i with i + head_dim / 2, as Llama does in
            transformers; `adjacent` pairs 2i with 2i + 1, as the paper does. Weights trained with one pairing are wrong
            under the other.
        base: the larger, the slower the slow pairs turn.

    Raises:
        SpecError: see `check_rope`.
    """
    check_rope(heads.shape[-1], pairing)
    tokens, head_dim = heads.shape[-2:]
    # The angles are never in half precision, where position 2049 does not even exist.
    exact = torch.promote_types(heads.dtype, torch.float32)
    position = torch.arange(first_position, first_position + tokens, dtype=exact, device=heads.device)  # token
    frequency = base ** (-torch.arange(0, head_dim, 2, dtype=exact, device=heads.device) / head_dim)  # pair
    angle = position[:, None] * frequency  # token pair

    pairs, axis = ((2, -1), -2) if pairing == "halves" else ((-1, 2), -1)
    x, y = heads.to(exact).unflatten(-1, pairs).unbind(axis)  # batch token pair, twice
    cos, sin = angle.cos(), angle.sin()  # token pair
    turned = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=axis)  # batch token 2 pair, or pair 2
    return turned.flatten(-2).to(heads.dtype)  # batch token head_dim
