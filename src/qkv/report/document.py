"""The report as data. Every form of it (terminal, JSON) is this document written out; none computes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any

import numpy as np

from qkv.oracle import Replacements
from qkv.pictures.panels import Pictured
from qkv.report.matrices import Matrices
from qkv.report.pictured import pictured
from qkv.spec import AttentionSpec, describe

Numbers = Any
"""A row of numbers: an array or a sequence of floats."""


class Verdict(StrEnum):
    """The four answers, with the exit code of each."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """What the command line exits with; 2 is bad usage."""
        return {"right": 0, "wrong": 1, "undecided": 3, "failed": 4}[self.value]

    @property
    def mark(self) -> str:
        """One character that stands for it."""
        return {"right": "✓", "wrong": "✗", "undecided": "?", "failed": "!"}[self.value]


WORST_FIRST = (Verdict.WRONG, Verdict.FAILED, Verdict.UNDECIDED, Verdict.RIGHT)
"""The answers by what counts most where there are several."""


@dataclass(frozen=True)
class CandidateWords:
    """What was judged.

    Attributes:
        name: its name.
        file: its file; empty for an object.
        line: first line of its definition, or 0.
        kind: ``module``, ``function of query, key and value``, ``function of x and weights``,
            ``function``, ``script``, ``notebook``.
        framework: ``torch`` or ``numpy``.
        dtype: the precision it was run in.
    """

    name: str
    file: str = ""
    line: int = 0
    kind: str = ""
    framework: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Disagreement:
    """The first entry that is wrong. ``head`` and ``key`` are None where they can't be told.

    ``tensor`` says of what: the ``output``, or a gradient: ``dq``, ``dk``, ``dv``, ``dx``, ``dW_query.weight``. Of a
    gradient, ``query`` is the token, or the row of a matrix.
    """

    probe: str
    batch: int
    head: int | None
    query: int
    key: int | None
    channel: int
    expected: float
    got: float
    tensor: str = "output"


@dataclass(frozen=True)
class RowPair:
    """The row of the first disagreement, as it should be and as it is.

    Attributes:
        title: what the numbers are: ``context of token 1 in head 0``.
        expected: the right row.
        got: the candidate's row.
    """

    title: str
    expected: Numbers
    got: Numbers


@dataclass(frozen=True)
class NamedFault:
    """One fault of the diagnosis, with the way it is made and how closely it reproduces the candidate.

    ``own`` are the stages replaced with the number that was estimated from the candidate; empty where none was. Only
    forms that draw have it.
    """

    id: str
    stage: str
    title: str
    explanation: str
    repair: str
    note: str
    error: float
    own: Replacements = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Example:
    """The smallest input that shows the fault, with all its numbers, to be checked by hand.

    Attributes:
        words: its size in words: ``3 tokens of 2 numbers, one head``.
        tensors: name and values of each input, one after the other.
        expected: the right output, ``(query, channel)``.
        got: the candidate's.
        held_to: what was to be computed of it: the spec at these sizes, in words.
    """

    words: str
    tensors: Sequence[tuple[str, Any]]
    expected: Any
    got: Any
    held_to: str = ""

    def arrays(self, most: int) -> tuple[list[tuple[str, Any]], list[str]]:
        """Its arrays of so many numbers at most, both outputs last; and name and shape of the larger ones."""
        named = [*self.tensors, ("expected", self.expected), ("got", self.got)]
        larger = [
            f"{name.removesuffix(' (in, out)')} ({' x '.join(map(str, np.shape(array)))})"
            for name, array in named
            if np.size(array) > most
        ]
        return [(name, array) for name, array in named if np.size(array) <= most], larger


@dataclass(frozen=True)
class Strength:
    """What a passing check is worth: how many faults of the catalogue these probes would have shown."""

    would_catch: int
    of: int
    blind_to: Sequence[str]


@dataclass(frozen=True)
class ProbeResult:
    """One probe. ``agrees`` is None where the candidate could not be called with it."""

    name: str
    exposes: str
    agrees: bool | None
    max_error: float | None
    tolerance: float | None
    note: str = ""


@dataclass(frozen=True)
class SourceLine:
    """The line of the candidate's source that makes the wrong numbers.

    Attributes:
        file: its file.
        line: its number, from 1.
        code: the line as it is written.
        note: how it is known, or what leaves it undecided.
        until: the other end, where the change may be made on either or between: where a stage is left out, the line
            that uses what lacks it; where two steps don't go together, the line of the other one.
        confirmed: whether what this line makes is just what the diagnosed fault would make there.
    """

    file: str
    line: int
    code: str
    note: str = ""
    until: int | None = None
    confirmed: bool = False


@dataclass(frozen=True)
class Patch:
    """A repair of the candidate's file, or of one that it imports, with which it is found right.

    Attributes:
        file: the file; of a notebook with the cell.
        line: number of the first line that changes, from 1.
        before: the first lines that change, as they are; empty where some are only added.
        after: what stands there afterwards.
        diff: the whole change as a unified diff.
        mends: what was wrong, in words.
        applied: whether the file has been changed.
        original: the file's bytes as it was judged.
        edited: its bytes with the repair.
        path: the file alone, to be written.
    """

    file: str
    line: int
    before: str
    after: str
    diff: str
    mends: str = ""
    applied: bool = False
    original: bytes = field(default=b"", repr=False)
    edited: bytes = field(default=b"", repr=False)
    path: str = field(default="", repr=False)


@dataclass(frozen=True, repr=False)
class Report:
    """The whole answer; as a string it is the text that the command prints.

    Field names of its JSON form are a promise; see ``report/json_form.py``.

    Attributes:
        verdict: the answer.
        candidate: what was judged.
        spec: what it was held to.
        said: the same in words, where no one spec says it: of a script each of its attentions, one a line.
        assumptions: what was assumed, in sentences.
        why: for ``failed`` and ``undecided``: the reason; empty otherwise.
        hint: the next line to type, or what would decide.
        detail: the candidate's own traceback or output.
        first_disagreement: where it is wrong first.
        rows: that row's weights and context, as they should be and as they are.
        sides: whose numbers ``expected`` and ``got`` are; of two dumps the names of the files.
        spread: which rows are wrong, in words.
        wrong: which rows are wrong, as rows of booleans per head: ``wrong[head][query]``, of the first wrong sequence.
        only_when: the rule for the sizes at which it is wrong, where it is right at others: ``key_len > 64``.
        faults: the fault, or the pair of faults, that reproduces the candidate.
        alternatives: other faults that give the same numbers on every probe.
        example: the smallest failing input.
        strength: what a pass is worth.
        probes: what was tried.
        repeat: the command that does it again.
        printed: the end of what the candidate printed.
        line: the line that makes the wrong numbers; None where it isn't known.
        line_why: why no line is named, where none is.
        patch: the repair of its file; None where none was found, or looked for.
        matrices: what is wrong first inside, of all queries: the weights of a head where these are. Only forms that
            draw have it.
        by_hand: the same of the smallest failing input, and its output.
    """

    verdict: Verdict
    candidate: CandidateWords
    spec: AttentionSpec | None = None
    said: str = ""
    assumptions: Sequence[str] = ()
    why: str = ""
    hint: str = ""
    detail: str = ""
    first_disagreement: Disagreement | None = None
    rows: Sequence[RowPair] = ()
    sides: tuple[str, str] = ("expected", "got")
    spread: str = ""
    wrong: Sequence[Sequence[bool]] = ()
    only_when: str | None = None
    faults: Sequence[NamedFault] = ()
    alternatives: Sequence[NamedFault] = ()
    example: Example | None = None
    strength: Strength | None = None
    probes: Sequence[ProbeResult] = ()
    repeat: str = ""
    printed: str = ""
    line: SourceLine | None = None
    line_why: str = ""
    patch: Patch | None = None
    matrices: Sequence[Matrices] = ()
    by_hand: Sequence[Matrices] = ()

    def __str__(self) -> str:
        # By name, since each form of the report imports this document.
        return str(import_module("qkv.report.terminal").as_text(self)).rstrip()

    def __repr__(self) -> str:
        said = [self.verdict.value, self.candidate.name, *(fault.id for fault in self.faults)]
        return f"<Report: {', '.join(one for one in said if one)}>"

    @property
    def held_to(self) -> str:
        """What it was held to, in words; empty where it was held to nothing."""
        return self.said if self.spec is None else describe(self.spec)

    @property
    def tells_rows(self) -> bool:
        """Whether ``wrong`` shows more than one row."""
        return len(self.wrong) > 1 or any(len(head) > 1 for head in self.wrong)

    @property
    def exit_code(self) -> int:
        """0 right, 1 wrong, 3 undecided, 4 failed."""
        return self.verdict.exit_code

    def pictured(self) -> Pictured:
        """What :func:`qkv.draw` draws of it: what is wrong first inside, as it should be and as it is."""
        return pictured(self.matrices, self.sides)
