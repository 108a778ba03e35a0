"""What the style modules share: text edits, pairs of edits, seeded inputs and parameters."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

Edit = tuple[str, str]
Edits = list[Edit]


def apply(source: str, edits: Sequence[Edit]) -> str:
    """Source with each edit made in turn; the old text of an edit must occur exactly once."""
    for old, new in edits:
        count = source.count(old)
        if count != 1:
            raise ValueError(f"the text to replace occurs {count} times, not once: {old!r}")
        source = source.replace(old, new)
    return source


def pairs(faults: Mapping[str, Edits], *chosen: tuple[str, str]) -> dict[tuple[str, str], Edits]:
    """Edits of two faults at the same time, for each chosen pair of fault ids."""
    return {(first, second): faults[first] + faults[second] for first, second in chosen}


def randomised(module: torch.nn.Module, spread: float = 0.3) -> Any:
    """The module in float64 and evaluation mode, every parameter random by its own name."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread
            parameter.copy_(values + 1.0 if "norm" in name else values)
    return module.double().eval()


def normal(*shape: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    """A float64 tensor of seeded normal numbers."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * size


def normal_array(*shape: int, seed: int = 0, size: float = 1.0) -> np.ndarray:
    """A float64 array of seeded normal numbers."""
    return np.random.default_rng(1000 + seed).normal(size=shape) * size


def module_outputs(module: torch.nn.Module, width: int = 48, large: bool = True) -> list[torch.Tensor]:
    """Outputs of a self-attention module on a batch of 3 and, with far larger scores, on a batch of 2."""
    module = randomised(module)
    with torch.no_grad():
        outputs = [module(normal(3, 11, width, seed=1))]
        if large:
            outputs.append(module(normal(2, 7, width, seed=2, size=6.0)))
    return outputs
