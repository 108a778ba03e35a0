"""Twins: the oracle's run with the stages that a fault replaces replaced."""

from __future__ import annotations

from collections.abc import Sequence

from qkv.errors import ShapeError
from qkv.faults import Variant
from qkv.oracle import Replacements, Run, resume
from qkv.oracle.chunks import joined

IMPOSSIBLE = (ShapeError, ValueError, IndexError, ArithmeticError)
"""What a replacement raises that can't be made on these inputs, or two that don't go together."""


def twin(run: Run, replacements: Replacements) -> Run | None:
    """The oracle's run with some stages replaced; None where the replacement is impossible on these inputs."""
    if run.parts:
        made = [twin(part, replacements) for part in run.parts]
        try:
            return joined(run, [new or part for new, part in zip(made, run.parts, strict=True)]) if any(made) else None
        except IMPOSSIBLE:
            return None
    first = min(replacements)
    if first not in run.before:  # rows of a long run, which begin behind the heads
        return None
    try:
        return resume(run.before[first], replacements, first.order)
    except IMPOSSIBLE:
        return None


def under(variants: Sequence[Variant], run: Run) -> Run:
    """The oracle's run under the faults. One that can't be made on these inputs changes nothing there."""
    together = {stage: new for variant in variants for stage, new in variant.replacements.items()}
    given = twin(run, together) if together else run
    if given is None:
        possible = [variant for variant in variants if twin(run, variant.replacements) is not None]
        given = under(possible, run) if 0 < len(possible) < len(variants) else run
    return given
