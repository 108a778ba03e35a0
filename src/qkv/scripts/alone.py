"""One row of all context vectors against the same token's context vector computed alone, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.errors import QkvError
from qkv.masks import Causal, Everything
from qkv.oracle import Inputs, Run
from qkv.oracle.one_token import one_token
from qkv.report.matrices import Matrices, unlike
from qkv.scripts.known import Array, Known, close
from qkv.scripts.mixes import Mix
from qkv.spec import AttentionSpec

LONGEST = 256
"""Tokens; the slow loop takes long beyond."""

FEW = 16
"""Tokens up to which all their weights are computed alone too."""


@dataclass(frozen=True)
class Alone:
    """What comparing row by row has shown.

    Attributes:
        batch: the sequence of the first row that is wrong.
        token: its token.
        expected: its context vector, computed alone.
        got: the script's.
        wrong: which rows are wrong, of that sequence; none where all are right.
        weights: its row of weights in one head, as it should be and as it is; None where they can't be told.
        matrices: the same of every token, where these are few and differ; else their context vectors.
        weights_right: whether the token's weights are as they should be in all heads: what is wrong is their use.
    """

    batch: int
    token: int
    expected: Array
    got: Array
    wrong: Sequence[bool]
    weights: tuple[Array, Array] | None
    matrices: Matrices
    weights_right: bool = False


def against_alone(mix: Mix, causal: bool, factor: float, meant: Array | None = None) -> Alone | None:
    """The first context vector that differs from the one computed alone, or the first of all; None where none can be.

    Args:
        mix: the script's weights and values.
        causal: whether tokens are meant to see themselves and earlier ones only; a mask of the script's own is taken as
            it is otherwise.
        factor: what the scores are to be multiplied by in all.
        meant: where its mask is meant to let through, in the place of where it does; None for just there.
    """
    if mix.query is None or mix.key is None or mix.product is None or mix.biased:
        return None
    query, key, value = (_plain(one) for one in (mix.query, mix.key, mix.value))
    got = _plain(mix.context)
    if query is None or key is None or value is None or got is None or key.shape[-2] > LONGEST:
        return None
    if query.shape[-1] != key.shape[-1] or got.shape != (*query.shape[:-1], value.shape[-1]):
        return None
    spec = AttentionSpec(
        num_heads=query.shape[1], num_kv_heads=key.shape[1], head_dim=query.shape[-1], value_dim=value.shape[-1],
        out_proj=False, scale=factor / mix.factor_of_sides, mask=Causal() if causal else Everything(),
    )  # fmt: skip
    inputs = Inputs(query=query, key=key, value=value)
    visible = mix.visible if meant is None else meant
    if visible is not None and not causal:
        inputs = inputs.but(may_attend=_spread(visible, inputs.batch))
    try:
        return _first_difference(mix, spec, inputs, got)
    except QkvError:
        return None


def _spread(mask: Array, batch: int) -> Array:
    """A mask as ``(batch, head, query, key)``; of three axes the first are sequences where there are as many."""
    if mask.ndim == 3 and len(mask) == batch:
        return mask[:, None]
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _first_difference(mix: Mix, spec: AttentionSpec, inputs: Inputs, got: Array) -> Alone:
    tokens = range(got.shape[2]) if mix.token is None else [mix.token]
    for batch in range(got.shape[0]):
        expected = {token: np.array(one_token(spec, inputs, batch=batch, query=token)) for token in tokens}
        own = {token: got[batch, :, token].reshape(-1) for token in tokens}
        wrong = [not close(own[token], expected[token]) for token in tokens]
        if any(wrong) or batch == got.shape[0] - 1:
            token = tokens[wrong.index(True) if any(wrong) else 0]
            weights = _weights(mix, spec, inputs, batch, token)
            first = None if weights is None else (weights[0][0], weights[1][0])
            right = weights is not None and close(weights[1], weights[0])
            matrices = _matrices(mix, spec, inputs, batch, tokens) if got.shape[2] <= FEW else None
            if matrices is None or matrices.first is None:
                matrices = _contexts(expected, own)
            return Alone(batch, token, expected[token], own[token], wrong, first, matrices, right)
    raise QkvError("there is no sequence")


def _weights(mix: Mix, spec: AttentionSpec, inputs: Inputs, batch: int, token: int) -> tuple[Array, Array] | None:
    """A token's weights, ``(head, key)``: one-hot values, mixed alone, are the weights themselves."""
    own = _plain(mix.weights)
    if own is None:
        return None
    query, key = inputs.query, inputs.key
    assert query is not None
    assert key is not None
    length = key.shape[-2]
    one_hot = inputs.but(value=np.broadcast_to(np.eye(length), (*key.shape[:2], length, length)))
    expected = one_token(spec.but(value_dim=length), one_hot, batch=batch, query=token)
    rows = own.swapaxes(-1, -2) if mix.turned else own
    if rows.shape[-2:] != (query.shape[-2], length):
        return None
    return np.array(expected).reshape(-1, length), rows[batch, :, token]


def _contexts(expected: dict[int, Array], own: dict[int, Array]) -> Matrices:
    """The context vectors of all tokens, as they should be and as they are."""
    rows = np.stack([*expected.values()]), np.stack([*own.values()])
    return Matrices("context", ("query", "channel"), *rows, unlike(*rows), start=min(expected))


def _matrices(mix: Mix, spec: AttentionSpec, inputs: Inputs, batch: int, tokens: Sequence[int]) -> Matrices | None:
    """The weights of these tokens in the first head; None where they can't be told."""
    rows = [_weights(mix, spec, inputs, batch, token) for token in tokens]
    if any(row is None for row in rows):
        return None
    expected, got = (np.stack([row[side][0] for row in rows if row is not None]) for side in (0, 1))
    at = Run(spec, inputs).positions()
    may_attend = spec.mask.allows(at) & at.everywhere
    if inputs.may_attend is not None:
        may_attend = may_attend & inputs.may_attend
    shape = (inputs.batch, spec.num_heads, *may_attend.shape[-2:])
    masks = may_attend, np.True_ if mix.visible is None else _spread(mix.visible, inputs.batch)
    hidden, own = (~np.broadcast_to(mask, shape)[batch, 0, list(tokens)] for mask in masks)
    wrong = unlike(expected, got)
    return Matrices("attn_weights", ("query", "key"), expected, got, wrong, (hidden, own), tokens[0])


def _plain(known: Known) -> Array | None:
    """A known array as ``(batch, head, token, channel)``."""
    array = known.array.astype(float)
    if known.axes[:2] == ("batch", "head") and array.ndim == 4:
        return array
    if array.ndim == 3:
        return array[:, None] if known.axes[0] == "batch" else array[None]
    return array[None, None] if array.ndim == 2 else None
