"""Panels: matrices, of queries and keys mostly, as they are drawn in the terminal or as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.adapters.values import to_float64
from qkv.errors import CandidateError, ShapeError, SpecError
from qkv.masks.drawing import Cells

Kind = Literal["weights", "scores", "values", "difference", "mask"]
"""What the numbers are. A mask is 1 where a query may attend."""

UNSIGNED: tuple[Kind, ...] = ("weights", "mask")
"""Kinds whose numbers begin at 0; the others have two signs."""

ROUNDING = 1e-6
"""Share of the largest entry up to which two matrices are the same to a reader."""


@dataclass(frozen=True)
class Panel:
    """One matrix, queries down and keys across.

    Attributes:
        title: what it is.
        numbers: ``(query, key)``; what stands where ``hidden`` doesn't matter.
        hidden: where a query may not attend to a key, ``(query, key)``.
        kind: what the numbers are.
        query_tokens: texts of the queries; None where their numbers stand for them.
        key_tokens: texts of the keys.
        marked: the cell to look at: the first wrong one.
        cells: the queries and keys that each cell covers; None where that is one pair.
        axes: what a row and a column are.
        start: number of the first row.
    """

    title: str
    numbers: NDArray[np.float64]
    hidden: NDArray[np.bool_]
    kind: Kind = "weights"
    query_tokens: Sequence[str] | None = None
    key_tokens: Sequence[str] | None = None
    marked: tuple[int, int] | None = None
    cells: Cells | None = None
    axes: tuple[str, str] = ("query", "key")
    start: int = 0

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Where a query may attend and there is no finite number, ``(query, key)``."""
        return ~self.hidden & ~np.isfinite(self.numbers)

    @property
    def largest(self) -> float:
        """The largest size of a number that is seen; 0 where none is."""
        seen = self.numbers[~self.hidden & np.isfinite(self.numbers)]
        return float(np.abs(seen).max(initial=0.0))

    def numbers_of(self, axis: int) -> range:
        """The number of the first query, or key, of each row, or column."""
        start = self.start if axis == 0 else 0
        places = range(self.numbers.shape[axis]) if self.cells is None else self.cells[axis]
        return range(places.start + start, places.stop + start, places.step)

    def pooled(self, rows: int, columns: int) -> Panel:
        """The panel in so many rows and columns at most. A cell is the number of largest size that it covers.

        It is hidden where all that it covers is, and broken where anything is.
        """
        query_len, key_len = self.numbers.shape
        cells = Cells.of(query_len, key_len, rows, columns)
        if not cells.each:
            return self
        most = _in_cells(np.maximum, np.where(self.hidden, -np.inf, self.numbers), cells)
        least = _in_cells(np.minimum, np.where(self.hidden, np.inf, self.numbers), cells)
        rows, columns = cells.queries.step, cells.keys.step
        return replace(
            self,
            numbers=np.where(np.abs(least) > np.abs(most), least, most),
            hidden=_in_cells(np.logical_and, self.hidden, cells),
            query_tokens=self.query_tokens and list(self.query_tokens)[::rows],
            key_tokens=self.key_tokens and list(self.key_tokens)[::columns],
            marked=self.marked and (self.marked[0] // rows, self.marked[1] // columns),
            cells=cells,
        )


class Pictured(NamedTuple):
    """Panels that are looked at together, what they are, and what is to be said of them."""

    title: str
    panels: Sequence[Panel]
    aside: str = ""


def _in_cells(rule: np.ufunc, numbers: NDArray[Any], cells: Cells) -> NDArray[Any]:
    """What the rule makes of the entries of each cell."""
    by_rows = rule.reduceat(numbers, np.array(cells.queries), axis=0)
    return rule.reduceat(by_rows, np.array(cells.keys), axis=1)


def readable(value: Any, name: str) -> NDArray[Any]:
    """The value's entries as an array of float64 or booleans, ``(..., query, key)``.

    Raises:
        ShapeError: it has fewer than two axes, or an axis without entries.
        SpecError: it holds no real numbers.
    """
    try:
        array = to_float64(value)
    except CandidateError as error:
        raise SpecError(f"{name} {error.message}; {error.hint}") from None
    except ValueError:
        raise SpecError(f"{name} is no array: its rows differ in length") from None
    if array.ndim < 2 or 0 in array.shape:
        raise ShapeError(f"{name} has shape {array.shape}, and a picture needs (query, key) with a token on each axis")
    return array if array.dtype == bool else array.astype(np.float64)


def panel(
    title: str,
    numbers: NDArray[Any],
    hidden: NDArray[np.bool_] | None = None,
    *,
    kind: Kind | None = None,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
) -> Panel:
    """The panel of one matrix. A boolean one is a mask; numbers below zero make scores of it, and -inf hides there.

    A weight where the query may not attend is drawn as a weight: hiding it would hide what is wrong.

    Args:
        title: what it is.
        numbers: ``(query, key)``.
        hidden: where a query may not attend, in a shape that broadcasts.
        kind: what the numbers are, where that is known.
        query_tokens: texts of the queries.
        key_tokens: texts of the keys.

    Raises:
        ShapeError: the mask or the tokens are of another length.
    """
    name = title or "what is drawn"
    for axis, tokens, length in (("query", query_tokens, numbers.shape[0]), ("key", key_tokens, numbers.shape[1])):
        if tokens is not None and len(tokens) != length:
            raise ShapeError(f"there are {len(tokens)} {axis} tokens, and {name} has {length}")
    if hidden is None:
        hidden = np.zeros(numbers.shape, bool)
    try:
        hidden = np.broadcast_to(hidden, numbers.shape)
    except ValueError:
        raise ShapeError(f"the mask has shape {hidden.shape}, and {name} {numbers.shape}") from None
    if numbers.dtype == bool:
        kind, hidden, numbers = "mask", hidden | ~numbers, numbers.astype(np.float64)
    if kind is None:
        kind = "scores" if (numbers[~hidden] < 0).any() else "weights"
    if kind == "scores":
        hidden = hidden | np.isneginf(numbers)
    elif kind == "weights":
        hidden = hidden & ((numbers == 0) | np.isnan(numbers))
    return Panel(title, numbers, hidden, kind, query_tokens, key_tokens)


def compared(expected: Panel, got: Panel, *, tolerance: float = ROUNDING, wrong: Any = None) -> list[Panel]:
    """Both panels and their difference, with the first cell marked in which they differ.

    Args:
        expected: the right one.
        got: the one that is looked at.
        tolerance: share of the largest right entry that rounding may take.
        wrong: which cells are wrong, as booleans, where it isn't the tolerance that tells.

    Raises:
        ShapeError: they are of different shapes.
    """
    if expected.numbers.shape != got.numbers.shape:
        shapes = f"{expected.title} has shape {expected.numbers.shape} and {got.title} {got.numbers.shape}"
        raise ShapeError(f"{shapes}; only matrices of one shape can be compared")
    none = -np.inf if expected.kind == "scores" else 0.0
    first, second = (np.where(one.hidden, none, one.numbers) for one in (expected, got))
    with np.errstate(invalid="ignore"):
        difference = np.where(first == second, 0.0, second - first)  # inf - inf is no difference
        off = ~(np.abs(difference) <= tolerance * expected.largest) if wrong is None else np.asarray(wrong)
    # What isn't wrong where nothing may be is nothing: a weight that is 0 but for rounding.
    got = replace(got, hidden=got.hidden | (expected.hidden & ~off))
    places = np.argwhere(off)
    marked = (int(places[0, 0]), int(places[0, 1])) if len(places) else None
    apart = replace(
        expected,
        title=f"{got.title} \u2212 {expected.title}",
        numbers=np.where(off, difference, 0.0),
        hidden=expected.hidden & got.hidden,
        kind="difference",
    )
    return [replace(one, marked=marked) for one in (expected, got, apart)]


def scales(panels: Iterable[Panel]) -> dict[Kind, float]:
    """The number that has the deepest shade, for each kind: panels of one kind share it."""
    found: dict[Kind, float] = {}
    for one in panels:
        found[one.kind] = max(found.get(one.kind, 0.0), one.largest)
    return {kind: largest or 1.0 for kind, largest in found.items()}


def written(number: float, kind: Kind, largest: float) -> str:
    """The number to two places of the largest; a difference with its sign, and a plain 0."""
    # What rounds to 0 has a sign only where that tells too little from too much.
    sign = "+" if kind == "difference" else "z"
    places = 1 if largest >= 10 else int(np.clip(1 - np.floor(np.log10(largest)), 2, 4))
    form = f"{sign}.{places}f" if 1e-3 <= largest < 1e4 else f"{sign}.0e"
    return "0" if number == 0 and kind == "difference" else format(number, form)


UNSEEN = {" ": "\u2423", "\n": "\u21b5", "\r": "\u240d", "\t": "\u21e5"}
"""What stands for white space in the text of a token."""


def shown(token: str) -> str:
    """A token's text with white space and what can't be printed made visible."""
    return "".join(UNSEEN.get(one, one if one.isprintable() else f"\\u{ord(one):04x}") for one in token)
