"""Which mask makes what was seen, and where do the queries stand?"""

from __future__ import annotations

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification import biases
from qkv.identification.found import Found
from qkv.identification.mask_rules import rule_of
from qkv.masks import Everything


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters each head's mask, and where the first query stands as far as masks or positions show it."""
    view, shown = found.view, _first_position(found)
    for group in view.alike(found.heads):
        read = rule_of(view.of_head(group[0]), view.square, shown)
        for head in group:
            found.rules[head] = read
    if shown:
        found.offset, found.offset_shown = shown, True
    rule = found.one_rule
    if rule is not None:
        found.offset = rule.offsets[0]
        found.offset_shown = bool(shown) or (rule.mask != Everything() and len(rule.offsets) == 1)


def _first_position(found: Found) -> int | None:
    """Where the first query stands at equal lengths, where rope or alibi show that it is not at the first key."""
    if found.frequencies is not None:
        return int(np.rint(found.frequencies.offset)) or None
    square = found.exact_square
    seen = found.view.sights[square]
    for head in found.heads:
        read = biases.biases_of(seen.even[head], found.exact(square)[head], EPSILON[found.precision], 0)
        if read.offset:
            return read.offset
    return None
