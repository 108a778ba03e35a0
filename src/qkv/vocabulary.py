"""The words that every other module uses: stages, axes, and the conventions that libraries contradict each other on."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Stage(StrEnum):
    """One step of attention. The members stand in the order data takes, and compare in that order."""

    PROJECT = "project"
    HEADS = "heads"
    POSITION = "position"
    SCORES = "scores"
    SCALE = "scale"
    SOFTCAP = "softcap"
    BIAS = "bias"
    MASK = "mask"
    SOFTMAX = "softmax"
    DROPOUT = "dropout"
    MIX = "mix"
    MERGE = "merge"
    OUTPUT = "output"

    @property
    def order(self) -> int:
        """Place of the stage in the row of stages, from 0."""
        return _ORDER[self]

    def __lt__(self, other: str) -> bool:
        return self.order < Stage(other).order

    def __le__(self, other: str) -> bool:
        return self.order <= Stage(other).order

    def __gt__(self, other: str) -> bool:
        return self.order > Stage(other).order

    def __ge__(self, other: str) -> bool:
        return self.order >= Stage(other).order


_ORDER = {stage: place for place, stage in enumerate(Stage)}

Pairing = Literal["halves", "adjacent"]
"""Which channels rope turns together: ``i`` with ``i + dims/2`` (halves) or ``2i`` with ``2i + 1`` (adjacent)."""

EmptyRow = Literal["zero", "nan", "uniform"]
"""What a query gets that may attend to nothing: zeros, NaN, or the mean of all values."""

Layout = Literal["BHTD", "BTHD", "HTD", "THD", "BTD", "TD"]
"""Order of the axes batch, head, token, dim in the arrays of a function of query, key and value."""

DType = Literal["float64", "float32", "bfloat16", "float16"]
"""Precisions that a candidate may be run in, the best one first."""

MaskMeaning = Literal["keep", "hide", "additive"]
"""What a mask argument's entries mean: True = may attend, True = hidden, or a number added to the scores."""

HIDDEN_BELOW = -1e4
"""A score, or a number that is added to one, from which down nothing is left of a key's weight."""
