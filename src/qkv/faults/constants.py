"""Names for estimated numbers: 0.3535 is 1/sqrt(8), and saying so is half the diagnosis."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qkv.oracle import Inputs
from qkv.spec import AttentionSpec


def named(value: float, candidates: Mapping[str, float], tolerance: float = 1e-4) -> str:
    """``value`` as text, with the name of the candidate it equals to ``tolerance`` where one does."""
    for name, number in candidates.items():
        if abs(value - number) <= tolerance * max(abs(number), 1e-12):
            return f"{value:.6g} = {name}"
    return f"{value:.6g}"


def sizes(spec: AttentionSpec, inputs: Inputs) -> dict[str, int]:
    """Every size of the spec and the call by its name, the ones people mix up most often first."""
    query_len, key_len = inputs.lengths
    found = {"head_dim": _head_dim(spec, inputs), "value_dim": _value_dim(spec, inputs)}
    found["num_heads"] = spec.num_heads
    found["embed_dim"] = int(inputs.x.shape[-1]) if inputs.x is not None else spec.embed_dim or 0
    found["num_heads * head_dim"] = spec.num_heads * found["head_dim"]
    found["key_len"], found["query_len"] = int(key_len), int(query_len)
    found["num_kv_heads"] = spec.kv_heads
    found["num_kv_heads * head_dim"] = spec.kv_heads * found["head_dim"]
    found["head_dim // 2"] = found["head_dim"] // 2
    found["batch"] = inputs.batch
    return {name: size for name, size in found.items() if size > 0}


def _head_dim(spec: AttentionSpec, inputs: Inputs) -> int:
    if inputs.query is not None:
        return int(inputs.query.shape[-1])
    if inputs.parameters is not None:
        return int(inputs.parameters.q_proj.weight.shape[0]) // spec.num_heads
    return spec.head_dim or 0


def _value_dim(spec: AttentionSpec, inputs: Inputs) -> int:
    if inputs.value is not None:
        return int(inputs.value.shape[-1])
    if inputs.parameters is not None:
        return int(inputs.parameters.v_proj.weight.shape[0]) // spec.kv_heads
    return spec.value_dim or spec.head_dim or 0


def size_names(spec: AttentionSpec, inputs: Inputs) -> dict[str, float]:
    """What people make of sizes: roots and fractions first, plain sizes last."""
    known = sizes(spec, inputs)
    bracketed = {(f"({name})" if " " in name else name): size for name, size in known.items()}
    return {
        **{f"1/sqrt{name if name[0] == '(' else f'({name})'}": size**-0.5 for name, size in bracketed.items()},
        **{f"1/{name}": 1 / size for name, size in bracketed.items()},
        **{f"sqrt{name if name[0] == '(' else f'({name})'}": size**0.5 for name, size in bracketed.items()},
        **{name: float(size) for name, size in known.items()},
        **{f"{name}^-1/4": size**-0.25 for name, size in bracketed.items()},
        **{f"{name}^-3/2": size**-1.5 for name, size in bracketed.items()},
        **{f"1/ln({name})": 1 / math.log(size) for name, size in known.items() if size > 1},
    }


PLAIN_NUMBERS: dict[str, float] = {
    "1": 1.0,
    "-1": -1.0,
    "2": 2.0,
    "1/2": 0.5,
    "ln(2)": math.log(2),
    "1/ln(2)": 1 / math.log(2),
    "1/10": 0.1,
    "1/100": 0.01,
}
"""Numbers that stand for themselves."""


def factor_names(spec: AttentionSpec, inputs: Inputs) -> dict[str, float]:
    """Names for a factor on something that has no scale of its own: plain numbers, then what sizes make."""
    scale = spec.scale_for(max(_head_dim(spec, inputs), 1))
    own = {} if scale == 0 else {"the scale": scale, "1/scale": 1 / scale}
    return {**PLAIN_NUMBERS, **own, **size_names(spec, inputs)}


def scale_names(spec: AttentionSpec, inputs: Inputs) -> dict[str, float]:
    """Names for a scale: what sizes make, constants of well-known models, and multiples of the right one."""
    right = spec.scale_for(max(_head_dim(spec, inputs), 1))
    multiples = {
        "2 * the scale": 2 * right,
        "the scale / 2": right / 2,
        "sqrt(2) * the scale": math.sqrt(2) * right,
        "the scale / sqrt(2)": right / math.sqrt(2),
        "ln(2) * the scale": math.log(2) * right,
        "the scale / ln(2)": right / math.log(2),
        "minus the scale": -right,
        "the scale squared": right**2,
    }
    models = {f"1/sqrt({number})": number**-0.5 for number in (64, 96, 112, 128, 144, 168, 192, 224, 256, 512)}
    return {"1": 1.0, "-1": -1.0, **size_names(spec, inputs), **multiples, **models, **PLAIN_NUMBERS}
