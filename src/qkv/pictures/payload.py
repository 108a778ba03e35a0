"""Payload: what the viewer shows of a view, as ``viewer/src/payload.ts`` says; change both sides."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qkv.oracle.streaming import THREADS
from qkv.pictures.attention import Attention
from qkv.pictures.budget import Fitting, affordable, fitting
from qkv.pictures.oddities import put_right, sentences
from qkv.pictures.pyramid import LOW, STEPS, Level, levels
from qkv.pictures.sampling import one_of_each, stride_for
from qkv.pictures.summary import Summary, block_size, summarise
from qkv.pictures.weights import HeadWeights

Payload = dict[str, Any]
Array = np.ndarray

FEW, FEW_IN_ALL = 128 * 128, 2**18
"""So many numbers of a head, and of all heads together, are handed over as they are."""

MOST_RANKED, RANKED, RANKED_IN_ALL = 8, 2**14, 2**18
"""The largest weights that are kept: of a row, of a head, and of all heads together. Each row has one at least."""


@dataclass
class Parts:
    """A payload and its pictures, head by head and level by level, as they are made.

    Attributes:
        payload: what stands in front; its heads have no pictures.
        pictures: data URIs, ``[head][level]``.
        first_levels: how many levels are seen first.
    """

    payload: Payload
    pictures: list[list[str]]
    first_levels: int

    def whole(self) -> Payload:
        """All in one."""
        return self._with(len(self.payload["levels"]))

    def first(self) -> Payload:
        """What is seen first."""
        return self._with(self.first_levels)

    def details(self) -> Iterator[Payload]:
        """What stands behind it, a head at a time."""
        if self.first_levels < len(self.payload["levels"]):
            for head, pictures in zip(self._heads(), self.pictures, strict=True):
                yield {"id": head["id"], "pictures": _cut(pictures, self.first_levels, len(pictures))}

    def _heads(self) -> list[Payload]:
        return [head for layer in self.payload["layers"] for head in layer["heads"]]

    def _with(self, count: int) -> Payload:
        pictures = iter(self.pictures)
        layers = [
            layer | {"heads": [head | {"pictures": _cut(next(pictures), 0, count)} for head in layer["heads"]]}
            for layer in self.payload["layers"]
        ]
        return self.payload | {"layers": layers}


def _cut(pictures: list[str], start: int, stop: int) -> list[str | None]:
    """The pictures of some levels; None stands for the others."""
    return [picture if start <= level < stop else None for level, picture in enumerate(pictures)]


def built(view: Attention, progress: Callable[[float], None]) -> Parts:
    """The parts of the page that shows a view. Each head is gone through once."""
    heads, key_len = view.heads, view.shape[1]
    queries, stride = _computed(view)
    sizes = affordable(levels(len(queries), key_len), len(heads), view.plan.whole)
    share = 1 / (len(queries) * len(heads))
    made, finest, seen = [], [], Counter[str]()
    for place, head in _places(view):
        summary = summarise(
            head, queries, sizes[-1], first_query=view.first_query, count=_ranked(len(queries), len(heads)),
            advance=lambda done: progress(done * share),
        )  # fmt: skip
        made.append(_as_head(place, head, summary, len(heads), whole=stride == 1))
        finest.append(summary.picture)
        seen.update(summary.seen)
    fit = fitting(finest, sizes, view.plan.whole - sum(map(_size, made)))
    # The page folds the last of many: what qualifies the numbers comes first.
    notes = [*sentences(seen), *_left_out(stride, fit), *view.notes]
    payload = _front(view, notes, None if stride == 1 else queries, fit.levels, made)
    return Parts(payload, fit.pictures, _seen_first(fit.pictures, view.plan.first_view))


def _front(
    view: Attention, notes: list[str], sampled: Array | None, sizes: Sequence[Level], heads: Sequence[Payload]
) -> Payload:
    """The payload, whose heads have no pictures yet."""
    query_tokens, key_tokens = view.texts
    if view.query_tokens is None:
        query_tokens = None  # the viewer takes them from the keys'
    one_by_one = iter(heads)
    return {
        "schema": 1,
        "kind": "attention",
        "title": view.title,
        "notes": notes,
        "query_len": view.shape[0],
        "key_len": view.shape[1],
        "query_offset": view.first_query,
        "query_tokens": query_tokens,
        "key_tokens": key_tokens,
        "sampled": None if sampled is None else numbers(sampled, np.uint32),
        "levels": [size._asdict() for size in sizes],
        "low": LOW,
        "focus": None if view.focus is None else asdict(view.focus),
        "layers": [{"name": layer.name, "heads": [next(one_by_one) for _ in layer.heads]} for layer in view.layers],
    }


def _places(view: Attention) -> Iterator[tuple[str, HeadWeights]]:
    """Each head and its id."""
    for layer_at, layer in enumerate(view.layers):
        for head_at, head in enumerate(layer.heads):
            yield f"{layer_at}.{head_at}", head


def _computed(view: Attention) -> tuple[Array, int]:
    """The numbers of the queries to compute, and of how many each is one."""
    query_len, key_len = view.shape
    size, head = levels(query_len, key_len)[-1], view.heads[0]

    def work(queries: Array) -> None:
        summarise(head, queries, size, first_query=view.first_query, count=1, advance=lambda done: None)

    plan, timed = view.plan, 4 * THREADS * block_size(key_len)  # enough that what each call costs doesn't count
    stride = plan.one_of or stride_for(view.shape, len(view.heads), plan.seconds, work, timed)
    return (np.arange(query_len) if stride == 1 else one_of_each(query_len, stride)), stride


def _ranked(rows: int, heads: int) -> int:
    """How many of the largest weights of each row are kept: one more than are told, since the first token may go."""
    return 1 + max(1, min(MOST_RANKED, RANKED // rows, RANKED_IN_ALL // (rows * heads)))


def _as_head(place: str, head: HeadWeights, summary: Summary, heads: int, *, whole: bool) -> Payload:
    """A head of the payload, without its pictures."""
    few = whole and _are_few(head.shape[0] * head.shape[1], heads)
    stages = 5  # at most
    workings = head.workings() if few and _are_few(head.shape[0] * head.shape[1], stages * heads) else []
    value = head.value if head.value is not None and _are_few(head.value.size, heads) else None
    return {
        "name": head.name,
        "id": place,
        "against": head.against,
        "patterns": {name: round(share, 4) for name, share in head.patterns.items()},
        **{name: numbers(getattr(summary, name)) for name in ("entropy", "distance", "first", "sums", "received")},
        "exact": numbers(_exact(head)) if few else None,
        "top": None if few else {
            "count": summary.keys.shape[1],
            "keys": numbers(summary.keys, np.uint32),
            "weights": numbers(summary.largest),
        },
        "value": None if value is None else {"dim": value.shape[1], "numbers": numbers(value)},
        "stages": [{"name": one.name, "title": one.title, "numbers": numbers(one.numbers)} for one in workings],
    }  # fmt: skip


def _are_few(count: int, heads: int) -> bool:
    return count <= FEW and count * heads <= FEW_IN_ALL


def _exact(head: HeadWeights) -> Array:
    """All weights, ``(query_len, key_len)``, NaN where a query may not attend."""
    keys, weights, may_attend, _ = put_right(head.rows(slice(None)))
    exact = np.full(head.shape, np.nan)
    exact[:, keys] = np.where(may_attend, weights, np.nan)
    return exact


def numbers(array: Array, dtype: Any = np.float32) -> str:
    """The numbers in little-endian order, row by row, in base64."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


