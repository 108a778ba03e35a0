"""The mask of a mix: causal, another one that is taken as meant, or missing where the script says that there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.known import Array, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading, refs
from qkv.scripts.spots import Written, spot_at
from qkv.scripts.variables import live_values
from qkv.scripts.writing import drawn, hiding, remade, where_hidden


def masking(mix: Mix, mixes: Sequence[Mix], assumptions: list[str], text: Text) -> Iterator[Finding]:
    """What is wrong with the mask; one that is none of the causal kind is taken as meant."""
    reading, visible = mix.reading, mix.visible
    if visible is None:
        yield from _mask_missing(mix, mixes, text)
        return
    rows = visible.reshape(-1, *visible.shape[-2:])[0]
    if rows.shape[0] != rows.shape[1]:
        return
    chosen = list(range(len(rows))) if mix.token is None else [mix.token]
    step = next(one for one in mix.path if one.move == "mask")
    name = reading.name_of(step) or "the scores"
    diagonal = _diagonal(rows, chosen)
    if diagonal is None or diagonal == 0:
        if not np.array_equal(rows[chosen], np.tri(len(rows))[chosen] > 0):
            assumptions.append(f"the mask on {name} is no causal one, and was taken as meant")
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
        return "mask = torch.triu(torch.ones(n, n), diagonal=1).bool()   # True above the diagonal: those are hidden"
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


def _mask_missing(mix: Mix, mixes: Sequence[Mix], text: Text) -> Iterator[Finding]:
    """Names, comments or a mask that lies about say that the weights are masked, and they aren't."""
    reading = mix.reading
    said_causal = any(naming.causal_word(name) for name in mix.names())
    live = live_values(reading, mixes)
    masks = [value for value, sight in reading.sights.items() if sight.known.kind == "mask" and reading.name(value)]
    unused = [] if any(value in live for value in masks) else masks
    elsewhere = any(other.visible is not None for other in mixes) or mixes[-1] is not mix
    if not said_causal and (elsewhere or not (unused or naming.causal_comment(text.source))):
        return
    step = mix.softmax or mix.context
    late = _masked_late(mix, live)
    if late is not None:
        yield late
        return
    if unused:
        name = reading.name(unused[-1])
        said = f"{name} is made, and the weights are not made with it: every token sees all others, later ones too"
        hidden = where_hidden(mix, unused[-1], name) or name
        written = remade(mix, step, lambda scores: hiding(mix, scores, hidden))
        yield Finding.of("mask-not-applied", said, written, mix)
        return
    word = next((name for name in mix.names() if naming.causal_word(name)), naming.causal_comment(text.source))
    said = f"'{word}' says that no token sees a later one, and no mask is applied before softmax"
    written = remade(mix, step, lambda scores: hiding(mix, scores, "mask"))
    draws = drawn(mix, written.spot.name(step.sources[0], "attn_scores"))
    before = f"{draws}\n{written.before}" if written.before else draws
    yield Finding.of("causal-missing", said, written._replace(before=before), mix)


def _masked_late(mix: Mix, live: Set[int]) -> Finding | None:
    """A mask that changes scores in place once others were made of them, which don't follow; None for none."""
    reading = mix.reading
    masked = {sight.known: value for value, sight in reading.sights.items() if value not in live}
    for known, value in masked.items():
        made = reading.made_by.get(value, -1)
        if known.move != "mask" or known.slip or made < 0 or not reading.operations[made].in_place:
            continue
        before, spot = known.sources[0], spot_at(reading, made)
        if before not in mix.path or before is mix.weights or mix.uses(before)[0] > made:
            continue
        later = [one for one in mix.path if one.kind == "scores" and mix.uses(one)[0] > made]
        name = next((name for one in later if (name := spot.variable(one))), "")
        changed = spot.variable(before)
        code, times = with_code(spot.code, changed, name) if name else ("", 0)
        if times:
            said = (
                f"{changed} is masked here, after {name} was made of it, and the weights are made of {name}: a "
                "variable does not follow when what it was made of changes"
            )
            return Finding.of("mask-not-applied", said, Written(spot, code), mix)
    return None
