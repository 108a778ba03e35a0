"""Which rows of an array that holds several projections belong to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qkv.adapters.messages import Facts
from qkv.adapters.projections.pieces import Piece
from qkv.adapters.projections.sizes import Known


@dataclass(frozen=True)
class Layout:
    """Which rows of a fused array are q, k and v.

    Attributes:
        rows: the rows of each letter.
        words: the layout in words, after "q, k, v are".
    """

    rows: Mapping[str, NDArray[np.intp]]
    words: str


_ORDER_WORDS = {
    "chd": "{parts} of {name}, one after the other",
    "hcd": "kept head by head in {name} ([heads, {count}, head_dim])",
    "hdc": "kept channel by channel in {name} ([heads, head_dim, {count}])",
    "cdh": "{parts} of {name}, each with the heads as its last axis ([{count}, head_dim, heads])",
    "dch": "kept in {name} as [head_dim, {count}, heads]",
    "dhc": "kept in {name} as [head_dim, heads, {count}]",
}
_PARTS = {2: "halves", 3: "thirds"}

_FAMILIES: Sequence[tuple[str, str]] = (
    ("GPTNeoX", "hcd"),
    ("Bloom", "hcd"),
    ("Persimmon", "hcd"),
    ("GPTBigCode", "hcd"),
    ("CodeGen", "shards"),
    ("InternLM2", "groups"),
    ("Falcon", "falcon"),
    ("GPT2", "chd"),
    ("Phi3", "chd"),
    ("MultiheadAttention", "chd"),
    ("Mpt", "chd"),
    ("Dbrx", "chd"),
    ("ModernBert", "chd"),
    ("ChatGLM", "chd"),
    ("Glm", "chd"),
)
"""Layouts that the name of a class settles."""

_NAMES: Mapping[str, str] = {"c_attn": "chd", "in_proj_weight": "chd", "in_proj": "chd", "query_key_value": "hcd"}
"""Layouts that the name of an array settles."""


def layouts_of(role: str, pieces: Mapping[str, Piece], known: Known, facts: Facts) -> list[Layout]:
    """Every way to cut an array that holds several projections, the commonest first.

    Args:
        role: the letters of the projections, in their order.
        pieces: the arrays of the attention by role.
        known: the sizes that are known.
        facts: what the candidate says of itself.
    """
    piece = pieces[role]
    name = piece.weights[0]
    rows = piece.size[0]
    if "c" in piece.axes:
        return [_blocks(role, [rows // 3] * 3, _words(role, "kept apart by an axis of {name}", name))]
    cut = _Sizes.of(role, pieces, known)
    settled = _settled_layout(name, facts)
    if len(piece.weights) > 1:
        # Heads of a list stand side by side, each with its own q, k and v.
        settled, cut = "hcd", replace(cut, heads=len(piece.weights), kv_heads=len(piece.weights))
    orders = [settled] if settled else ["chd", "hcd", "hdc", "cdh", "dch", "dhc"] if cut.equal else ["chd", "groups"]
    found = [layout for order in orders if (layout := _layout(order, role, name, rows, cut))]
    return found or [_blocks(role, cut.widths(role), _words(role, "{parts} of {name}", name))]


def _settled_layout(name: str, facts: Facts) -> str | None:
    stem = name.removesuffix(".weight").rpartition(".")[2]
    classes = [facts.class_name, *facts.submodules.values()]
    for prefix, layout in _FAMILIES:
        if any(one.startswith(prefix) for one in classes):
            return _falcon(facts) if layout == "falcon" else layout
    return _NAMES.get(stem)


def _falcon(facts: Facts) -> str:
    def says(name: str) -> bool:
        return any(bool(value) for key, value in facts.attributes.items() if key.rpartition(".")[2] == name)

    if says("new_decoder_architecture"):
        return "groups"
    return "chd" if says("multi_query") else "hcd"


@dataclass(frozen=True)
class _Sizes:
    """How many rows q, k and v have, and in how many heads."""

    heads: int
    kv_heads: int
    q: int
    k: int
    v: int

    @classmethod
    def of(cls, role: str, pieces: Mapping[str, Piece], known: Known) -> _Sizes:
        """The sizes of a fused array from the spec, from the output's projection, or as equal parts."""
        rows, heads, spec = pieces[role].size[0], known.num_heads, known.spec
        if "q" not in role:
            kv_heads = spec.num_kv_heads or _kv_heads(pieces, rows // 2, heads)
            return cls(heads, kv_heads, 0, rows // 2, rows - rows // 2)
        if set(role) == {"q", "k"}:
            return cls(heads, heads, rows // 2, rows - rows // 2, 0)
        kv_heads = spec.num_kv_heads or heads
        if spec.head_dim and (spec.num_kv_heads or rows == 3 * heads * spec.head_dim or spec.value_dim):
            q, k = heads * spec.head_dim, kv_heads * spec.head_dim
            if rows - q - k > 0:
                return cls(heads, kv_heads, q, k, rows - q - k)
        if spec.num_kv_heads and not rows % (heads + 2 * kv_heads):
            head_dim = rows // (heads + 2 * kv_heads)
            return cls(heads, kv_heads, heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
        width = pieces["out"].size[1] if "out" in pieces else rows // 3
        other = (rows - width) // 2
        if width % heads or other <= 0 or other % (width // heads) or width + 2 * other != rows:
            return cls(heads, heads, rows - 2 * (rows // 3), rows // 3, rows // 3)
        return cls(heads, other // (width // heads), width, other, other)

    @property
    def equal(self) -> bool:
        """Whether the parts that are there have the same size."""
        return len({size for size in (self.q, self.k, self.v) if size}) == 1

    def widths(self, role: str) -> list[int]:
        """The rows of each letter."""
        return [getattr(self, letter) for letter in role]


def _kv_heads(pieces: Mapping[str, Piece], width: int, heads: int) -> int:
    head_dim = max(pieces["q"].size[0] // heads, 1) if "q" in pieces else max(width // heads, 1)
    return max(width // head_dim, 1)


def _layout(order: str, role: str, name: str, rows: int, cut: _Sizes) -> Layout | None:
    """The layout of that order; None where the array can't have it."""
    if order == "groups":
        return _groups(role, name, rows, cut)
    if order == "shards":
        return _shards(name, rows)
    if order == "chd":
        words = _ORDER_WORDS["chd"] if cut.equal else "the first {q}, next {k} and last {v} rows of {name}"
        return _blocks(role, cut.widths(role), _words(role, words, name, cut))
    heads = cut.heads if "q" in role else cut.kv_heads
    count = len(role)
    if not cut.equal or rows % (count * heads):
        return None
    sizes = {"c": count, "h": heads, "d": rows // (count * heads)}
    grid = np.arange(rows).reshape([sizes[letter] for letter in order])
    parts = grid.transpose([order.index(letter) for letter in "chd"]).reshape(count, -1)
    return Layout(dict(zip(role, parts, strict=True)), _words(role, _ORDER_WORDS[order], name))


def _blocks(role: str, widths: Sequence[int], words: str) -> Layout:
    ends = np.cumsum(widths)
    rows = {letter: np.arange(end - width, end) for letter, width, end in zip(role, widths, ends, strict=True)}
    return Layout(rows, words)


def _groups(role: str, name: str, rows: int, cut: _Sizes) -> Layout | None:
    """Each key/value head after the query heads that read it: ``[q .. q k v]``."""
    per_group = cut.heads // cut.kv_heads + 2
    if role != "qkv" or cut.k != cut.v or rows % (cut.kv_heads * per_group):
        return None
    grid = np.arange(rows).reshape(cut.kv_heads, per_group, -1)
    parts = {"q": grid[:, :-2].reshape(-1), "k": grid[:, -2].reshape(-1), "v": grid[:, -1].reshape(-1)}
    return Layout(parts, f"q, k, v are kept group by group in {name}: the queries of a group, then its key and value")


def _shards(name: str, rows: int, shards: int = 4) -> Layout | None:
    """CodeGen: four shards, in each q, v, k."""
    if rows % (3 * shards):
        return None
    grid = np.arange(rows).reshape(shards, 3, -1)
    parts = {"q": grid[:, 0].reshape(-1), "v": grid[:, 1].reshape(-1), "k": grid[:, 2].reshape(-1)}
    return Layout(parts, f"q, v, k are kept in {shards} shards of {name}")


def _words(role: str, template: str, name: str, cut: _Sizes | None = None) -> str:
    numbers = {"q": cut.q, "k": cut.k, "v": cut.v} if cut else {}
    if "{q}" in template and len(role) == 2:
        template = "{parts} of {name}, one after the other"
    parts = _PARTS.get(len(role), "parts")
    return f"{', '.join(role)} are " + template.format(parts=parts, name=name, count=len(role), **numbers)