# --- what fits --------------------------------------------------------------------------------------------------------


def _seen_first(pictures: list[list[str]], room: int) -> int:
    """How many levels are seen first; the coarsest always is."""
    sizes = np.cumsum([sum(map(len, level)) for level in zip(*pictures, strict=True)])
    return max(1, int(np.searchsorted(sizes, room, side="right")))


def _size(part: Any) -> int:
    """Bytes of the texts in a part of the payload."""
    if isinstance(part, dict):
        return sum(map(_size, part.values()))
    return sum(map(_size, part)) if isinstance(part, list) else len(part) if isinstance(part, str) else 0


def _left_out(stride: int, fit: Fitting) -> list[str]:
    """Sentences on what the pictures leave out."""
    said = []
    if stride > 1:
        said.append(f"Rows are sampled: 1 of {stride} queries was computed")
    finest, factor = fit.levels[-1], 2 ** (fit.stride * -LOW / STEPS / 2)
    if finest.per_row * finest.per_column > 1:
        size = f"{finest.per_row} x {finest.per_column}"
        said.append(f"Each cell of the finest picture is the largest of {size} weights (queries x keys)")
    if fit.stride > 1:
        said.append(
            f"So that the file stays small, the finest picture tells weights to within a factor of {factor:.1f}"
        )
    return said
