"""The embedded model by the oracle: every number that its attention makes on the way, in float64 and without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qkv.masks import Causal
from qkv.model.storage import weights
from qkv.oracle import Array, Inputs, Linear, Parameters, Run, run_stages
from qkv.positions import Rope
from qkv.spec import AttentionSpec

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, mask=Causal(), rope=Rope("halves"))
"""What each attention of the embedded model computes."""


def trace(tokens: Sequence[int]) -> list[Run]:
    """What each attention does with a sequence, layer by layer.

    Args:
        tokens: numbers of words, see `Vocabulary.tokens`.

    Returns:
        A run for each layer: `run.weights` is ``(1, head, query, key)``, `run.before[stage]` what each stage was given.
    """
    arrays = {name: array.astype(np.float64) for name, array in weights().items()}
    hidden = arrays["embedding.weight"][np.asarray(tokens)][None]  # batch token embed_dim
    runs: list[Run] = []
    while f"norms.{len(runs)}.weight" in arrays:
        given = _normalised(hidden, arrays[f"norms.{len(runs)}.weight"])  # batch token embed_dim
        inputs = Inputs(x=given, parameters=_parameters(arrays, f"attentions.{len(runs)}"))
        runs.append(run_stages(SPEC, inputs))
        hidden = hidden + runs[-1].output  # batch token embed_dim
    return runs


def _parameters(arrays: Mapping[str, NDArray[np.float64]], place: str) -> Parameters:
    """The projections of the attention at a place of a state dict, as the oracle takes them."""
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    q_proj, k_proj, v_proj, out_proj = (Linear(arrays[f"{place}.{name}.weight"]) for name in names)
    return Parameters(q_proj, k_proj, v_proj, out_proj)


def _normalised(hidden: Array, weight: Array) -> Array:
    return hidden / np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + 1e-6) * weight
