"""Faults of the backward pass: the output is right, and the gradients are not. A catalogue of its own.

A fault of gradients is the backward pass with one stage passed another way, as a fault of the output is the forward
pass with one stage replaced. So the same kind of entry serves, and the same promise: reproduced, or not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from qkv.faults.fault import Fault, Need, Variant
from qkv.oracle import Array, Backward, BackwardReplacements, BackwardStage, Run
from qkv.oracle.backward import BACKWARD
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

GRADIENT_FAULTS: dict[str, Fault] = {}
"""Every fault of the backward pass by its id, in the order of the stages they were declared for."""

BackwardWays = Iterator[tuple[str, BackwardReplacements]]
"""What a fault's function yields: a note and the stages passed another way."""


def gradient_fault(
    id: str,  # noqa: A002 - as in qkv.faults.fault
    stage: Stage | Literal["gradient"],
    *,
    title: str,
    explanation: str,
    repair: str,
    needs: Sequence[Need] = (),
    commonness: int = 2,
    general: bool = False,
    watched: bool = False,
) -> Callable[[Callable[[AttentionSpec], BackwardWays]], Fault]:
    """A decorator that enters a function yielding a fault's ways into the catalogue of gradients."""

    def enter(ways: Callable[[AttentionSpec], BackwardWays]) -> Fault:
        def variants(spec: AttentionSpec) -> Iterator[Variant]:
            for note, backward in ways(spec):
                yield Variant(entry, {}, note, backward)

        entry = Fault(
            id, stage, title, explanation, repair, variants, tuple(needs), commonness=commonness, general=general,
            watched=watched,
        )  # fmt: skip
        if id in GRADIENT_FAULTS:
            raise ValueError(f"two faults of gradients are called {id!r}")
        GRADIENT_FAULTS[id] = entry
        return entry

    return enter


# --- small tools for passing a stage another way ----------------------------------------------------------------------


def before(stage: Stage, change: BackwardStage) -> BackwardReplacements:
    """The stage passed rightly, with gradients that were changed before it."""
    return {stage: lambda back: BACKWARD[stage](change(back))}


def after(stage: Stage, change: BackwardStage) -> BackwardReplacements:
    """The stage passed rightly, and what it gives changed."""
    return {stage: lambda back: change(BACKWARD[stage](back))}


def each(change: Callable[[Run, Array], Array], *names: str) -> BackwardStage:
    """A change of some gradients by name: ``query``, ``key``."""
    return lambda back: back.but(**{name: change(back.run, getattr(back, name)) for name in names})


def times(factor: float, *names: str) -> BackwardStage:
    """Some gradients multiplied by a number; by zero, whatever they are."""

    def scaled(run: Run, gradient: Array) -> Array:
        return run.xp.zeros_like(gradient) if factor == 0 else factor * gradient

    return each(scaled, *names)


ROLES: dict[str, tuple[str, ...]] = {
    "dq, dk and dv": ("query", "key", "value"),
    "dq and dk": ("query", "key"),
    "dk and dv": ("key", "value"),
    "dq": ("query",),
    "dk": ("key",),
    "dv": ("value",),
}
"""Which gradients a fault touches, in words."""


def changed_in(back: Backward, name: str, gradient: Array) -> Backward:
    """The same with one of the gradients that are done replaced."""
    return back.but(of={**back.of, name: gradient})
