"""Subjects: whatever somebody wants to see of attention, as panels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, get_args, runtime_checkable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from qkv.adapters.values import dtype_name
from qkv.errors import ShapeError, SpecError
from qkv.masks import Mask, parse_mask
from qkv.masks.places import QueryOffset
from qkv.pictures.attention import Attention
from qkv.pictures.panels import ROUNDING, Kind, Panel, Pictured, compared, panel, readable
from qkv.pictures.weights import HeadWeights

SIDE = 16
"""Queries and keys of a mask where nobody says how many there are."""

LARGEST = 2**26
"""Pairs of a query and a key in a figure, which holds them all."""

Booleans = NDArray[np.bool_]


class Subject(NamedTuple):
    """What is to be drawn, as the arguments of :func:`qkv.draw` say it."""

    given: Any
    got: Any
    tokens: Sequence[str] | None
    query_tokens: Sequence[str] | None
    mask: Any
    layer: int | None
    head: int | None
    kind: Kind | None
    stages: bool
    lengths: tuple[int, int] | None
    query_offset: QueryOffset

    def texts(self, query_len: int, key_len: int) -> dict[str, Sequence[str] | None]:
        """The tokens of the queries and of the keys; those of the queries are the last of the keys'."""
        queries, keys = (
            None if tokens is None else [str(token) for token in tokens] for tokens in (self.query_tokens, self.tokens)
        )
        if queries is None and keys is not None and query_len <= key_len == len(keys):
            queries = keys[key_len - query_len :]
        return {"query_tokens": queries, "key_tokens": keys}


@runtime_checkable
class Drawable(Protocol):
    """Whatever knows its own panels, as a report does."""

    def pictured(self) -> Pictured:
        """What is drawn of it; without panels where there is nothing to draw."""
        ...


def pictured(subject: Subject) -> Pictured:
    """The panels of whatever is given.

    Raises:
        ShapeError: shapes, tokens or the mask don't go together.
        SpecError: what is given can't be drawn, or read.
    """
    given = subject.given
    if subject.kind not in (None, *get_args(Kind)):
        raise SpecError(f"kind is {subject.kind!r}, and must be one of {', '.join(get_args(Kind))}")
    if isinstance(given, Drawable):
        found = given.pictured()
        if not found.panels:
            raise SpecError("there is nothing to draw: only the report on a wrong attention has matrices")
        return found
    return Pictured("", list(_panels(subject))) if subject.got is None else _pair(subject)


def _panels(subject: Subject) -> Iterable[Panel]:
    given = subject.given
    if isinstance(given, Attention):
        return _view(given, subject)
    if isinstance(given, Mask | str):
        query_len, key_len = _lengths(subject)
        return _arrays("", _may_attend(given, query_len, key_len, subject.query_offset), subject)
    if isinstance(given, Mapping):
        if not given:
            raise SpecError("there is nothing to draw: the mapping is empty; give {'attn_weights': attn_weights}")
        named = ((str(name), readable(array, str(name))) for name, array in given.items())
        return [one for name, array in named for one in _arrays(name, array, subject)]
    return _arrays("", readable(given, "what is drawn"), subject)


def _lengths(subject: Subject) -> tuple[int, int]:
    if subject.lengths is not None:
        match subject.lengths:
            case (int(query_len), int(key_len)) if query_len > 0 and key_len > 0:
                return query_len, key_len
        raise SpecError(f"lengths is {subject.lengths!r}, and must be two whole numbers from 1 on: lengths=(16, 16)")
    key_len = SIDE if subject.tokens is None else len(subject.tokens)
    return key_len if subject.query_tokens is None else len(subject.query_tokens), key_len


def _may_attend(mask: Any, query_len: int, key_len: int, offset: QueryOffset = "bottom_right") -> Booleans:
    """Where a query may attend, ``(query, key)`` or ``(..., query, key)`` where that varies."""
    if isinstance(mask, str):
        mask = parse_mask(mask)
    if isinstance(mask, Mask):
        _must_be_few(str(mask), query_len, key_len, 'a terminal draws any: qkv mask "causal" --query-len 100000')
        table: Booleans = mask.dense(query_len, key_len, query_offset=offset)
        return table
    array = readable(mask, "mask")
    if array.dtype != bool:
        raise SpecError(f"mask holds {array.dtype} values; give booleans, True where a query may attend")
    return array


def _arrays(title: str, array: NDArray[Any], subject: Subject) -> Iterator[Panel]:
    """A panel for each head of an array, or for the one that is asked for."""
    heads = _heads(array, title or "what is drawn")
    query_len, key_len = heads.shape[1:]
    hidden = None if subject.mask is None else _hidden(subject, heads)
    for head in _chosen(subject.head, len(heads), "head"):
        name = title if array.ndim == 2 else f"{title}, head {head}" if title else f"head {head}"
        yield panel(name, heads[head], None if hidden is None else hidden[head], kind=subject.kind,
                    **subject.texts(query_len, key_len))  # fmt: skip


