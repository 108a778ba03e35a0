"""What an attention makes of positions on its way: distances, tables of rope, turned halves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.oracle import Run
from qkv.oracle.inputs import Array
from qkv.positions import Rope
from qkv.recognition.known import KEYS, PAIRS, QUERIES, Known
from qkv.recognition.known_slopes import alibi_knowns
from qkv.vocabulary import Stage


def position_knowns(run: Run) -> Iterator[Known]:
    """Positions, and all that rope and alibi make of them."""
    query, key = (np.asarray(at, dtype=float) for at in run.token_positions())
    if np.array_equal(query, key):
        yield Known("positions of the tokens", None, ("token",), query)
    else:
        yield Known("positions of the queries", None, ("query",), query)
        yield Known("positions of the keys", None, ("key",), key)
    distance = key[None, :] - query[:, None]
    yield Known("distance", None, PAIRS[2:], distance, (1.0, -1.0), whole=True)
    if run.spec.alibi is not None:
        yield from alibi_knowns(run, query, key)
    if run.spec.rope is not None:
        yield from _rope(run, run.spec.rope, query, key)


def _rope(run: Run, rope: Rope, query_at: Array, key_at: Array) -> Iterator[Known]:
    given = run.before[Stage.POSITION]
    head_dim = given.query.shape[-1]
    dims = rope.rotary_dims(head_dim)
    exponents = np.arange(0, dims, 2) / dims
    frequencies = np.asarray(rope.frequencies(head_dim))
    for name, row, factors in (
        ("channels of rope", np.arange(0, dims, 2), (1.0, -1.0)),
        ("exponents of rope", exponents, (1.0, -1.0)),
        ("wavelengths of rope", rope.base**exponents, (1.0,)),
        ("wavelengths of rope", 1 / frequencies, (1.0,)),
        ("frequencies of rope", frequencies, (1.0,)),
    ):
        yield Known(name, Stage.POSITION, ("pair",), row, factors)
    for axes, at, x in ((QUERIES, query_at, given.query), (KEYS, key_at, given.key)):
        angles = at[:, None] * frequencies
        yield Known("angles of rope", Stage.POSITION, (axes[2], "pair"), angles)
        yield Known("angles of rope", Stage.POSITION, (axes[2], "dim"), _for_channels(angles, rope))
        turns = np.stack([np.cos(angles), np.sin(angles)], axis=-1)  # complex numbers of length one
        yield Known("turns of rope", Stage.POSITION, (axes[2], "pair", "part"), turns * rope.attention_factor)
        for order in (turns, turns[..., ::-1]):  # side by side: cos, then sin, or the other way round
            beside = order.transpose(0, 2, 1) * rope.attention_factor
            yield Known("table of rope", Stage.POSITION, (axes[2], "part", "pair"), beside)
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            for factor in dict.fromkeys((rope.attention_factor, 1.0)):
                yield Known(f"{name} of rope", Stage.POSITION, (axes[2], "pair"), table * factor)
                yield Known(f"{name} of rope", Stage.POSITION, (axes[2], "dim"), _for_channels(table * factor, rope))
        yield from _turned(run, rope, axes, x, angles)


def _turned(run: Run, rope: Rope, axes: tuple[str, ...], x: Array, angles: Array) -> Iterator[Known]:
    """The halves of query or key, and the products that rope is a sum of; with heads shared and not."""
    name = axes[2]
    step = 1 if name == "query" else run.spec.group_size
    pairs = angles.shape[-1]
    cos, sin = (f(angles) * rope.attention_factor for f in (np.cos, np.sin))
    for shared in dict.fromkeys((1, step)):
        every = x[:, ::shared]
        turned = every[..., : 2 * pairs]
        halves = rope.pairing == "halves"
        first, second = (turned[..., :pairs], turned[..., pairs:]) if halves else (turned[..., 0::2], turned[..., 1::2])
        quarter = (
            np.concatenate([-second, first], -1) if halves else np.stack([-second, first], -1).reshape(turned.shape)
        )
        small, wide = (*axes[:3], "pair"), axes
        for part, array in (
            ("first half", first), ("second half", second), ("first half by cos", first * cos),
            ("second half by cos", second * cos), ("first half by sin", first * sin),
            ("second half by sin", second * sin),
            ("first half, turned", first * cos - second * sin), ("second half, turned", second * cos + first * sin),
        ):  # fmt: skip
            yield Known(f"{name}, {part}", Stage.POSITION, small, array, (1.0, -1.0))
        for part, array in (
            ("channels to turn", turned), ("a quarter turn on", quarter),
            ("by cos", turned * _for_channels(cos, rope)),
            ("a quarter turn on, by sin", quarter * _for_channels(sin, rope)),
        ):  # fmt: skip
            yield Known(f"{name}, {part}", Stage.POSITION, wide, array)
        if 2 * pairs < every.shape[-1]:
            both = turned * _for_channels(cos, rope) + quarter * _for_channels(sin, rope)
            yield Known(f"{name}, channels that are turned", Stage.POSITION, wide, both)
            yield Known(f"{name}, channels that stay", Stage.POSITION, wide, every[..., 2 * pairs :])


def _for_channels(table: Array, rope: Rope) -> Array:
    """``(token, pair)`` as ``(token, dim)``: each pair's number for both of its channels."""
    return np.concatenate([table, table], -1) if rope.pairing == "halves" else np.repeat(table, 2, axis=-1)
