"""Figures: each fault as the row of stages with some done another way, and the first tensor that differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qkv.diagnosis import twin
from qkv.faults import CATALOGUE, Fault, Variant
from qkv.oracle import Run
from qkv.report.document import NamedFault
from qkv.report.matrices import Matrices, first_difference
from qkv.report.tiny import tiny_runs
from qkv.spec import AttentionSpec, describe


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


def figure_of(named: NamedFault, spec: AttentionSpec | None = None) -> Figure:
    """The figure of a fault in the candidate's own way, where a tiny attention has room for that.

    Args:
        named: the fault.
        spec: what the candidate is held to; the tiny attention is like it as far as that can be.
    """
    fault = CATALOGUE.get(named.id)
    if fault is None:
        return Figure(frozenset({named.stage}))
    runs = tiny_runs() if spec is None else sorted(tiny_runs(), key=lambda run: _unlikeness(run.spec, spec))
    ways = [(run, variant) for run in runs for variant in _variants(fault, run)]
    own = [(run, Variant(fault, named.own, named.note)) for run in runs if named.own]
    as_named = [(run, variant) for run, variant in ways if variant.note == named.note]
    with np.errstate(all="ignore"):
        figures = (_figure(run, variant, named) for run, variant in (*own, *as_named, *ways))
        return next((figure for figure in figures if figure is not None), Figure(frozenset({named.stage})))


OPTIONS = ("rope", "alibi", "softcap", "sinks", "qk_norm")


def _unlikeness(tiny: AttentionSpec, spec: AttentionSpec) -> tuple[int, bool]:
    """How far a tiny attention is from a spec: by what it has besides, then by its mask, whatever numbers that has."""
    besides = sum(bool(getattr(tiny, name)) and not getattr(spec, name) for name in OPTIONS)
    return besides, re.sub(r"\d+", "", str(tiny.mask)) != re.sub(r"\d+", "", str(spec.mask))


def _variants(fault: Fault, run: Run) -> Iterator[Variant]:
    """The ways of making a fault in a run, those with an estimated number for one that is likely."""
    if fault.absent(run.spec, run.inputs) is None:
        yield from fault.variants(run.spec)
        for family in fault.families:
            for number in filter(family.accepts, family.starts):
                yield Variant(fault, family.replacements(number), family.note(run.spec, run.inputs, number))
        if fault.further is not None:
            yield from (Variant(fault, replacements, note) for note, replacements in fault.further(run))


def _figure(run: Run, variant: Variant, named: NamedFault) -> Figure | None:
    """The figure of one way of making a fault; None where it changes nothing in this run."""
    faulty = twin(run, variant.replacements) if variant.replacements else None
    matrices = None if faulty is None else first_difference(run, faulty)
    if matrices is None:
        return None
    another = f"; there {variant.note}" if variant.note not in ("", named.note) else ""
    return Figure(frozenset(map(str, variant.replacements)), matrices, describe(run.spec) + another)
