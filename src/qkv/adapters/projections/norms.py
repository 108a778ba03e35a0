"""Normalisations of query and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from qkv.adapters.messages import Facts
from qkv.adapters.projections.found import Found
from qkv.adapters.projections.norm_roles import norm_roles
from qkv.adapters.projections.pieces import NormPiece
from qkv.adapters.projections.scope import Scope

PLUS_ONE = (
    *("GemmaRMSNorm", "Gemma2RMSNorm", "Gemma3RMSNorm", "T5GemmaRMSNorm", "T5Gemma2RMSNorm", "VaultGemmaRMSNorm"),
    *("RecurrentGemmaRMSNorm", "Qwen3NextRMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm", "Qwen4ExpTextRMSNorm"),
    *("Step3p7RMSNorm", "MiniMaxM3VLRMSNorm", "MuseGlimmerTextCenteredRMSNorm", "MuseSparkTextCenteredRMSNorm"),
)
"""Classes whose weight is kept as its distance from one."""

_EPS_NAMES = ("eps", "variance_epsilon", "epsilon", "norm_eps")


def norms_of(found: Found, scope: Scope, facts: Facts) -> tuple[NormPiece | None, NormPiece | None]:
    """The normalisations of query and key in this scope."""
    arrays = {role: names for (at, role), names in found.norms.items() if at == scope.at}
    modules = {}
    for dotted, role in norm_roles(facts).items():
        if tuple(dotted.split(".")[:-1]) == scope.at:
            modules[role] = (dotted, facts.submodules[dotted])
    found_norms = {role: _norm(arrays.get(role, {}), modules.get(role), facts) for role in {*arrays, *modules}}
    both = found_norms.get("qk")
    return found_norms.get("q", both), found_norms.get("k", both)


def _norm(names: Mapping[str, str], module: tuple[str, str] | None, facts: Facts) -> NormPiece:
    dotted, owner = module or ("", "")
    weight, bias = names.get("weight"), names.get("bias")
    shape = tuple(facts.arrays[weight].shape) if weight else ()
    eps = next((facts.attributes[key] for name in _EPS_NAMES if (key := f"{dotted}.{name}") in facts.attributes), 1e-6)
    return NormPiece(
        kind=_norm_kind(owner, bias is not None),
        weight=weight,
        bias=bias,
        # torch's RMSNorm without an eps takes that of the dtype it computes in.
        eps=float(eps) if isinstance(eps, int | float) else float(np.finfo(np.float64).eps),
        plus_one=owner in PLUS_ONE,
        shape=shape,
    )


def _norm_kind(owner: str, has_bias: bool) -> Literal["rms", "layer", "l2"]:
    lower = owner.lower()
    if "l2" in lower:
        return "l2"
    if "rms" in lower or "t5" in lower:
        return "rms"
    return "layer" if "layer" in lower or has_bias else "rms"
