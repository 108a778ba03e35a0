"""Pictured: a report's matrices as the terminal and a figure draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qkv.pictures.panels import Kind, Panel, Pictured, compared, panel
from qkv.report.matrices import Matrices


def pictured(of: Sequence[Matrices], sides: tuple[str, str]) -> Pictured:
    """The first of the matrices, both sides and what is between them; without panels where there are none."""
    return Pictured(of[0].title, panels(of[0], sides), of[0].aside) if of else Pictured("", [])


def panels(of: Matrices, sides: tuple[str, str]) -> list[Panel]:
    """Matrices as panels: what should be, what is, and the difference, with the first wrong cell marked."""
    kind: Kind | None = None if of.axes[1] == "key" else "values"
    arrays = [np.asarray(array, np.float64) for array in (of.expected, of.got)]
    # A row that is no number is wrong where it is hidden too.
    hidden = (
        (None, None)
        if of.hidden is None
        else [unseen & ~np.isnan(array) for unseen, array in zip(of.hidden, arrays, strict=True)]
    )
    expected, got = (
        replace(panel(side, array, unseen, kind=kind), axes=of.axes, start=of.start)
        for side, array, unseen in zip(sides, arrays, hidden, strict=True)
    )
    return compared(expected, replace(got, kind=expected.kind), wrong=of.wrong)
