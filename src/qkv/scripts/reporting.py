"""The report on a plain script: run by a host, read, judged, and put into the document that every report is."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.adapters.messages import Binding, Hosting, ScriptRun
from qkv.adapters.recording import Place
from qkv.adapters.texts import Text
from qkv.errors import CandidateError
from qkv.report import CandidateWords, Disagreement, NamedFault, Report, RowPair, Verdict
from qkv.report.anatomy import Anatomy
from qkv.report.cells import source_line
from qkv.scripts.alone import Alone, against_alone
from qkv.scripts.anatomy import line_of, lines_of, place_of
from qkv.scripts.findings import Finding
from qkv.scripts.held import held_to
from qkv.scripts.judging import Judgement, judged
from qkv.scripts.known import Known
from qkv.scripts.masking import is_causal
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading
from qkv.scripts.slips import slip_of
from qkv.scripts.walking import read


@dataclass(frozen=True)
class Instead:
    """What a finding says to write.

    Attributes:
        place: the expression in whose place it goes.
        code: another expression.
        before: a statement in front of that one; empty for none.
    """

    place: Place
    code: str
    before: str


@dataclass(frozen=True)
class Explained(Anatomy):
    """A script, explained.

    Attributes:
        line: the line to change, of a notebook in all cells one below the other; None where none is named.
        instead: what its findings say to write in the place of what.
        contexts: at how many places it makes context vectors of weights of scores.
        masked: at how many of them these weights are masked.
        projected: how many of query, key and value a matrix makes, at all of these places together.
        assumed: what was taken for granted.
        variables: the variables of which it is known what they hold, with the numbers of those that nothing made.
        numbers: what all of its variables held.
    """

    line: int | None = None
    instead: Sequence[Instead] = ()
    contexts: int = 0
    masked: int = 0
    projected: int = 0
    assumed: frozenset[str] = frozenset()
    variables: frozenset[tuple[str, bytes]] = frozenset()
    numbers: frozenset[tuple[str, bytes]] = frozenset()

    def lacks(self, other: Explained, but: Set[str] = frozenset()) -> bool:
        """Whether a variable of another run of the script holds nothing here that is known, nor what it held there.

        Args:
            other: the other run.
            but: variables that may.
        """
        lost = {name for name, _ in other.variables - self.variables} - but
        return any(name in lost for name, _ in other.numbers - self.numbers)


def explained(text: Text, host: Hosting, repeat: str) -> Explained:
    """A script's lines with what each makes, and the verdict on it.

    Args:
        text: the script.
        host: who runs it.
        repeat: the command that does it again.
    """
    try:
        run = host.script(str(text.path), text.source)
    except CandidateError as error:  # it broke a limit, or ended the process that ran it
        return Explained(_stopped(text, error, repeat), ())
    reading = read(run)
    judgement = judged(reading, text)
    report = _report(text, run, reading, judgement, repeat)
    findings = judgement.findings
    line = line_of(reading, findings[0]) if findings else run.line if run.error else judgement.line
    return Explained(
        report,
        lines_of(text, run, reading, findings),
        line or None,
        list(_instead(reading, findings)),
        _places_of(reading, [mix.context for mix in judgement.mixes if mix.product is not None]),
        _places_of(reading, [mix.context for mix in judgement.mixes if mix.visible is not None]),
        _projected(judgement.mixes),
        frozenset(judgement.assumptions),
        frozenset(_variables(reading)),
        frozenset((one.name, reading.array(one.value).tobytes()) for one in _outside_functions(reading)),
    )


def _places_of(reading: Reading, contexts: Sequence[Known]) -> int:
    """At how many places context vectors are made; those of one token are a part of all where both are right."""
    made = [reading.made_by.get(value, -1) for known in contexts for value in reading.values_of(known)]
    return len({reading.place(number) for number in made})


def _projected(mixes: Sequence[Mix]) -> int:
    """How many of query, key and value a matrix makes, at all places together where context vectors are made."""
    sides = {
        mix.reading.place(mix.reading.made_by.get(value, -1)): [
            one for one in mix.sides if one and one.first("project")
        ]
        for mix in mixes
        for value in mix.reading.values_of(mix.context)
    }
    return sum(map(len, sides.values()))


def _variables(reading: Reading) -> Iterator[tuple[str, bytes]]:
    for binding in _outside_functions(reading):
        sight = reading.sights.get(binding.value)
        if sight is None:
            continue
        if (sight.known.sources or not sight.fixed) and sight.known.move != "exp":
            yield binding.name, b""
        if not sight.known.sources and not sight.fixed and sight.known.kind in ("tokens", "matrix"):
            yield binding.name, reading.array(binding.value).tobytes()


def _outside_functions(reading: Reading) -> Iterator[Binding]:
    """The variables of the script itself: what a helper calls its arrays is its own affair."""
    return (binding for binding in reading.run.bound if not binding.function)


def _instead(reading: Reading, findings: Sequence[Finding]) -> Iterator[Instead]:
    """The expressions that findings say to write in the place of others."""
    for finding in findings:
        place, code = place_of(reading, finding), finding.instead.partition("   #")[0]
        if place is None:
            continue
        with contextlib.suppress(SyntaxError):
            ast.parse(code)
            yield Instead(place, code, finding.before)


def words_of_script(text: Text, framework: str = "", dtype: str = "") -> CandidateWords:
    """What is judged, in words."""
    kind = "notebook" if text.cells else "script"
    return CandidateWords(Path(text.file).stem, text.file, 0, kind, framework, dtype)


def _report(text: Text, run: ScriptRun, reading: Reading, judgement: Judgement, repeat: str) -> Report:
    base: dict[str, Any] = {
        "candidate": words_of_script(text, *_framework(reading)),
        "assumptions": [*judgement.assumptions, *judgement.unequal, *_left_out(text, run)],
        "repeat": repeat,
        "printed": run.printed,
        "said": held_to(judgement.mixes, judgement.findings, text),
    }
    findings = [_fault(text, reading, one) for one in judgement.findings]
    first = judgement.findings[0] if findings else None
    if first is not None:
        line = line_of(reading, first)
        at = {"line": source_line(text, line)} if line else {"line_why": "only the numbers at the end were compared"}
        base |= {"faults": findings, **at, **_shown(first, judgement)}
    if run.error:
        return _failed(text, run, first, base)
    if first is not None:
        return Report(Verdict.WRONG, **base)
    if judgement.open:
        return Report(Verdict.UNDECIDED, why=judgement.open, hint=judgement.hint, **base)
    compared = [None if mix.dropped else against_alone(mix, is_causal(mix), mix.factor) for mix in judgement.mixes]
    if any(one is not None and any(one.wrong) for one in compared):
        why = (
            "a context vector differs from the one that is computed alone, one token at a time, and no reason was found"
        )
        return Report(Verdict.UNDECIDED, why=why, **base)
    base["assumptions"] = [*judgement.worth, *_worth(compared), *base["assumptions"]]
    return Report(Verdict.RIGHT, spread="every row is right", **base)


def _worth(compared: Sequence[Alone | None]) -> Iterator[str]:
    """What was compared, in sentences."""
    rows = sum(len(one.wrong) for one in compared if one is not None)
    if rows:
        yield f"{rows} context vectors were held against those of the same tokens, computed alone: they are equal"
    elsewhere = sum(one is None for one in compared)
    if elsewhere:
        yield f"{elsewhere} more were followed step by step only"


def _failed(text: Text, run: ScriptRun, first: Finding | None, base: dict[str, Any]) -> Report:
    """The report on a script that raised: the line and, of shapes, why they don't fit."""
    why = f"it stops at {text.place(run.line)}: {run.error}" if run.line else f"it could not be run: {run.error}"
    hint = run.clash.partition(": ")[2] if run.clash else ""
    if run.error.startswith("EOFError"):
        hint = "take out input(): nobody is there to type"
    if first is None and run.line:
        base["line"] = source_line(text, run.line)
    return Report(Verdict.FAILED if first is None else Verdict.WRONG, why=why, hint=hint, **base)


