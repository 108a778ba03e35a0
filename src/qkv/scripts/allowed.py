"""Allowed: what can be said of a mask that is none of the causal kind, and is else taken as its author means it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from qkv.scripts import naming
from qkv.scripts.edits import turned_round
from qkv.scripts.findings import Finding
from qkv.scripts.known import Array, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading, refs

_DOCUMENTS = {
    "doc",
    "docs",
    "document",
    "documents",
    "segment",
    "segments",
    "seg",
    "sequence",
    "seq",
    "sample",
    "story",
}
"""Words by which a name says that it numbers the document of each token."""

_ORDERED = {"ge": ">=", "le": "<=", "gt": ">", "lt": "<"}
"""Comparisons that say more than whether two are the same."""


_COLUMNS = "mask[:, None, :]   # the axis of the keys comes last"


def taken_as_meant(mix: Mix) -> str:
    """That the mask of a mix is its author's own affair."""
    return f"the mask of {mix.name(mix.context, 'the context vectors')} is no causal one, and was taken as meant"


def told_of(mix: Mix, step: Known, visible: Array) -> Iterator[Finding]:
    """What is wrong with a mask whatever is meant by it.

    Args:
        mix: the mix that it belongs to.
        step: the step that applies it.
        visible: where it lets through, ``(..., query, key)``.
    """
    rows = visible.reshape(-1, *visible.shape[-2:])
    own = np.diagonal(rows, axis1=-2, axis2=-1)
    lengths = _lengths(mix.reading, rows)
    if rows.shape[-1] == rows.shape[-2] and not own.any() and mix.token is None:
        said = "no token sees itself: the mask hides what it should show, and shows what it should hide"
        yield Finding("mask-inverted", step.made, said, _turned(mix, step), mix, meant=~visible)
    elif lengths and (rows == rows[:, :1]).all():
        said = (
            f"each sequence sees what lies beyond its {lengths}, and none of its own tokens: the mask is turned round"
        )
        yield Finding("mask-inverted", step.made, said, _turned(mix, step), mix, meant=~visible)
    elif (rows == rows[..., :1]).all() and not rows.all():
        said = (
            "the mask hides whole rows, those of the tokens that are padding, and no columns: all others go on looking "
            "at the padding, and a row without any token is not a number. What is hidden are keys"
        )
        yield Finding("padding-on-queries", step.made, said, _COLUMNS, mix, meant=visible.swapaxes(-1, -2))


def _turned(mix: Mix, step: Known) -> str:
    code = mix.reading.code(step.made)
    changed = turned_round(code)
    return changed if changed != code else f"{code}   # with the mask turned round"


def _lengths(reading: Reading, rows: Array) -> str:
    """The variable that holds the length of each sequence, where just what lies beyond it is seen; empty for none."""
    for value, names in reading.names.items():
        array, name = reading.array(value), names[0]
        if array.shape == (len(rows),) and {"length", "lengths", "lens", "len"} & set(naming.words(name)):
            beyond = np.arange(rows.shape[-1]) >= array[:, None]
            if len(rows) > 1 and (rows[:, 0] == beyond).all():
                return name
    return ""


def documents(reading: Reading, live: set[int]) -> Iterator[Finding]:
    """Masks that compare the documents of two tokens by their order, where they have to be the same."""
    for number, operation in enumerate(reading.operations):
        given = list(refs(operation.arguments))
        if operation.name not in _ORDERED or len(given) != 2 or not live & set(operation.results):
            continue
        names = [
            next(filter(None, map(reading.name, [value, *reading.with_all_above([value])])), "") for value in given
        ]
        if names[0] != names[1] or not _DOCUMENTS & set(naming.words(names[0])):
            continue
        sign, code = _ORDERED[operation.name], reading.code(number)
        which = "after" if ">" in sign else "before"
        said = (
            f"{sign} lets the tokens of a document see those of another one that stands {which} it by its number in "
            f"{names[0]}: two tokens may see each other where their documents are the same"
        )
        yield Finding("documents-leak", number, said, re.sub(rf"(?<![<>=]){re.escape(sign)}(?!=)", "==", code, count=1))
