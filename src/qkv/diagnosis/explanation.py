"""Explanation: the faults that give a candidate's numbers, and what a diagnosis says of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from qkv.faults import CATALOGUE, Variant


@dataclass(frozen=True)
class Explanation:
    """One fault, or a pair, that gives the candidate's numbers.

    Attributes:
        variants: the faults, each in the way it is made.
        error: largest error of the reproduction over all probes, in units of the tolerance.
        could_show: whether what the faults need to show is there in any probe: several sequences, a mask.
    """

    variants: tuple[Variant, ...]
    error: float
    could_show: bool = True

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the faults."""
        return tuple(variant.fault.id for variant in self.variants)

    @property
    def general(self) -> bool:
        """Whether a more particular fault goes before it."""
        return any(variant.fault.general for variant in self.variants)

    @property
    def rank(self) -> tuple[int, bool, bool, int, int]:
        """Order among explanations that reproduce equally well: few faults, particular ones, common ones first."""
        order = list(CATALOGUE)
        return (
            len(self.variants),
            not self.could_show,
            self.general,
            -min(variant.fault.commonness for variant in self.variants),
            sum(order.index(variant.fault.id) for variant in self.variants),
        )


@dataclass(frozen=True)
class Undeclared:
    """An option of the design that the candidate has, and that nothing declares.

    Attributes:
        words: the option: ``a window of 4 keys``.
        flag: what declares it: ``--window 4``.
        half_said: what speaks of it without saying all, as a clause; nothing by default.
    """

    words: str
    flag: str
    half_said: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        best: the explanation to report; None where nothing reproduces the candidate.
        alternatives: others that reproduce it just as well.
        untold: why nothing can be told from the candidate's numbers; empty where something can.
        undeclared: the option under which all is right, where one is there that nothing declares.
    """

    best: Explanation | None = None
    alternatives: tuple[Explanation, ...] = field(default=())
    untold: str = ""
    undeclared: Undeclared | None = None
