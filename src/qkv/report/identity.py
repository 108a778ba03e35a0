"""The answer to "which attention is this?", as data: the spec that was read off a black box, and how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qkv.report.document import CandidateWords, ProbeResult
from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Estimate:
    """A number that was measured from outside.

    Attributes:
        value: the number.
        error: how far off it may be.
        name: what it is, where it is a number that people write: ``1/sqrt(head_dim)``; empty otherwise.
    """

    value: float
    error: float
    name: str = ""

    def __str__(self) -> str:
        value = f"{self.value:.6g}"
        return f"{value} = {self.name}" if self.name not in ("", value) else value


@dataclass(frozen=True)
class Identity:
    """Which attention a black box or a dump computes.

    Attributes:
        candidate: what was examined.
        spec: what it computes; None where nothing could be read.
        per_head: one mapping a head: ``scale``, ``kv_head`` and whatever else is each head's own.
        estimates: every number that was measured, by its name: ``scale``, ``softcap``, ``rope.base``.
        readings: what was found, in sentences.
        undecided: what the inputs could not decide, in sentences, with what would.
        documents: where the mask keeps documents apart, the first token of each; empty otherwise.
        pictures: sets that no rule explains, drawn in text, by name.
        reproduced: largest error of the oracle under ``spec`` against it on inputs that were not used for reading, in
            units of what rounding allows; None where there were none.
        probes: the inputs it was held against at the end.
        why: why ``spec`` is None, or gives a part only; empty otherwise.
        hint: the next line to type.
        detail: the candidate's own traceback or output.
        repeat: the command that does it again.
        rivals: specs that the one input of a dump can't tell from this one, in words.
        handed_over: what was read and no spec says, and was handed to the oracle beside it on fresh inputs, in words.
    """

    candidate: CandidateWords
    spec: AttentionSpec | None = None
    per_head: Sequence[Mapping[str, Any]] = ()
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    readings: Sequence[str] = ()
    undecided: Sequence[str] = ()
    documents: Sequence[int] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    reproduced: float | None = None
    probes: Sequence[ProbeResult] = ()
    why: str = ""
    hint: str = ""
    detail: str = ""
    repeat: str = ""
    rivals: Sequence[str] = ()
    handed_over: Sequence[str] = ()

    @property
    def known(self) -> bool:
        """Whether the spec gives the candidate's own numbers."""
        return self.spec is not None and self.reproduced is not None and self.reproduced <= 1.0

    @property
    def exit_code(self) -> int:
        """0 read and reproduced, 3 read in part, 4 could not be run."""
        if self.known:
            return 0
        return 3 if self.spec is not None or self.undecided else 4