def _fault(text: Text, reading: Reading, finding: Finding) -> NamedFault:
    slip = slip_of(finding.fault)
    return NamedFault(slip.id, slip.stage, slip.title, f"{finding.said}.", _mended(text, reading, finding), "", 0.0)


def _mended(text: Text, reading: Reading, finding: Finding) -> str:
    """The line as it should be, where one expression is to be replaced in it; else what to write."""
    place = place_of(reading, finding)
    before = f"{finding.before}\n" if finding.before else ""
    if place is None or place.line != place.end_line:
        return before + finding.instead
    if "#" in finding.instead or "\n" in finding.instead or reading.operations[finding.operation].in_place:
        return before + finding.instead
    line = text.lines[place.line - 1].encode()
    start, end = line[: place.column].decode(), line[place.end_column :].decode()
    operands = finding.instead != place.code and (" @ " in finding.instead or " / " in finding.instead)
    alone = start.rstrip().endswith(("=", "(", ",", "return")) and (end.strip()[:1] in ("", ")", ",", "#"))
    instead = f"({finding.instead})" if operands and not alone else finding.instead
    return before + f"{start}{instead}{end}".strip()


def _shown(first: Finding, judgement: Judgement) -> dict[str, Any]:
    """Where it shows: the first row that differs from the token computed alone, and its weights."""
    mix = first.mix
    causal = mix is not None and first.meant is None and (is_causal(mix) or first.of_causal)
    alone = None if mix is None else against_alone(mix, causal, mix.right_factor, first.meant)
    if mix is None or alone is None or not any(alone.wrong):
        return {}
    return {
        "first_disagreement": _disagreement(alone),
        "rows": list(_rows(alone)),
        "spread": _spread(alone),
        "wrong": [list(alone.wrong)],
        "matrices": [alone.matrices],
    }