def _hidden(subject: Subject, heads: NDArray[Any]) -> Booleans:
    """Where queries of each head may not attend, ``(head, query, key)``."""
    query_len, key_len = heads.shape[1:]
    may_attend = _may_attend(subject.mask, query_len, key_len, subject.query_offset)
    if may_attend.ndim == 4 and may_attend.shape[0] == 1:
        may_attend = may_attend[0]
    try:
        return np.broadcast_to(~may_attend, heads.shape)
    except ValueError:
        raise ShapeError(f"the mask has shape {may_attend.shape}, and what is drawn {heads.shape}") from None


def _heads(array: NDArray[Any], name: str) -> NDArray[Any]:
    """``(head, query, key)`` of one sequence."""
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim > 3:
        raise ShapeError(f"{name} has shape {array.shape}, and a figure is of one sequence: give {name}[0]")
    return array if array.ndim == 3 else array[None]


def _chosen(asked: int | None, count: int, name: str) -> Sequence[int]:
    """The places of what is asked for: all where nothing is."""
    if asked is None:
        return range(count)
    if not isinstance(asked, int | np.integer):
        raise SpecError(f"{name} is {asked!r}, and must be a whole number; there are {count}, counted from 0")
    if not -count <= asked < count:
        raise SpecError(f"{name} is {asked}, and there are {count}, counted from 0")
    return [asked % count]


def _pair(subject: Subject) -> Pictured:
    """What should be, what is, and the difference; of the head that is asked for, or the first that differs."""
    right, wrong = readable(subject.given, "the first"), readable(subject.got, "the second")
    if right.shape != wrong.shape:
        shapes = f"the first has shape {right.shape} and the second {wrong.shape}"
        raise ShapeError(f"{shapes}; only equal ones are compared")
    near = max(ROUNDING, 8 * _spacing(subject.given), 8 * _spacing(subject.got))
    found: list[Pictured] = []
    for expected, got in zip(_arrays("", right, subject), _arrays("", wrong, subject), strict=True):
        sides = replace(expected, title="expected"), replace(got, title="got", kind=expected.kind)
        found.append(Pictured(expected.title, compared(*sides, tolerance=near)))
        if found[-1].panels[0].marked is not None:
            return found[-1]
    return found[0]


def _spacing(value: Any) -> float:
    """How far apart the numbers next to 1 are in the value's own dtype; 0 where they are whole."""
    one = np.ones((), getattr(ml_dtypes, dtype_name(value), dtype_name(value)) if hasattr(value, "dtype") else float)
    finfo: Any = ml_dtypes.finfo
    return 0.0 if one.dtype.kind in "biu" else float(finfo(one.dtype).eps)


def _view(view: Attention, subject: Subject) -> Iterator[Panel]:
    """The heads of a view, of all layers or of one; with the stages before, where these are asked for."""
    if subject.stages and not any(head.workings() for head in view.heads):
        raise SpecError("how these weights came about isn't known; give query and key to qkv.show")
    queries, keys = view.texts
    for layer in _chosen(subject.layer, len(view.layers), "layer"):
        heads = view.layers[layer].heads
        for place in _chosen(subject.head, len(heads), "head"):
            name = heads[place].name if len(view.layers) == 1 else f"{view.layers[layer].name}, {heads[place].name}"
            if subject.stages:
                for working in heads[place].workings():
                    title = f"{working.name}, {name}"
                    yield panel(title, working.numbers, kind="scores", query_tokens=queries, key_tokens=keys)
                name = f"attn_weights, {name}"
            yield replace(_weights(name, heads[place]), query_tokens=queries, key_tokens=keys)


def first_seen(view: Attention) -> Pictured:
    """The head that a view's page begins with, the first unless it has a focus; where it is wrong, beside the right."""
    places = {f"{at}.{place}": (layer.name, head) for at, layer in enumerate(view.layers)
              for place, head in enumerate(layer.heads)}  # fmt: skip
    seen, wrong = ("0.0", {}) if view.focus is None else (view.focus.head, view.focus.wrong)
    layer, head = places[seen]
    queries, keys = view.texts

    def named(name: str, head: HeadWeights) -> Panel:
        return replace(_weights(name, head), query_tokens=queries, key_tokens=keys)

    if head.against is None or seen not in wrong:
        return Pictured(f"{layer}, {head.name}", [named("attn_weights", head)])
    sides = compared(named(*places[head.against]), named(layer, head))
    return Pictured(head.name, [replace(one, marked=wrong[seen]) for one in sides])


def _must_be_few(name: str, query_len: int, key_len: int, instead: str) -> None:
    if query_len * key_len > LARGEST:
        raise SpecError(f"{name} has {query_len:,} queries and {key_len:,} keys, too many for a figure; {instead}")


def _weights(name: str, head: HeadWeights) -> Panel:
    """The weights of one head."""
    _must_be_few(name, *head.shape, "save the view as a page instead: view.save('show.html')")
    keys, weights, may_attend = head.rows(slice(None))
    numbers, hidden = np.zeros(head.shape), np.ones(head.shape, bool)
    numbers[:, keys], hidden[:, keys] = weights, ~may_attend
    return panel(name, numbers, hidden)
