"""New values for a candidate's arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.adapters.messages import ArrayFacts, Facts
from qkv.adapters.names import SINKS, bare, bias_role, norm_role
from qkv.adapters.projections.norm_roles import norm_roles
from qkv.adapters.projections.norms import PLUS_ONE
from qkv.adapters.projections.paths import LEAVES, ArrayPath
from qkv.adapters.projections.pieces import State
from qkv.adapters.projections.scope import LINEARS


def randomised(facts: Facts, names: Iterable[str], state: State, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """New values for the named arrays, of their shape and dtype, such that zero biases and unit norms hide nothing.

    Args:
        facts: what the candidate says of itself.
        names: the arrays that a reading uses, see :attr:`ProjectionReading.names`; all others are left as they are.
        state: the arrays.
        rng: source of the numbers.
    """
    norms = norm_roles(facts)
    return {
        name: _drawn(name, facts.arrays[name], np.shape(state[name]), norms, rng).astype(np.asarray(state[name]).dtype)
        for name in names
    }


def _drawn(
    name: str, one: ArrayFacts, shape: tuple[int, ...], norms: Mapping[str, str], rng: np.random.Generator
) -> NDArray[np.float64]:
    path = ArrayPath.of(name)
    noise = rng.standard_normal(shape)
    if bare(path.stem) in SINKS:
        return noise
    if name.rpartition(".")[0] in norms or norm_role(path.stem):
        centre = 0.0 if name.rpartition(".")[2].lower() in LEAVES["bias"] or one.owner in PLUS_ONE else 1.0
        return centre + 0.3 * noise
    if path.leaf == "bias" or (not path.leaf and bias_role(path.stem)) or len(shape) < 2:
        return 0.5 * noise
    return noise * 1.5 / np.sqrt(_fan_in(one, shape))


def _fan_in(one: ArrayFacts, shape: tuple[int, ...]) -> int:
    """Channels that one result is summed over; for raw matrices the geometric mean of what it can be."""
    if one.owner == "Conv1D":
        return shape[0]
    if one.owner.endswith(LINEARS) or len(shape) != 2:
        return shape[1]
    return max(1, round(float(np.sqrt(shape[0] * shape[1]))))
