"""Rope: query and key are turned by an angle that grows with position, so a score depends on their distance only.

Source: Su et al. 2021, "RoFormer". The two pairings of channels in use differ by a permutation of the channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import array_api_compat

from qkv.errors import SpecError, nearest
from qkv.positions.wording import number
from qkv.vocabulary import Pairing

Array = Any

ScalingKind = Literal["linear", "llama3", "yarn"]


@dataclass(frozen=True)
class RopeScaling:
    """How the frequencies are changed to reach beyond the length a model was trained on.

    Attributes:
        kind: ``linear`` divides every frequency by ``factor``; ``llama3`` only the slow ones, with a ramp between two
            wavelengths (Llama 3.1); ``yarn`` ramps over the channels and scales query and key (Peng et al. 2023).
        factor: new length over old length.
        original_length: tokens of the original training length, in llama3 and yarn.
        low_freq_factor: llama3: wavelengths above ``original_length / low_freq_factor`` are divided.
        high_freq_factor: llama3: wavelengths below ``original_length / high_freq_factor`` stay.
        beta_fast: yarn: channels that turn more often than this over the original length stay.
        beta_slow: yarn: channels that turn less often than this are divided.
        attention_factor: yarn: what query and key are both multiplied by; ``0.1 ln(factor) + 1`` when None, and 1 where
            nothing is stretched (``factor`` of 1 or less).
        truncate: yarn: whether the ramp begins and ends at whole channels, as it did at first (gpt-oss: between them).
    """

    kind: ScalingKind
    factor: float
    original_length: int = 8192
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("linear", "llama3", "yarn"):
            raise SpecError(
                f"rope scaling {self.kind!r} is not known; {nearest(self.kind, ['linear', 'llama3', 'yarn'])}"
            )
        if not 0 < self.factor < math.inf:
            raise SpecError(f"rope scaling factor is {self.factor}, and must be above 0 (2.0 doubles the length)")
        if self.original_length < 1:
            raise SpecError(f"rope original_length is {self.original_length}, and must be 1 or more: it counts tokens")
        for slow, fast in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
            if not 0 < getattr(self, slow) < getattr(self, fast) < math.inf:
                raise SpecError(
                    f"rope scaling has {slow} {getattr(self, slow)} and {fast} {getattr(self, fast)}; both must be "
                    f"above 0 and {slow} the smaller one, since the ramp runs from the slow channels to the fast ones"
                )

    def __str__(self) -> str:
        changed = [
            f"{field.name} {number(getattr(self, field.name))}"
            for field in fields(self)[2:]
            if getattr(self, field.name) != field.default
        ]
        return " ".join(
            [f"{self.kind} scaling by {number(self.factor)}", *([f"({', '.join(changed)})"] if changed else [])]
        )


@dataclass(frozen=True)
class Rope:
    """Which channels are paired, how fast each pair turns, and how many channels turn at all.

    Attributes:
        pairing: ``halves`` or ``adjacent``.
        base: the base of the geometric row of frequencies (``rope_theta``).
        dims: how many of the head's channels are rotated, the first ones; None means all.
        scaling: a change of the frequencies for longer texts.
    """

    pairing: Pairing = "halves"
    base: float = 10000.0
    dims: int | None = None
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        if self.pairing not in ("halves", "adjacent"):
            raise SpecError(f"rope pairing {self.pairing!r} is not known; write 'halves' or 'adjacent'")
        if not 0 < self.base < math.inf:
            raise SpecError(f"rope base is {self.base}, and must be above 0 (the usual one is 10000)")
        if self.base <= 1 and self.scaling is not None and self.scaling.kind == "yarn":
            raise SpecError(f"rope base is {self.base}, and must be above 1 for yarn (the usual one is 10000)")
        if self.dims is not None and (self.dims < 2 or self.dims % 2):
            raise SpecError(f"rope dims is {self.dims}, and must be an even number of channels, 2 or more")

    def rotary_dims(self, head_dim: int) -> int:
        """How many channels turn in a head of ``head_dim`` channels."""
        return head_dim if self.dims is None else self.dims

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians per token of each pair, fastest first."""
        dims = self.rotary_dims(head_dim)
        plain = [self.base ** (-2 * pair / dims) for pair in range(dims // 2)]
        match self.scaling:
            case None:
                return plain
            case RopeScaling(kind="linear"):
                return [frequency / self.scaling.factor for frequency in plain]
            case RopeScaling(kind="llama3"):
                return [_llama3(frequency, self.scaling) for frequency in plain]
            case _:
                return _yarn(plain, self.base, dims, self.scaling)

    @property
    def attention_factor(self) -> float:
        """What rotated query and key are multiplied by: 1 except in yarn."""
        scaling = self.scaling
        if scaling is None or scaling.kind != "yarn":
            return 1.0
        if scaling.attention_factor is not None:
            return scaling.attention_factor
        return 0.1 * math.log(max(scaling.factor, 1.0)) + 1.0

    def __str__(self) -> str:
        dims = [] if self.dims is None else [f"first {self.dims} channels"]
        scaling = [] if self.scaling is None else [str(self.scaling)]
        return f"rope on {self.pairing} ({', '.join([f'base {number(self.base)}', *dims, *scaling])})"


def rotate(x: Array, positions: Array, frequencies: Array, pairing: Pairing, factor: float = 1.0) -> Array:
    """``x`` with its first ``2 * len(frequencies)`` channels turned, the others as they were.

    Args:
        x: ``(..., token, dim)``.
        positions: absolute position of each token, ``(token,)`` or any shape that broadcasts to ``x.shape[:-1]``.
        frequencies: radians per token of each pair, ``(pair,)``.
        pairing: which channels make a pair.
        factor: multiplies the rotated channels (yarn's attention factor).
    """
    xp = array_api_compat.array_namespace(x)
    angles = positions[..., None] * frequencies
    cos, sin = xp.cos(angles) * factor, xp.sin(angles) * factor
    pairs = frequencies.shape[0]
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if pairing == "halves":
        first, second = turned[..., :pairs], turned[..., pairs:]
        turned = xp.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
    else:
        first, second = turned[..., 0::2], turned[..., 1::2]
        both = xp.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
        turned = xp.reshape(both, turned.shape)
    return xp.concat([turned, rest], axis=-1)


def _llama3(frequency: float, scaling: RopeScaling) -> float:
    turns = scaling.original_length * frequency / (2 * math.pi)
    if turns > scaling.high_freq_factor:
        return frequency
    if turns < scaling.low_freq_factor:
        return frequency / scaling.factor
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _yarn(plain: list[float], base: float, dims: int, scaling: RopeScaling) -> list[float]:
    def pair_that_turns(turns: float) -> float:
        return dims * math.log(scaling.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    span = max(high - low, 0.001)
    slowed = [min(max((pair - low) / span, 0.0), 1.0) for pair in range(len(plain))]
    return [f * (1 - part) + f / scaling.factor * part for f, part in zip(plain, slowed, strict=True)]
