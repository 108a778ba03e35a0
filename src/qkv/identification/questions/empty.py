"""What does a row give that may attend to nothing?"""

from __future__ import annotations

import numpy as np

from qkv.identification.found import Found
from qkv.identification.mask_rules import allowed_by
from qkv.masks import Everything


def ask(found: Found, rng: np.random.Generator) -> None:
    """Nothing; enters what is seen at lengths of which the mask leaves some row without keys."""
    rule = next((rule for rule in found.rules if rule is not None and rule.mask != Everything()), None)
    if found.one_rule is None or rule is None:
        return
    heads = [head for head in found.heads if found.rules[head] == rule]
    tokens = found.box.sizes.tokens
    for lengths in ((tokens + 2, tokens - 3), (3 * tokens, tokens - 3), (60, tokens - 3)):
        right = allowed_by(rule.mask, found.offset, lengths, rule.documents)
        empty = ~right.any(axis=-1)
        if not empty.any() or empty.all():
            continue
        seen = found.view.look(found.reader, lengths, rng)
        if seen is None:
            continue
        rows = seen.even[heads][:, empty]
        if np.isnan(rows).any():
            found.empty_row = "nan"
        elif (rows == 0).all():
            found.empty_row = "zero"
        elif np.allclose(rows, 1 / lengths[1], rtol=1e-2):
            found.empty_row = "uniform"
        return
