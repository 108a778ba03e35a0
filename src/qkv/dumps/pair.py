"""Two dumps of one layer on one input: the first stage where they part, and which of the two is right."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qkv.adapters.dump import INSIDE, dtype_named
from qkv.adapters.messages import Facts
from qkv.comparison import EPSILON, FLOOR, MARGIN, Bools, Floats
from qkv.dumps.arrangements import Arrangement, arrangements
from qkv.dumps.handed import Handed
from qkv.dumps.identity import identify_dump
from qkv.dumps.inside import shaped
from qkv.dumps.judging import DumpRequest, dump_of, judge_dump
from qkv.dumps.observed import DumpReading, spec_here
from qkv.dumps.tensors import Dump, Tensor
from qkv.errors import CandidateError
from qkv.inference import intention_from
from qkv.report import CandidateWords, Disagreement, ProbeResult, Report, RowPair, Verdict
from qkv.report.matrices import WORDS, Matrices, unlike
from qkv.spec import differences
from qkv.spread import describe_spread
from qkv.vocabulary import HIDDEN_BELOW

IN_ORDER = ("query", "key", "value", "mask", "padding", "documents", "bias", "sinks", "scale", *INSIDE, "output",
            "grad_output", "grad_query", "grad_key", "grad_value")  # fmt: skip
"""Roles in the order that data takes."""


@dataclass(frozen=True)
class Difference:
    """One tensor of both dumps.

    Attributes:
        role: what it is.
        pair: its numbers in both, ``(batch, head, row, ...)`` where that can be told.
        wrong: which rows differ by more than rounding, ``(batch, head, row)``.
        tolerance: what rounding may do.
        note: why it could not be compared; empty otherwise.
    """

    role: str
    pair: tuple[Floats, Floats]
    wrong: Bools
    tolerance: float
    note: str = ""

    @property
    def probe(self) -> ProbeResult:
        """The same as a line in the report's table of probes."""
        if self.note:
            return ProbeResult(self.role, "both dumps", None, None, None, self.note)
        return ProbeResult(self.role, "both dumps", not self.wrong.any(), _largest(self.pair), self.tolerance)

    @property
    def place(self) -> tuple[int, ...]:
        """Batch, head and row of the first row that differs, and the first entry in it."""
        *row, entry = (int(place) for place in np.argwhere(self._entries())[0])
        return (*row, entry)

    def _entries(self) -> Bools:
        left, right = (one if one.ndim == 4 else one[..., None] for one in self.pair)
        return _apart(left, right) > self.tolerance


def judge_dumps(request: DumpRequest, other: str) -> Report:
    """The report on two dumps of one attention: which stage departs first, where, and which of the two is right.

    Raises:
        SpecError: the spec contradicts itself, or a tensor is given in a role that there is not.
    """
    words = CandidateWords(Path(request.target).name, f"{request.target} {other}", kind="two dumps")
    repeat = request.repeat or f"qkv check {shlex.quote(request.target)} {shlex.quote(other)}"
    try:
        dumps = [dump_of(replace(request, target=one)) for one in (request.target, other)]
        report = _beside(dumps, request)
    except CandidateError as error:
        report = Report(Verdict.FAILED, words, why=error.message, hint=error.hint, detail=error.detail)
    return replace(report, candidate=words, repeat=repeat)


def _beside(dumps: Sequence[Dump], request: DumpRequest) -> Report:
    readings = _readings(dumps, request)
    shared = [role for role in IN_ORDER if all(role in dump.tensors for dump in dumps)]
    found = [_difference(readings, role) for role in shared]
    first = next((one for one in found if not one.note and one.wrong.any()), None)
    alone = [role for role in IN_ORDER if role not in shared and any(role in dump.tensors for dump in dumps)]
    notes = [f"compared: {', '.join(shared)}", *([f"only in one of them: {', '.join(alone)}"] if alone else [])]
    notes += [f"{dump.file}: axes are {reading.arrangement}" for dump, reading in zip(dumps, readings, strict=True)]
    base = Report(Verdict.RIGHT, CandidateWords(""), assumptions=notes, probes=[one.probe for one in found])
    if first is None:
        return replace(
            base, spread="every row is the same to rounding", why="the two dumps agree in every tensor that both hold"
        )
    return _apart_from(base, first, dumps, request)


