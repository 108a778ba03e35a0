"""Paper: panels as a figure of matplotlib that can be printed as it is.

Its looks are set while it is made and saved, so that matplotlib's own settings stay the user's.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParamsDefault
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from qkv.pictures.panels import UNSIGNED, Kind, Panel, scales, shown, written
from qkv.pictures.shades import Curve, Shading, colours

COLUMN, PAGE = 3.3, 6.7
"""Inches: a column of a page of two, and the page."""

STYLE: Any = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "figure.titlesize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width", "hatch.linewidth"), 0.5),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2),
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.hashsalt": "qkv",  # the same figure is the same file
    "savefig.dpi": 300,
}
MAPS: Mapping[bool, Colormap] = {
    False: LinearSegmentedColormap.from_list("qkv-weights", colours("#ffffff", signed=False)),
    True: LinearSegmentedColormap.from_list("qkv-signs", colours("#ffffff", signed=True)),
}
"""By whether the numbers have signs."""

LABELS: Mapping[Kind, str] = {
    "weights": "attention weight",
    "scores": "attention score",
    "values": "value",
    "difference": "difference",
}
HIDDEN: dict[str, Any] = {"facecolor": "#ededed", "edgecolor": "#b5b5b5", "hatch": "/////", "linewidth": 0.0}
CROSS: dict[str, Any] = {"color": "#b3202c", "marker": "x", "markersize": 3.5, "linestyle": "none"}

MOST, VECTOR = 512, 64
"""Rows and columns of a panel: at most, and up to which each cell is a shape that can be edited."""

MARGIN = 0.05
"""Inches around what is drawn."""

LABEL, LINE, DIGIT, LETTER = 7.2, 8.5, 3.8, 3.9
"""Points: of a label and of a number in a cell, across their line; of a digit, and of a letter in a title, along it."""

LONGEST = 14
"""Characters of a token's label, as on the page."""

FAMILIES = (
    *("axes", "figure", "hatch", "image", "legend", "lines", "patch", "path", "pdf", "ps", "savefig", "svg", "text"),
    *("xaxis", "xtick", "yaxis", "ytick"),
)
"""The settings that are ours: all but fonts, and what opens windows."""


@contextmanager
def style() -> Iterator[None]:
    """Nothing; meanwhile figures have the looks of this module, and say nothing of what a font lacks."""
    usual = {name: value for name, value in rcParamsDefault.items() if name.partition(".")[0] in FAMILIES}
    with rc_context({**usual, **STYLE}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        yield


class PaperFigure(Figure):
    """A figure that keeps its looks when it is saved, and shows itself in a notebook without pyplot."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Nothing; writes the figure to a file whose ending tells the format, as matplotlib's does."""
        with style():
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=150)
        return file.getvalue()


