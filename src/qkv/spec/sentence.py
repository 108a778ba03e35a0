"""The spec as one sentence. Every option that isn't the default is in it, so two specs never read the same.

A clause a function: a new field of the spec gets a new clause here. The spec itself isn't imported, since it prints
itself with this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qkv.masks import And, Causal, Everything, Or, Prefix, SlidingWindow, Unexplained
from qkv.positions.wording import number


def describe(spec: Any) -> str:
    """The spec in words: ``6 query heads over 2 key/value heads of 8 channels, scores times 1/sqrt(8), causal, ...``.

    Args:
        spec: an :class:`~qkv.spec.attention_spec.AttentionSpec`.
    """
    return ", ".join(text for clause in CLAUSES if (text := clause(spec)))


def differences(one: Any, other: Any) -> tuple[list[str], list[str]]:
    """The clauses in which two specs differ, as the one has them and as the other has them."""
    pairs = [(clause(one), clause(other)) for clause in CLAUSES]
    ours, theirs = ([pair[side] for pair in pairs if pair[0] != pair[1] and pair[side]] for side in (0, 1))
    return ours, theirs


def _heads(spec: Any) -> str:
    if spec.num_kv_heads is not None:
        heads = f"{_count(spec.num_heads, 'query head')} over {_count(spec.num_kv_heads, 'key/value head')}"
    else:
        heads = _count(spec.num_heads, "head")
    channels = "" if spec.head_dim is None else f" of {_count(spec.head_dim, 'channel')}"
    values = "" if spec.value_dim is None else f" with values of {_count(spec.value_dim, 'channel')}"
    tokens = "" if spec.embed_dim is None else f" on tokens of {_count(spec.embed_dim, 'channel')}"
    return heads + channels + values + tokens


def _count(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def _projections(spec: Any) -> str:
    return "biases on the projections" if spec.projection_bias else ""


def _qk_norm(spec: Any) -> str:
    what = {"head": "per head", "width": "over their whole width"}.get(spec.qk_norm)
    return f"query and key normalised {what}" if what else ""


def _rope(spec: Any) -> str:
    return str(spec.rope) if spec.rope else ""


def _scale(spec: Any) -> str:
    if spec.scale is not None:
        return f"scores times {number(spec.scale)}"
    return f"scores times 1/sqrt({'head_dim' if spec.head_dim is None else spec.head_dim})"


def _softcap(spec: Any) -> str:
    return "" if spec.softcap is None else f"scores capped at {number(spec.softcap)} by tanh"


def _alibi(spec: Any) -> str:
    return str(spec.alibi) if spec.alibi else ""


def _relative_bias(spec: Any) -> str:
    return str(spec.relative_bias) if spec.relative_bias else ""


def _mask(spec: Any) -> str:
    match spec.mask:
        case Unexplained():
            return "a mask that no one rule makes for all heads"
        case Everything():
            return "no mask"
        case Or(left=Causal(ahead=0), right=Prefix(length=length)):
            return f"causal after a prefix of {_count(length, 'token')} that all queries see"
        case Causal(ahead=0):
            return "causal"
        case SlidingWindow(size=size):
            return f"a window of {_count(size, 'key')} on each side, the query's own included"
        case And(left=Causal(ahead=0), right=SlidingWindow(size=size)):
            return f"causal within a window of {_count(size, 'key')}"
    return f"mask {spec.mask}"


def _query_offset(spec: Any) -> str:
    match spec.query_offset:
        case "bottom_right":
            return ""
        case "top_left":
            return "queries and keys aligned at the first token"
    return f"first query at position {spec.query_offset}"


def _sinks(spec: Any) -> str:
    return "a sink per head" if spec.sinks else ""


def _empty_row(spec: Any) -> str:
    gives = {"nan": "NaN", "uniform": "the mean of all values"}.get(spec.empty_row)
    return f"{gives} for a query without keys" if gives else ""


def _dropout(spec: Any) -> str:
    return f"dropout {number(spec.dropout_p)} in training" if spec.dropout_p else ""


def _out_proj(spec: Any) -> str:
    return "" if spec.out_proj else "no output projection"


CLAUSES: tuple[Callable[[Any], str], ...] = (
    _heads,
    _projections,
    _qk_norm,
    _scale,
    _softcap,
    _mask,
    _query_offset,
    _rope,
    _alibi,
    _relative_bias,
    _sinks,
    _empty_row,
    _dropout,
    _out_proj,
)
"""The clauses in the order they are read."""
