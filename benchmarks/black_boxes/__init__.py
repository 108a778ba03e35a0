"""Black boxes to identify: ``f(query, key, value)`` built from a drawn description, in styles of several people.

The builders are independent evidence: they share nothing with the oracle, and a slow loop (:mod:`rows`) holds them to
one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.black_boxes.arrays import in_numpy
from benchmarks.black_boxes.drawn import Drawn as Drawn
from benchmarks.black_boxes.draws import draw_spec
from benchmarks.black_boxes.fused import can_be_fused, in_fused_torch
from benchmarks.black_boxes.rows import by_rows as by_rows, seen as seen
from benchmarks.black_boxes.tensors import in_torch

Builder = Callable[[Drawn, str | None], Callable[[Any, Any, Any], Any]]
"""From a description, and the dtype to answer in (None: that of the query), to the box."""


def drawn_from(seed: int) -> Drawn:
    """The box of a seed."""
    return draw_spec(np.random.default_rng(seed), seed)


def builders_for(drawn: Drawn) -> dict[str, Builder]:
    """Every style that can compute it, by name."""
    fused: dict[str, Builder] = {"fused": in_fused_torch} if can_be_fused(drawn) else {}
    return {"numpy": in_numpy, "torch": in_torch, **fused}
