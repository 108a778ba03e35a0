"""Figures: each fault as the row of stages with some done another way, and the first tensor that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qkv.diagnosis import twin
from qkv.faults import CATALOGUE, Fault, Variant
from qkv.oracle import Run
from qkv.report.document import NamedFault
from qkv.report.matrices import Matrices, first_difference
from qkv.report.tiny import tiny_runs
from qkv.spec import describe


@dataclass(frozen=True)
class Figure:
    """What a fault does.

    Attributes:
        replaced: the stages that are done another way.
        matrices: the first tensor that differs on a tiny attention; None where that can't be shown so small.
        on: that attention, in words.
    """

    replaced: frozenset[str]
    matrices: Matrices | None = None
    on: str = ""


def figure_of(named: NamedFault) -> Figure:
    """The figure of a fault; in the way that the report names, where a tiny attention has room for that."""
    fault = CATALOGUE.get(named.id)
    ways = [] if fault is None else [(run, variant) for run in tiny_runs() for variant in _variants(fault, run)]
    as_named = [(run, variant) for run, variant in ways if variant.note == named.note]
    with np.errstate(all="ignore"):
        figures = (_figure(run, variant) for run, variant in (*as_named, *ways))
        return next((figure for figure in figures if figure is not None), Figure(frozenset({named.stage})))


def _variants(fault: Fault, run: Run) -> Iterator[Variant]:
    """The ways of making a fault in a run, those with an estimated number for one that is likely."""
    if fault.absent(run.spec, run.inputs) is None:
        yield from fault.variants(run.spec)
        for family in fault.families:
            numbers = filter(family.accepts, family.starts)
            yield from (Variant(fault, family.replacements(number)) for number in numbers)
        if fault.further is not None:
            yield from (Variant(fault, replacements, note) for note, replacements in fault.further(run))


def _figure(run: Run, variant: Variant) -> Figure | None:
    """The figure of one way of making a fault; None where it changes nothing in this run."""
    faulty = twin(run, variant.replacements) if variant.replacements else None
    matrices = None if faulty is None else first_difference(run, faulty)
    if matrices is None:
        return None
    return Figure(frozenset(map(str, variant.replacements)), matrices, describe(run.spec))