def _readings(dumps: Sequence[Dump], request: DumpRequest) -> list[DumpReading]:
    """Each dump in an arrangement whose sizes are those of the other.

    Raises:
        CandidateError: they have none in common.
    """
    said = intention_from(request.given, request.whole_spec)
    ways = [arrangements(dump, said.spec, said.stated, request.layout) for dump in dumps]
    pairs = [(left, right) for left in ways[0] for right in ways[1] if _sizes(left) == _sizes(right)]
    if not pairs:
        shapes = [
            f"{dump.file} has {ways_[0]} with {dict(ways_[0].sizes)}" for dump, ways_ in zip(dumps, ways, strict=True)
        ]
        hint = "dump the same layer on the same input from both; --layout settles the order of axes of both"
        raise CandidateError(f"the two dumps have other sizes: {'; '.join(shapes)}", hint=hint)
    best = min(pairs, key=lambda pair: _query_distance(dumps, pair))
    facts = Facts("", "function", "numpy", False, "")
    return [
        DumpReading(dump, spec_here(said.spec, one), one, Handed(), facts)
        for dump, one in zip(dumps, best, strict=True)
    ]


def _sizes(arrangement: Arrangement) -> tuple[int, ...]:
    return arrangement.num_heads, arrangement.kv_heads, *arrangement.sizes.values()


def _query_distance(dumps: Sequence[Dump], pair: tuple[Arrangement, Arrangement]) -> float:
    left, right = (one.query(dump.tensors["query"].array) for dump, one in zip(dumps, pair, strict=True))
    return float(np.abs(np.nan_to_num(left - right)).mean())


def _difference(readings: Sequence[DumpReading], role: str) -> Difference:
    tensors = [reading.dump.tensors[role] for reading in readings]
    left, right = (_shaped(reading, role) for reading in readings)
    if left is None or right is None or left.shape != right.shape:
        shapes = " and ".join(f"{tensor.name} {tensor.array.shape}" for tensor in tensors)
        return Difference(role, (np.zeros(1), np.zeros(1)), np.zeros(1, dtype=bool), 0.0, f"not of one shape: {shapes}")
    if role == "scores":  # whatever stands for a hidden key
        left, right = (np.where(one <= HIDDEN_BELOW, -np.inf, one) for one in (left, right))
    tolerance = _tolerance(role, tensors, left)
    apart = _apart(left, right)
    return Difference(role, (left, right), (apart if apart.ndim == 3 else apart.max(axis=-1)) > tolerance, tolerance)


def _shaped(reading: DumpReading, role: str) -> Floats | None:
    """A tensor as ``(batch, head, row, ...)``; one that has no such axes with axes of size one in front."""
    array, whole = reading.dump.tensors[role].array, reading.arrangement
    like = {"query": whole.query, "key": whole.key, "value": whole.key, "output": whole.output}
    for name, turned in like.items():
        if role in (name, f"grad_{name}") and array.shape == reading.dump.tensors[name].array.shape:
            return turned(array)
    if role in INSIDE:
        found = shaped(reading, role, array.shape)
        if found is not None:
            return found
    array = array.astype(np.float64)
    return array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array


def _tolerance(role: str, tensors: Sequence[Tensor], array: Floats) -> float:
    """How far two right programs may be apart. Inputs are the same; what is computed was rounded on the way."""
    coarsest = max((tensor.dtype for tensor in tensors), key=_epsilon)
    times = 1.0 if role in ("query", "key", "value") else MARGIN if role != "output" else MARGIN + FLOOR
    finite = array[np.isfinite(array)]
    epsilon = max(_epsilon(coarsest), EPSILON["float32"])
    return times * epsilon * float(np.abs(finite).max(initial=np.finfo(float).tiny))


def _epsilon(dtype: str) -> float:
    if dtype in EPSILON:
        return EPSILON[dtype]
    if not dtype.startswith("float"):
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype_named(dtype)).eps)  # type: ignore[no-untyped-call]


def _apart(left: Floats, right: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        off = np.abs(left - right)
    off = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, off)
    return np.where(np.isnan(off), np.inf, off)


def _largest(pair: tuple[Floats, Floats]) -> float:
    return float(_apart(*pair).max(initial=0.0))