def figure_of(
    panels: Sequence[Panel], *, columns: int, width: float, title: str, numbers: bool | None, shades: Curve | None
) -> Figure:
    """A figure of its own with the panels in rows of so many.

    Args:
        panels: what to draw.
        columns: panels side by side.
        width: of the figure, in inches.
        title: of the figure; empty for none.
        numbers: whether numbers stand in the cells; None for where they fit.
        shades: how weights become shades; None for what their number asks for.
    """
    norms = _norms(panels, shades)
    with style():
        figure = PaperFigure(layout="compressed")
        figure.set_size_inches(width, 3 * width * -(-len(panels) // columns) / columns)
        grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
        for place in grid.flat[len(panels) :]:
            place.remove()
        axes = list(grid.flat[: len(panels)])
        _draw_all(axes, panels, norms, below=len(panels) > 1)
        around: list[Artist] = [figure.suptitle(title, parse_math=False)] if title else []
        handles = _legend(panels)
        if handles:
            columns_below = 2 if width < PAGE else 4
            around.append(
                figure.legend(handles=handles, loc="outside lower center", ncols=columns_below, frameon=False)
            )
        if len({one.numbers.shape for one in panels}) == 1:
            _label_outer(axes, columns)
        # Twice: colour bars below stand apart by a share of the height, labels by what is known of the width.
        for _ in range(2):
            figure.set_figheight(_height(figure, around))
            for place, one in zip(axes, panels, strict=True):
                _label(place, one.pooled(MOST, MOST))
        _write_all(axes, panels, norms, numbers)
        return figure


def draw_into(axes: Sequence[Any], panels: Sequence[Panel], *, numbers: bool | None, shades: Curve | None) -> Figure:
    """The figure of somebody's axes, of which each is given a panel."""
    norms = _norms(panels, shades)
    with style():
        _draw_all(axes, panels, norms, below=False)
        _write_all(axes, panels, norms, numbers)
    figure: Figure = axes[0].get_figure(root=True)
    return figure


def _height(figure: Figure, around: Sequence[Artist]) -> float:
    """Inches that a figure needs, which is too high as it is: its cells are as large as the width allows.

    Args:
        figure: the figure, which is laid out.
        around: what stands above and below all axes.
    """
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    boxes = [box for axes in figure.axes if (box := axes.get_tightbbox()) is not None]
    inside = max(box.y1 for box in boxes) - min(box.y0 for box in boxes)
    outside = sum(one.get_window_extent().height for one in around)
    return float(inside + outside) / figure.dpi + MARGIN * (2 + len(around))


def _ratio(panel: Panel) -> float:
    """Height by width of a panel. Cells are squares, unless that makes a ribbon of it."""
    query_len, key_len = panel.numbers.shape
    return min(max(query_len / key_len, 1 / 3), 3.0)


def _norms(panels: Sequence[Panel], shades: Curve | None) -> dict[Kind, Normalize]:
    """How the numbers of each kind become shades."""
    keys = max(one.numbers.shape[1] for one in panels)
    return {kind: _norm(kind, Shading(largest, keys, shades)) for kind, largest in scales(panels).items()}


def _norm(kind: Kind, shading: Shading) -> Normalize:
    if kind not in UNSIGNED:
        return Normalize(-shading.largest, shading.largest)
    if kind == "mask" or shading.curve == "linear":
        return Normalize(0.0, shading.largest)
    if shading.curve == "root":
        return PowerNorm(0.5, 0.0, shading.largest)
    return LogNorm(shading.least, shading.largest, clip=True)


def _draw_all(axes: Sequence[Axes], panels: Sequence[Panel], norms: Mapping[Kind, Normalize], *, below: bool) -> None:
    """Nothing; draws each panel into its axes, and a colour bar for each kind."""
    drawn: dict[Kind, list[tuple[Axes, QuadMesh]]] = {}
    for place, whole in zip(axes, panels, strict=True):
        one = whole.pooled(MOST, MOST)
        drawn.setdefault(one.kind, []).append((place, _cells(place, one, norms[one.kind])))
        _label(place, one)
    for kind, pairs in drawn.items():
        if kind in LABELS:
            beside = [place for place, _ in pairs]
            columns = len({place.get_position().x0 for place in beside})
            where: dict[str, Any] = {"location": "bottom", "aspect": 25 * columns, "shrink": 0.9} if below else {}
            ticks = None if isinstance(norms[kind], LogNorm) else MaxNLocator(4)
            bar = axes[0].figure.colorbar(pairs[0][1], ax=beside, label=LABELS[kind], ticks=ticks, **where)
            bar.outline.set_linewidth(STYLE["axes.linewidth"])


def _cells(axes: Axes, panel: Panel, norm: Normalize) -> QuadMesh:
    """The cells of a panel in its axes, with what is hidden, broken or marked."""
    rows, columns = panel.numbers.shape
    seen = np.ma.array(np.where(panel.broken, 0.0, panel.numbers), mask=panel.hidden)
    # Viewers show seams between shapes that only touch. The cells of a mask are told apart by lines.
    looks: dict[str, Any] = {"edgecolors": "face", "linewidth": 0.1}
    if panel.kind == "mask":
        looks = {"edgecolors": "white", "linewidth": 0.4}
    mesh = axes.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        seen,
        cmap=MAPS[panel.kind not in UNSIGNED],
        norm=norm,
        **(looks if max(rows, columns) <= VECTOR else {"rasterized": True}),
    )
    if panel.hidden.any():
        axes.patch.set(**HIDDEN)
    broken = np.argwhere(panel.broken)
    if len(broken):
        axes.plot(broken[:, 1], broken[:, 0], **CROSS)
    if panel.marked is not None:
        row, column = panel.marked
        casing = [withStroke(linewidth=2.6, foreground="white")]
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=1.2, path_effects=casing,
                                 clip_on=False, zorder=4, gid="first-wrong"))  # fmt: skip
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), xlabel=panel.axes[1], ylabel=panel.axes[0])
    axes.set_aspect(_ratio(panel) * columns / rows)
    figure: Any = axes.get_figure(root=True)
    room = 72 * axes.get_position(original=True).width * figure.get_figwidth()
    axes.set_title(fill(panel.title, max(8, int(room / LETTER))), parse_math=False)
    return mesh


