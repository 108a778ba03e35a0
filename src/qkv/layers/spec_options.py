"""The options of a layer that computes what a spec says."""

from __future__ import annotations

from typing import Any

from qkv.errors import SpecError
from qkv.masks import Causal
from qkv.spec import AttentionSpec


def options_of(spec: AttentionSpec, embed_dim: int | None = None) -> dict[str, Any]:
    """Arguments for `Attention`.

    Args:
        spec: what is to be computed.
        embed_dim: numbers in the vector of a token, where the spec leaves them open.

    Raises:
        SpecError: no option says it.
    """
    if spec.embed_dim is None and embed_dim is None:
        raise SpecError("the spec leaves embed_dim open, and a layer needs it.\nWrite embed_dim=... beside the spec.")
    refused = [
        ("relative_bias", spec.relative_bias is not None),
        ("query_offset", spec.query_offset != "bottom_right"),
        ("empty_row", spec.empty_row != "zero"),
        ("alibi.signed", spec.alibi is not None and spec.alibi.signed and not spec.masks(Causal)),
    ]
    for name, given in refused:
        if given:
            raise SpecError(f"the spec says {name}, and Attention has no option for it.\nUse qkv.attend for that part.")
    alibi: Any = False if spec.alibi is None else True if spec.alibi.slopes is None else spec.alibi.slopes
    return {
        "embed_dim": embed_dim if spec.embed_dim is None else spec.embed_dim,
        "num_heads": spec.num_heads,
        "num_kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "value_dim": spec.value_dim,
        "bias": spec.projection_bias,
        "out_proj": spec.out_proj,
        "qk_norm": spec.qk_norm,
        "mask": spec.mask,
        "rope": spec.rope,
        "alibi": alibi,
        "softcap": spec.softcap,
        "sinks": spec.sinks,
        "scale": spec.scale,
        "dropout": spec.dropout_p,
    }
