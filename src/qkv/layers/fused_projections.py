"""The projections as `torch.nn.MultiheadAttention` stores them: query, key and value stacked in one matrix."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def split_fused_projections(_: nn.Module, state_dict: dict[str, Tensor], prefix: str, *__: Any) -> None:
    """Gives the projections in a state dict of torch's layer the names they have here, in place.

    Made for `nn.Module.register_load_state_dict_pre_hook`. Where no such name is found, nothing changes.

    Args:
        state_dict: of `torch.nn.MultiheadAttention`, or of a model with one at `prefix`. With `kdim` or `vdim` its
            three matrices are apart, and the biases still stacked.
        prefix: where in the model the layer stands.
    """
    for fused, parameter in (("in_proj_weight", "weight"), ("in_proj_bias", "bias")):
        if prefix + fused in state_dict:
            stacked = state_dict.pop(prefix + fused)  # 3*embed_dim embed_dim, or 3*embed_dim
            for name, part in zip(_PROJECTIONS, stacked.chunk(3), strict=True):
                state_dict[f"{prefix}{name}.{parameter}"] = part
    for name in _PROJECTIONS:
        if f"{prefix}{name}_weight" in state_dict:
            state_dict[f"{prefix}{name}.weight"] = state_dict.pop(f"{prefix}{name}_weight")
