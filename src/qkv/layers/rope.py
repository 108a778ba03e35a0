"""Rotary position: query and key are turned by an angle that grows with their position.

A score then depends on how far apart query and key stand, and not on where. Source: Su et al. 2021, "RoFormer".
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from qkv.errors import SpecError, nearest
from qkv.positions import Rope
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
    return turned(heads, first_position, Rope(pairing, base))  # batch token head_dim


def turned(
    heads: Float[Tensor, "*batch token head_dim"], first_position: int, rope: Rope
) -> Float[Tensor, "*batch token head_dim"]:
    """Every query or key, turned as `rope` says: its first `rope.dims` channels, at scaled frequencies.

    Args:
        heads: queries or keys, split into heads.
        first_position: where the first token stands; the others follow it.
        rope: pairing, base, channels and scaling.
    """
    tokens, head_dim = heads.shape[-2:]
    # In half precision position 2049 does not even exist, and in single precision the angle at 100,000 is off by 0.004.
    # Hence the frequencies are no buffer either, which `.half()` would round.
    place = heads.device if heads.device.type != "mps" else torch.device("cpu")
    position = torch.arange(first_position, first_position + tokens, dtype=torch.float64, device=place)  # token
    frequency = torch.tensor(rope.frequencies(head_dim), dtype=torch.float64, device=place)  # pair
    angle = position[:, None] * frequency  # token pair
    exact = torch.promote_types(heads.dtype, torch.float32)
    cos, sin = (rope.attention_factor * wave.to(heads.device, exact) for wave in (angle.cos(), angle.sin()))

    pairs, axis = ((2, -1), -2) if rope.pairing == "halves" else ((-1, 2), -1)
    turning, rest = heads.split([2 * len(frequency), head_dim - 2 * len(frequency)], dim=-1)
    x, y = turning.to(exact).unflatten(-1, pairs).unbind(axis)  # batch token pair, twice
    both = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=axis)  # batch token 2 pair, or pair 2
    whole = both.flatten(-2).to(heads.dtype)  # batch token rope.dims
    return torch.cat([whole, rest], dim=-1) if rest.shape[-1] else whole  # batch token head_dim


def as_rope(rope: Rope | Pairing | None, head_dim: int) -> Rope | None:
    """The rope that was asked for, with all it says; a pairing alone turns all channels, on base 10000.

    Raises:
        SpecError: it can't turn heads of this size, or no such pairing is known.
    """
    if rope is None:
        return None
    pairing = rope if isinstance(rope, str) else rope.pairing
    dims = None if isinstance(rope, str) else rope.dims
    if dims is not None and dims > head_dim:
        raise SpecError(
            f"rope turns the first {dims} channels, and head_dim={head_dim}.\nWrite dims={head_dim // 2 * 2}."
        )
    check_rope(head_dim if dims is None else dims, pairing)
    return Rope(pairing) if isinstance(rope, str) else rope
