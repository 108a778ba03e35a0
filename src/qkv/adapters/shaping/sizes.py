"""Sizes to try a candidate's shapes with: each axis has one of its own, so that no two can be taken for each other."""

from __future__ import annotations

from collections.abc import Mapping

from qkv.adapters.abilities import Abilities
from qkv.adapters.construction import Sizes
from qkv.adapters.messages import Facts
from qkv.adapters.names import role_of
from qkv.oracle import Inputs

PRIMES = (7, 13, 11, 19, 31, 37, 41, 43)
"""For tokens (or queries), keys where there may be another number of them, and sequences: the first that are free."""

HEADS, GROUP = 5, 3
"""Heads; where key and value have fewer, these are 5 and each of them is read by 3."""

HEAD_DIM, VALUE_DIM = 2 * 17, 2 * 19
"""Channels of a head: even, since rope turns pairs."""

EMBED_DIM = 2 * 23
"""Channels of a token, where these need not be as many as all heads have."""

CONTEXT_LENGTH = 29
"""Most tokens of a sequence."""


def own_sizes(abilities: Abilities) -> Sizes:
    """The sizes to build a class with that was seen to take some: as many of them different as were there."""
    shared = abilities.num_kv_heads != abilities.num_heads
    heads = HEADS * GROUP if shared else HEADS if abilities.num_heads > 1 else 1
    width = heads * HEAD_DIM
    tied = abilities.embed_dim == abilities.num_heads * abilities.head_dim
    return Sizes(
        embed_dim=width if tied else EMBED_DIM,
        num_heads=heads,
        num_kv_heads=HEADS if shared else heads,
        head_dim=HEAD_DIM,
        value_dim=HEAD_DIM if abilities.value_dim == abilities.head_dim else VALUE_DIM,
        context_length=CONTEXT_LENGTH,
    )


def axes_of(abilities: Abilities, inputs: Inputs) -> dict[str, int]:
    """The size of each axis of a call by name, the plainest first."""
    query_len, key_len = inputs.lengths
    lengths = {"tokens": query_len} if query_len == key_len else {"query": query_len, "key": key_len}
    axes = {"batch": inputs.batch, **lengths, "heads": abilities.num_heads}
    if abilities.num_kv_heads != abilities.num_heads:
        axes["kv_heads"] = abilities.num_kv_heads
    axes["head_dim"] = abilities.head_dim
    if abilities.value_dim != abilities.head_dim:
        axes["value_dim"] = abilities.value_dim
    if abilities.embed_dim and abilities.embed_dim not in axes.values():
        axes["embed_dim"] = abilities.embed_dim
    if axes.get("embed_dim") == abilities.num_heads * abilities.head_dim:
        del axes["embed_dim"]
    if abilities.max_tokens:
        axes["context_length"] = abilities.max_tokens
    return axes


def equal_sizes(abilities: Abilities, axes: Mapping[str, int]) -> dict[str, str]:
    """What goes by the name of another size: ``{"embed_dim": "heads*head_dim"}``."""
    equal = {}
    if abilities.embed_dim and "embed_dim" not in axes:
        whole = abilities.embed_dim == abilities.num_heads * abilities.head_dim and abilities.num_heads > 1
        equal["embed_dim"] = "heads*head_dim" if whole else "head_dim"
    if abilities.value_dim == abilities.head_dim:
        equal["value_dim"] = "head_dim"
    return equal


def sizes_said(facts: Facts) -> dict[str, int]:
    """The sizes that a class has by default, or that an object has, by the names of their axes."""
    said = {**{argument.name: argument.default for argument in facts.init}, **facts.attributes}
    sizes = {
        _AXIS_OF.get(role, role): value
        for name, value in said.items()
        if (role := role_of(name.rpartition(".")[2])) and isinstance(value, int) and not isinstance(value, bool)
    }
    if "head_dim" not in sizes and "embed_dim" in sizes and sizes.get("heads", 0) > 0:
        sizes["head_dim"] = sizes["embed_dim"] // sizes["heads"]
    return sizes


_AXIS_OF = {"num_heads": "heads", "num_kv_heads": "kv_heads", "out_dim": "embed_dim"}
"""What the axes are called that these arguments give the sizes of."""
