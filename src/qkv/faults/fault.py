"""Fault: the oracle with one stage replaced, and what to say about it.

One entry serves the diagnosis (does the oracle under this fault give the candidate's numbers?), the test that the fault
is found, and the strength of a passing check (would it have been seen?).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from qkv.oracle import BackwardReplacements, Inputs, Replacements, Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class Need:
    """What must be there for a fault to show at all.

    Attributes:
        absent: the words for its absence: ``one head``, ``no window``.
        holds: whether it is there, for a spec and one probe's inputs.
    """

    absent: str
    holds: Callable[[AttentionSpec, Inputs], bool]


@dataclass(frozen=True)
class Variant:
    """One way of making a fault.

    Attributes:
        fault: the fault.
        replacements: the stages that it replaces.
        note: what tells this way from the fault's other ways: ``the scale is 1/sqrt(embed_dim)``; may be empty.
        backward: the stages that it replaces on the way back, for a fault of gradients, which replaces no others.
        estimated: whether it has a number that was estimated from the candidate's outputs.
    """

    fault: Fault
    replacements: Replacements
    note: str = ""
    backward: BackwardReplacements = field(default_factory=dict)
    estimated: bool = False


@dataclass(frozen=True)
class Family:
    """Ways of making a fault that differ in one number, which is estimated from the candidate's outputs.

    Attributes:
        replacements: the stages replaced, for one value of the number.
        starts: values to start the estimation from; the whole plausible range, coarsely.
        note: words for a value, for the report; may name it: ``the scale is 0.125 = 1/head_dim``.
        accepts: whether a value is this fault's at all; another fault may have the same family for other values.
    """

    replacements: Callable[[float], Replacements]
    starts: Sequence[float]
    note: Callable[[AttentionSpec, Inputs, float], str]
    accepts: Callable[[float], bool] = lambda value: True


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        id: its name in the catalogue: ``causal-one-ahead``.
        stage: the first stage that does another thing than it should; ``gradient`` for the whole of the backward pass.
        title: what is wrong, in a few words.
        explanation: why that gives wrong numbers and what one sees, for somebody who is learning.
        repair: what to write instead, as code.
        variants: the ways of making it under a spec; empty where the spec leaves no room for it.
        needs: what must be there for it to show.
        families: ways that differ in one number, each in a number of its own.
        further: ways that are many and unlikely each, given a run; tried where no other explains the candidate.
        commonness: 3 for what people do every week, 2 as a rule, 1 for what is rare.
        general: whether it gives way to any other fault that gives the same numbers: ``tail-block`` to
            ``softmax-off-by-one``.
        watched: whether it is looked for in every call, whatever the numbers are.
        rounds: whether it only rounds, so that a candidate is reproduced nearly and not to the last digit.
    """

    id: str
    stage: Stage | Literal["gradient"]
    title: str
    explanation: str
    repair: str
    variants: Callable[[AttentionSpec], Iterator[Variant]] = field(repr=False)
    needs: tuple[Need, ...] = ()
    families: tuple[Family, ...] = ()
    further: Callable[[Run], Iterator[tuple[str, Replacements]]] | None = None
    commonness: int = 2
    general: bool = False
    rounds: bool = False
    watched: bool = False

    def absent(self, spec: AttentionSpec, inputs: Inputs) -> str | None:
        """Words for the first need that does not hold; None where the fault can show."""
        return next((need.absent for need in self.needs if not need.holds(spec, inputs)), None)


Ways = Iterator[Replacements | tuple[str, Replacements]]
"""What a fault's function yields: stages replaced, with or without a note."""

CATALOGUE: dict[str, Fault] = {}
"""Every fault by its id, in the order of the stages they were declared for."""


def fault(
    id: str,  # noqa: A002 - the field is called so in the catalogue
    stage: Stage,
    *,
    title: str,
    explanation: str,
    repair: str,
    needs: Sequence[Need] = (),
    families: Sequence[Family] = (),
    further: Callable[[Run], Iterator[tuple[str, Replacements]]] | None = None,
    commonness: int = 2,
    general: bool = False,
    rounds: bool = False,
    watched: bool = False,
) -> Callable[[Callable[[AttentionSpec], Ways]], Fault]:
    """A decorator that enters a function yielding a fault's ways into the catalogue."""

    def enter(ways: Callable[[AttentionSpec], Ways]) -> Fault:
        def variants(spec: AttentionSpec) -> Iterator[Variant]:
            for way in ways(spec):
                note, replacements = ("", way) if isinstance(way, Mapping) else way
                yield Variant(entry, replacements, note)

        entry = Fault(
            id,
            stage,
            title,
            explanation,
            repair,
            variants,
            tuple(needs),
            tuple(families),
            further,
            commonness,
            general,
            rounds,
            watched,
        )
        if id in CATALOGUE:
            raise ValueError(f"two faults are called {id!r}: in {CATALOGUE[id].variants} and {ways}")
        CATALOGUE[id] = entry
        return entry

    return enter