def _apart_from(base: Report, first: Difference, dumps: Sequence[Dump], request: DumpRequest) -> Report:
    """The report on the first difference, and on which of the two departs from the spec."""
    names = [dump.file for dump in dumps]
    batch, head, row, entry = first.place
    left, right = (one if one.ndim == 4 else one[..., None] for one in first.pair)
    kind = "inputs differ already" if first.role in ("query", "key", "value", "mask") else "first stage that departs"
    why = f"{kind}: {first.role}, at sequence {batch}, head {head}, row {row}, entry {entry}"
    rows = [
        RowPair(
            f"{first.role}, row {row} of head {head}",
            left[batch, head, row],
            right[batch, head, row],
        )
    ]
    report = replace(
        base,
        verdict=Verdict.WRONG,
        first_disagreement=Disagreement(
            first.role,
            batch,
            head,
            row,
            None,
            entry,
            float(left[batch, head, row, entry]),
            float(right[batch, head, row, entry]),
        ),
        rows=rows,
        sides=_told_apart(*names),
        spread=describe_spread(first.wrong.transpose(0, 2, 1), np.ones_like(first.wrong.transpose(0, 2, 1))),
        wrong=[[bool(one) for one in of_head] for of_head in first.wrong[batch]],
        matrices=[_matrices(first, left[batch, head], right[batch, head])],
        why=why,
    )
    return _with_verdicts(report, dumps, request)


def _with_specs_read(report: Report, dumps: Sequence[Dump], request: DumpRequest) -> Report:
    """The report, with what each of the two computes where they differ, if it can be read from both."""
    specs = {dump.file: identify_dump(_of_one(request, dump), dump).spec for dump in dumps}
    (left, ours), (right, theirs) = specs.items()
    if ours is None or theirs is None or ours == theirs:
        return report
    words = zip(_told_apart(left, right), differences(ours, theirs), strict=True)
    computes = "; ".join(f"{name} computes {' and '.join(clauses) or 'the same without it'}" for name, clauses in words)
    hint = "say which of the two is meant, by flags or with --spec FILE; qkv identify FILE --format json writes one"
    return replace(report, why=f"{report.why}. Read from their numbers: {computes}", hint=hint)


def _matrices(first: Difference, left: Floats, right: Floats) -> Matrices:
    """All rows of the head in which two dumps differ first."""
    batch, head, *_ = first.place
    title = f"{WORDS.get(first.role, first.role)}, head {head}, sequence {batch}"
    axes = "row", "key" if first.role in WORDS else "channel"
    return Matrices(title, axes, left, right, unlike(left, right) & first.wrong[batch, head][:, None])


def _told_apart(left: str, right: str) -> tuple[str, str]:
    """Two files by their names; by all of their paths where these are the same."""
    names = Path(left).name, Path(right).name
    return names if names[0] != names[1] else (left, right)


def _with_verdicts(report: Report, dumps: Sequence[Dump], request: DumpRequest) -> Report:
    """The report on their difference, with which of the two is right, and the fault of the one that is not."""
    reports = {dump.file: judge_dump(_of_one(request, dump), dump) for dump in dumps}
    given = bool(request.given)
    meant = "the spec" if given else "what such dumps are usually meant for (no spec was given)"
    right = [name for name, one in reports.items() if one.verdict is Verdict.RIGHT]
    if len(right) == 1:
        other = next(name for name in reports if name not in right)
        theirs = reports[other]
        why = f"{report.why}; {right[0]} is right under {meant}, and {other} is not"
        if other == next(iter(reports)):
            report = _turned(report)
        return replace(
            report, why=why, faults=theirs.faults, alternatives=theirs.alternatives, spec=theirs.spec or report.spec
        )
    if right:
        return replace(report, why=f"{report.why}; both agree with {meant} in the output", hint="")
    said = f"neither agrees with {meant}" if given else "which of the two is right can't be told: no spec was given"
    hint = "say what is meant: --causal, --spec FILE; or qkv identify on each of them"
    report = replace(report, why=f"{report.why}; {said}", hint=hint)
    return report if given else _with_specs_read(report, dumps, request)


def _of_one(request: DumpRequest, dump: Dump) -> DumpRequest:
    return replace(request, target=dump.file, repeat="")


def _turned(report: Report) -> Report:
    """The report with the second dump's numbers as what is expected."""
    first = report.first_disagreement
    assert first is not None
    rows = [RowPair(row.title, row.got, row.expected) for row in report.rows]
    matrices = [replace(one, expected=one.got, got=one.expected) for one in report.matrices]
    first, sides = replace(first, expected=first.got, got=first.expected), (report.sides[1], report.sides[0])
    return replace(report, first_disagreement=first, rows=rows, matrices=matrices, sides=sides)
