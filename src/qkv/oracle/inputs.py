"""What an attention is given: tokens and parameters, or query, key and value made already; and masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Array = Any


@dataclass(frozen=True)
class Linear:
    """A projection ``x @ weight.T + bias``.

    Attributes:
        weight: ``(out, in)``.
        bias: ``(out,)`` or None.
    """

    weight: Array
    bias: Array | None = None


@dataclass(frozen=True)
class Norm:
    """A normalisation over the last axis.

    Attributes:
        kind: ``rms`` divides by the root mean square, ``layer`` takes the mean off first, ``l2`` divides by the length.
        weight: multiplies the result, ``(channels,)``; None for none.
        bias: is added to the result, ``(channels,)``; None for none.
        eps: is added to the mean square before its root.
        plus_one: whether ``1 + weight`` multiplies (Gemma).
    """

    kind: Literal["rms", "layer", "l2"] = "rms"
    weight: Array | None = None
    bias: Array | None = None
    eps: float = 1e-6
    plus_one: bool = False


@dataclass(frozen=True)
class Parameters:
    """The learned arrays of an attention.

    Attributes:
        q_proj: ``embed_dim`` to ``num_heads * head_dim``.
        k_proj: to ``num_kv_heads * head_dim``.
        v_proj: to ``num_kv_heads * value_dim``.
        out_proj: ``num_heads * value_dim`` to the output; None where there is none.
        q_norm: normalisation of the query, see ``AttentionSpec.qk_norm``.
        k_norm: normalisation of the key.
        fused: the array that holds q, k and v in one, as the candidate stores it turned to ``(out, in)``; None where
            they are apart. Only faults of its layout look at it.
    """

    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    out_proj: Linear | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    fused: Linear | None = None


@dataclass(frozen=True)
class Inputs:
    """One call's inputs. Either ``x`` and ``parameters``, or ``query``, ``key`` and ``value``.

    Attributes:
        x: ``(batch, query_len, embed_dim)``.
        source: where key and value come from, ``(batch, key_len, embed_dim)``; None means ``x`` itself.
        value_source: where the value comes from, when that is another array than the key's.
        parameters: projections and norms.
        query: ``(batch, num_heads, query_len, head_dim)``.
        key: ``(batch, num_kv_heads, key_len, head_dim)``.
        value: ``(batch, num_kv_heads, key_len, value_dim)``.
        may_attend: a mask handed over with the call, True = may attend; broadcasts to ``(batch, head, query, key)``.
        is_token: False where a key is padding, ``(batch, key_len)``.
        document: document number of each token, ``(batch, key_len)``.
        bias: handed over and added to the scores; broadcasts to ``(batch, head, query, key)``.
        sinks: each head's score of the sink, ``(num_heads,)``.
        strided: whether the arrays lie in memory in another order than their axes: ``(batch, token, head, dim)``. Only
            faults of memory look at it.
        steps: numbers of tokens that the sequence is handed over in, one call each, as with a cache; empty means in
            one call. In the inputs of one such call, those of the calls so far, its own the last.
        earlier: another sequence that was handed over before this one, of as many sequences; None for none. Only faults
            of caches look at it.
    """

    x: Array | None = None
    source: Array | None = None
    value_source: Array | None = None
    parameters: Parameters | None = None
    query: Array | None = None
    key: Array | None = None
    value: Array | None = None
    may_attend: Array | None = None
    is_token: Array | None = None
    document: Array | None = None
    bias: Array | None = None
    sinks: Array | None = None
    strided: bool = False
    steps: tuple[int, ...] = ()
    earlier: Inputs | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """``query_len`` and ``key_len``."""
        if self.query is not None and self.key is not None:
            return self.query.shape[-2], self.key.shape[-2]
        if self.x is None:
            raise ValueError("Inputs needs either x with parameters, or query, key and value; it has neither")
        return self.x.shape[1], (self.x if self.source is None else self.source).shape[1]

    @property
    def batch(self) -> int:
        """Number of sequences."""
        array = self.query if self.query is not None else self.x
        return int(array.shape[0])  # type: ignore[union-attr]  # one of the two is there, see lengths

    def but(self, **changes: Any) -> Inputs:
        """The same inputs with some of them changed."""
        return dataclasses.replace(self, **changes)

    def arrays(self) -> Iterator[Array]:
        """Every array in it, parameters included."""
        yield from _arrays(self)

    def map(self, change: Callable[[Array], Array]) -> Inputs:
        """The same inputs with every array changed by a function (to another dtype, library or device)."""
        changed: Inputs = _map(self, change)
        return changed


def _arrays(node: Any) -> Iterator[Array]:
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from _arrays(value)
        elif hasattr(value, "shape"):
            yield value


def _map(node: Any, change: Callable[[Array], Array]) -> Any:
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = _map(value, change)
        elif hasattr(value, "shape"):
            changes[field.name] = change(value)
    return dataclasses.replace(node, **changes)