def _sides(axes: Axes, panel: Panel) -> tuple[float, float]:
    """Height and width of a cell, in points, in axes that are as wide as they are now."""
    rows, columns = panel.numbers.shape
    figure: Any = axes.get_figure(root=True)
    wide = 72 * axes.get_position().width * figure.get_figwidth()
    return wide * _ratio(panel) / rows, wide / columns


def _label(axes: Axes, panel: Panel) -> None:
    """Nothing; gives both axes their tokens, or numbers, as many as fit."""
    for axis, side in enumerate(_sides(axes, panel)):
        tokens, numbers = (panel.query_tokens, panel.key_tokens)[axis], panel.numbers_of(axis)
        if tokens is None:
            texts = list(map(str, numbers))
            step = _round(math.ceil((LABEL if axis == 0 else 4 * len(texts[-1]) + 6) / side))
        else:
            texts = [_cut(shown(token)) for token in tokens]
            step = math.ceil(LABEL / side)
        turned = "vertical" if axis == 1 and tokens is not None else "horizontal"
        places = range(0, len(texts), step)
        set_ticks = (axes.set_yticks, axes.set_xticks)[axis]
        set_ticks(places, texts[::step], rotation=turned, parse_math=False)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _round(step: int) -> int:
    """The next step that is 1, 2 or 5 times a power of ten."""
    power = 10 ** (len(str(step)) - 1)
    return next(one * power for one in (1, 2, 5, 10) if one * power >= step)


def _write_all(
    axes: Sequence[Axes], panels: Sequence[Panel], norms: Mapping[Kind, Normalize], numbers: bool | None
) -> None:
    """Nothing; writes the numbers of each panel into its cells, where they fit or are asked for."""
    largest = scales(panels)
    for place, one in zip(axes, panels, strict=True):
        high, wide = _sides(place, one)
        longest = len(written(-largest[one.kind], one.kind, largest[one.kind]))
        fits = max(one.numbers.shape) <= VECTOR and high >= LINE and wide >= DIGIT * longest
        if one.kind != "mask" and (fits if numbers is None else numbers):
            _write(place, one.pooled(MOST, MOST), norms[one.kind], largest[one.kind])


def _write(axes: Axes, panel: Panel, norm: Normalize, largest: float) -> None:
    """Nothing; writes the number of each cell into it, black or white."""
    for row, column in np.argwhere(~panel.hidden & ~panel.broken):
        number = panel.numbers[row, column]
        text = written(number, panel.kind, largest).replace("-", "\u2212")
        colour = MAPS[panel.kind not in UNSIGNED](float(norm(number)))
        ink = "black" if np.dot(colour[:3], (0.299, 0.587, 0.114)) > 0.5 else "white"
        axes.text(column, row, text, size=6, color=ink, ha="center", va="center_baseline").set_in_layout(False)


def _label_outer(axes: Sequence[Axes], columns: int) -> None:
    """Nothing; leaves names and tokens at the left and the lower edge alone."""
    for place, one in enumerate(axes):
        if place % columns:
            one.set_ylabel("")
            one.tick_params(labelleft=False)
        if place + columns < len(axes):
            one.set_xlabel("")
            one.tick_params(labelbottom=False)


def _legend(panels: Sequence[Panel]) -> list[Artist]:
    """What hatching, crosses, outlines and large cells mean, as far as they occur."""
    found: list[Artist] = []
    if any(one.kind == "mask" for one in panels):
        found.append(Patch(facecolor=MAPS[False](1.0), label="may attend"))
    if any(one.hidden.any() for one in panels):
        found.append(Patch(label="may not attend", **HIDDEN))
    if any(one.broken.any() for one in panels):
        found.append(Line2D([], [], label="not a number", **CROSS))
    if panels[0].marked is not None:
        (row, column), (down, across) = panels[0].marked, panels[0].axes
        said = f"first wrong: {down} {row + panels[0].start}, {across} {column}"
        found.append(Patch(fill=False, edgecolor="black", linewidth=1.2, label=said))
    cells = panels[0].pooled(MOST, MOST).cells
    if cells is not None:
        said = f"each cell: largest of {cells.each}"
        found.append(Line2D([], [], linestyle="none", label=said))
    return found
