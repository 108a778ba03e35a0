"""The mask of a mix: causal, another one that is taken as meant, or missing where the script says that there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts.allowed import taken_as_meant, told_of
from qkv.scripts.findings import Finding
from qkv.scripts.known import Array, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading, refs
from qkv.scripts.unmasked import unmasked


def masking(mix: Mix, mixes: Sequence[Mix], assumptions: list[str], text: Text) -> Iterator[Finding]:
    """What is wrong with the mask; one that is none of the causal kind is taken as meant."""
    reading, visible = mix.reading, mix.visible
    if visible is None:
        yield from unmasked(mix, mixes, assumptions, text)
        return
    rows = visible.reshape(-1, *visible.shape[-2:])[0]
    step = next(one for one in mix.path if one.move == "mask")
    if rows.shape[0] != rows.shape[1]:
        yield from told_of(mix, step, visible)
        return
    chosen = list(range(len(rows))) if mix.token is None else [mix.token]
    diagonal = _diagonal(rows, chosen)
    if diagonal is None or diagonal == 0:
        if not np.array_equal(rows[chosen], np.tri(len(rows))[chosen] > 0):
            assumptions.append(taken_as_meant(mix))
            yield from told_of(mix, step, visible)
        return
    fault = "causal-inverted" if diagonal == INVERTED else "causal-strict" if diagonal < 0 else "causal-one-ahead"
    seen = next(row for row in chosen if not np.array_equal(rows[row], np.tri(len(rows))[row] > 0))
    tokens = ", ".join(map(str, np.flatnonzero(rows[seen]))) or "none at all"
    right = ", ".join(map(str, range(seen + 1)))
    said = f"{_CAUSAL[fault]}: token {seen} may look at {tokens}, where it should see {right}"
    made = step.made if fault == "causal-inverted" else _made_at(reading, step)
    yield Finding(fault, made, said, _moved(reading, made, diagonal), mix)


def is_causal(mix: Mix) -> bool:
    """Whether a mix lets each token see itself and earlier ones, and no other."""
    if mix.visible is None:
        return False
    rows = mix.visible.reshape(-1, *mix.visible.shape[-2:])[0]
    chosen = slice(None) if mix.token is None else [mix.token]
    return rows.shape[0] == rows.shape[1] and bool(np.array_equal(rows[chosen], np.tri(len(rows))[chosen] > 0))


def _made_at(reading: Reading, step: Known) -> int:
    """The operation that made the mask that a step applies; the step's own where none is known."""
    pending, made = list(refs(reading.operations[step.made].arguments)), []
    while pending:
        value = pending.pop()
        sight = reading.sights.get(value)
        if sight is not None and sight.known.kind == "mask":
            made.append(reading.made_by[value])
            pending += reading.parents[value]
    return min(made, default=step.made)


def _moved(reading: Reading, made: int, diagonal: int) -> str:
    """The expression that draws the mask with its diagonal moved; a mask to write where it can't be read there."""
    operation, code = reading.operations[made], reading.code(made)
    written = re.search(r"\btri[lu](_indices)?\(.*\b(?:diagonal|k)\s*=\s*(-?\d+)", code)
    if (operation.name not in ("tril", "triu", "tri") and written is None) or diagonal == INVERTED:
        draws = "torch.triu(torch.ones(n, n), diagonal=1).bool()" if "torch" in reading.run.frameworks else _NUMPYS
        return f"mask = {draws}   # True above the diagonal: those are hidden"
    keyword = "k" if "k" in operation.keywords or "torch" not in reading.run.frameworks else "diagonal"
    given = operation.keywords.get("diagonal", operation.keywords.get("k", 0))
    positional = [one for one in operation.arguments if isinstance(one, int)][-1:] if operation.name != "tri" else []
    right = (int(written[2]) if written else positional[0] if positional else given) - diagonal
    named = re.sub(r"\b(diagonal|k)\s*=\s*-?\d+", lambda found: f"{found[1]}={right}", code)
    if named != code:
        return named
    if positional:
        return re.sub(r"-?\d+\s*\)$", f"{right})", code)
    return f"{code[:-1]}, {keyword}={right})" if code.endswith(")") and not code.endswith("()") else code


_NUMPYS = "np.triu(np.ones((n, n), dtype=bool), k=1)"

INVERTED = 10**6
"""Stands for a mask that shows the future and hides the past."""

_CAUSAL = {
    "causal-strict": "the diagonal is hidden too, so that no token sees itself",
    "causal-one-ahead": "each token sees tokens that come after it",
    "causal-inverted": "the mask hides the past and shows the future",
}


def _diagonal(rows: Array, chosen: list[int]) -> int | None:
    """How many later tokens each one sees; below 0 how many of the last ones it doesn't; None for another mask."""
    size = len(rows)
    if rows[chosen].all():
        return None
    for diagonal in sorted(range(1 - size, size), key=abs):
        if np.array_equal(rows[chosen], np.tri(size, k=diagonal)[chosen] > 0):
            return diagonal
    ones = np.ones((size, size), bool)
    upper = any(np.array_equal(rows[chosen], np.triu(ones, diagonal)[chosen]) for diagonal in (0, 1))
    return INVERTED if upper else None