def _disagreement(alone: Alone) -> Disagreement:
    channel = int(np.argmax(~np.isclose(alone.got, alone.expected, rtol=1e-4, atol=1e-6)))
    key = None
    if alone.weights is not None:
        off = ~np.isclose(alone.weights[1], alone.weights[0], rtol=1e-4, atol=1e-6)
        key = int(np.argmax(off)) if off.any() else None
    return Disagreement(
        "the script's own numbers", alone.batch, None, alone.token, key, channel,
        float(alone.expected[channel]), float(alone.got[channel]),
    )  # fmt: skip


def _rows(alone: Alone) -> Iterator[RowPair]:
    if alone.weights is not None and not np.allclose(*alone.weights, rtol=1e-4, atol=1e-6, equal_nan=False):
        yield RowPair(f"weights of token {alone.token}, computed alone and in the script", *alone.weights)
    yield RowPair(f"context of token {alone.token}, computed alone and in the script", alone.expected, alone.got)


def _spread(alone: Alone) -> str:
    rows = [row for row, wrong in enumerate(alone.wrong) if wrong]
    if len(alone.wrong) == 1:
        return ""
    right = f", though the weights of token {alone.token} are right" if alone.weights_right else ""
    if len(rows) == 1:
        return f"row {rows[0]} is wrong and the others are right{right}"
    which = "every row is wrong" if len(rows) == len(alone.wrong) else f"rows {', '.join(map(str, rows))} are wrong"
    return which + right


def _framework(reading: Reading) -> tuple[str, str]:
    names = {value.dtype for value in reading.run.recording.values if value.dtype.startswith(("float", "bfloat"))}
    return ", ".join(reading.run.frameworks[:1]), next(iter(names)) if len(names) == 1 else ""


def _left_out(text: Text, run: ScriptRun) -> Iterator[str]:
    """What was not run, in sentences."""
    if run.skipped:
        places = ", ".join(text.place(line) for line in run.skipped)
        yield f"left out, since a package is not installed: {places}"
    if run.line and not run.error:
        yield f"it ends itself at {text.place(run.line)}: what comes after that was not run"


def _stopped(text: Text, error: CandidateError, repeat: str) -> Report:
    """The report on a script that ended its process, or broke a limit."""
    words = words_of_script(text)
    return Report(Verdict.FAILED, words, why=error.message, hint=error.hint, detail=error.detail, repeat=repeat)
