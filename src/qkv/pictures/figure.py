"""Figure: what somebody wants to see of attention, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from qkv.errors import QkvError, SpecError
from qkv.masks.places import QueryOffset
from qkv.pictures.panels import Kind, Panel
from qkv.pictures.shades import Curve
from qkv.pictures.subjects import Subject, pictured
from qkv.shapes import Prediction, Product
from qkv.shapes.boxes import of_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(
    given: Any,
    got: Any = None,
    *,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    mask: Any = None,
    layer: int | None = None,
    head: int | None = None,
    kind: Kind | None = None,
    stages: bool = False,
    lengths: tuple[int, int] | None = None,
    query_offset: QueryOffset = "bottom_right",
    title: str = "",
    numbers: bool | None = None,
    shades: Curve | None = None,
    width: float | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """A figure of matplotlib, ready for paper: ``.savefig("weights.pdf")``, or png, or svg. Queries down, keys across.

    Its settings are its own: matplotlib's are neither changed nor, but for the font, followed. With ``ax`` the figure
    is yours, and so are the settings under which it is saved.

    Args:
        given: weights or scores, ``(query, key)`` or ``(head, query, key)``, as an array or a tensor; several of them
            by name, as ``{"attn_scores": ..., "attn_weights": ...}``; a mask or its expression,
            ``"causal & window(4)"``; what ``qkv.show`` or ``qkv.check`` has returned; a product of
            ``qkv.shapes.explain_matmul`` or what ``qkv.predict_shapes`` foretells of a spec, as boxes drawn to scale.
        got: what should be the same: both are drawn with their difference, and the first wrong cell outlined.
        tokens: texts of the keys, and of the queries at the last of their positions.
        query_tokens: texts of the queries, where they are others.
        mask: where a query may attend: a mask, its expression, or booleans. Elsewhere nothing is drawn, unless there is
            weight where none may be.
        layer: the layer of a view of several.
        head: the head to draw; all of them otherwise, and of two that are compared the first that differs.
        kind: what the numbers are: weights, scores, values, difference or mask. Otherwise numbers tell.
        stages: whether a view shows how each head's weights come about, where it knows.
        lengths: queries and keys of a mask; 16 each, or as many as tokens, unless they are given.
        query_offset: position of the first query, for masks.
        title: what stands above.
        numbers: whether numbers stand in the cells. Otherwise they do where they fit.
        shades: how weights become shades: ``linear``, ``root`` or ``log``. Otherwise they do in proportion up to 64
            keys, and by the logarithm beyond, where most weights are small.
        width: inches; 3.3, a column, for one matrix and 6.7, a page, for several, unless it is given.
        ax: axes to draw into, one for each matrix.

    Raises:
        QkvError: matplotlib is not installed.
        ShapeError: shapes, tokens or the mask don't go together.
        SpecError: what is given can't be drawn, or read.
    """
    if width is not None and not 0 < width < math.inf:
        raise SpecError(f"width is {width!r}, and must be a number of inches above 0: width=3.3")
    if shades not in (None, *get_args(Curve)):
        raise SpecError(f"shades is {shades!r}, and must be one of {', '.join(get_args(Curve))}")
    if isinstance(given, Product | Prediction):
        return _drawn_to_scale(given, width, title)
    subject = Subject(given, got, tokens, query_tokens, mask, layer, head, kind, stages, lengths, query_offset)
    known, panels, _ = pictured(subject)
    with _matplotlib():
        from qkv.pictures import paper
    if ax is None:
        wide = width or (paper.COLUMN if len(panels) == 1 else paper.PAGE)
        looks: Any = {"columns": _columns(panels), "width": wide, "title": title or known}
        return paper.figure_of(panels, numbers=numbers, shades=shades, **looks)
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) != len(panels):
        raise SpecError(f"there are {len(panels)} matrices to draw and {len(axes)} axes; give as many, or none")
    return paper.draw_into(axes, panels, numbers=numbers, shades=shades)


def _drawn_to_scale(given: Product | Prediction, width: float | None, title: str) -> Figure:
    """The shapes of a product, or of those products of an attention that queries and keys take part in."""
    with _matplotlib():
        from qkv.pictures.paper import COLUMN
        from qkv.pictures.paper_boxes import figure_of_products
    products = [("", given)] if isinstance(given, Product) else of_pairs(given.products)
    return figure_of_products(products, width=width or COLUMN, title=title)


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Nothing; meanwhile an error for want of matplotlib says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise QkvError('a figure needs matplotlib, which is not installed: pip install "qkv[plot]"') from None


def _columns(panels: Sequence[Panel]) -> int:
    """Panels side by side: up to 4, and of very many a square."""
    return min(len(panels), max(4, int(np.ceil(np.sqrt(len(panels))))))
