"""check(): the pipeline from a candidate to a report, and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.adapters.calling import Caller
from qkv.adapters.construction import Construction
from qkv.adapters.host import Host
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.opening import Conventions, constructions, kind_of, readings
from qkv.adapters.process import HostProcess
from qkv.diagnosis import Diagnosis, Explanation, Observation, diagnose
from qkv.errors import CandidateError
from qkv.faults import CATALOGUE, Variant
from qkv.inference import Intention, intention_from, intentions
from qkv.randomness import RUNS, differs_from_run_to_run, right_on_average
from qkv.report import CandidateWords, Disagreement, NamedFault, ProbeResult, Report, RowPair, Verdict
from qkv.report.example import example_of
from qkv.settling import Trial, settle
from qkv.shrinking import smallest
from qkv.spec import AttentionSpec, spec_from_mapping, spec_to_mapping
from qkv.spread import describe_spread
from qkv.strength import strength


@dataclass(frozen=True)
class Request:
    """What the user asks.

    Attributes:
        target: ``file.py:Name``, or the object itself.
        given: fields of the spec, as in its JSON form.
        whole_spec: whether ``given`` is a whole spec, in which a missing field means its default.
        conventions: what was said of the candidate itself.
        seed: seed of every random number.
        time_limit: seconds that one call may take.
        memory_limit: bytes that the candidate may take.
        repeat: the command that asks the same again.
        judge_empty_rows: whether a row without keys is held to the spec's rule.
    """

    target: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    whole_spec: bool = False
    conventions: Conventions = field(default_factory=Conventions)
    seed: int = 0
    time_limit: float = 20.0
    memory_limit: int = 4 * 2**30
    repeat: str = ""

    @property
    def judge_empty_rows(self) -> bool:
        """Whether the user said what a row without keys gets."""
        return "empty_row" in self.given


def check(
    candidate: Any,
    spec: AttentionSpec | Mapping[str, Any] | None = None,
    *,
    layout: str | None = None,
    mask_argument: str | None = None,
    init: Mapping[str, Any] | None = None,
    weights: Mapping[str, str] | None = None,
    call: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit: float = 20.0,
    memory_limit: int = 4 * 2**30,
) -> Report:
    """The verdict on an attention implementation, with all that explains it.

    Args:
        candidate: ``"path/to/file.py:Name"``, which runs in a process of its own; or a class, a module, a factory or a
            function, which runs in this one.
        spec: what it is meant to compute: a whole spec, or some fields of one (as in the spec's JSON form), the others
            being inferred from what the candidate says of itself.
        layout: order of its axes: BHTD, BTHD, THD, TD for functions of query, key and value; BTE, TBE for modules.
        mask_argument: what its mask argument means: ``keep``, ``hide`` or ``additive``.
        init: arguments of its constructor.
        weights: names of its projections in its state dict: ``{"q_proj": "W_query.weight"}``.
        call: values for arguments of its call that qkv doesn't know.
        seed: seed of every random number.
        time_limit: seconds that one call may take (files only).
        memory_limit: bytes that it may take (files only).

    Raises:
        SpecError: the spec contradicts itself. Everything else that goes wrong is a verdict.
    """
    given = spec_to_mapping(spec) if isinstance(spec, AttentionSpec) else dict(spec or {})
    conventions = Conventions(layout, mask_argument, init or {}, weights or {}, call or {}, seed)  # type: ignore[arg-type]
    whole = isinstance(spec, AttentionSpec)
    return judge(Request(candidate, given, whole, conventions, seed, time_limit, memory_limit))


def judge(request: Request, host: Hosting | None = None) -> Report:
    """The report on a request.

    Args:
        request: what is asked.
        host: who holds the candidate; by default a process of its own for a file, this process for an object.
    """
    spec_from_mapping(request.given)
    if host is None:
        from_file = isinstance(request.target, str | Path)
        host = HostProcess(time_limit=request.time_limit, memory_limit=request.memory_limit) if from_file else Host()
    try:
        return _judged(host, request)
    finally:
        host.close()


def _judged(host: Hosting, request: Request) -> Report:
    words = CandidateWords(name=_name(request.target), file=_file(request.target))
    try:
        facts = host.open(str(request.target) if isinstance(request.target, Path) else request.target)
        words = _words(facts)
        trials = _settled(host, facts, request)
        trial, diagnosis = _decided(trials)
    except CandidateError as error:
        return _failed(request, words, error)
    return _report(request, facts, trial, diagnosis)


def _settled(host: Hosting, facts: Facts, request: Request) -> Sequence[Trial]:
    """The readings to judge, under the first construction of the candidate that can be called.

    Raises:
        CandidateError: it can't be built or called in any way; the error is that of the first.
    """
    said = intention_from(request.given, request.whole_spec)
    spec = intentions(facts, said)[0].spec
    first_error: CandidateError | None = None
    for construction in constructions(facts, spec, request.conventions, said.stated):
        try:
            ready = facts if construction is None else host.build(construction.kwargs)
            meant = intentions(ready, _with_implied(said, construction, request))
            return settle(_trials(host, ready, construction, meant, request))
        except CandidateError as error:
            first_error = first_error or error
            if error.fatal:
                break
    assert first_error is not None
    raise first_error


def _with_implied(said: Intention, construction: Construction | None, request: Request) -> Intention:
    """What was said, with what the constructor's arguments settle."""
    if construction is None:
        return said
    implied = {name: value for name, value in construction.implied.items() if name not in request.given}
    if implied and not request.whole_spec:
        said = intention_from({**request.given, **implied}, whole=False)
    return Intention(said.spec, said.stated, tuple(construction.assumptions))


def _trials(
    host: Hosting, facts: Facts, construction: Construction | None, meant: Sequence[Intention], request: Request
) -> Iterator[Trial]:
    caller = Caller(host, facts.framework)
    errors = []
    for intention in meant:
        try:
            for reading in readings(caller, facts, construction, intention.spec, request.conventions, intention.stated):
                yield Trial(reading, intention, request.seed, request.judge_empty_rows)
        except CandidateError as error:
            errors.append(error)
    if len(errors) == len(meant):
        raise errors[0]


MOST_DIAGNOSED = 6
"""How many readings are searched for a fault where none is right."""


def _decided(trials: Sequence[Trial]) -> tuple[Trial, Diagnosis]:
    """The reading to report, and its diagnosis: the first that is right or explained, else the likeliest."""
    for pairs in (False, True):
        for trial in islice(trials, MOST_DIAGNOSED if not pairs else 2):
            trial.run(quick=False)
            _unless_gone(trial)
            if differs_from_run_to_run(trial):
                return trial, Diagnosis(_dropout(right_on_average(trial)))
            diagnosis = diagnose(trial.observations, pairs=pairs)
            if trial.right or diagnosis.best is not None:
                return trial, diagnosis
    return trials[0], Diagnosis()


def _dropout(right_on_average: bool) -> Explanation:
    mean = "is right" if right_on_average else "is not right either: mend this first, then check again"
    note = f"two runs on the same input differ; the mean of {RUNS} runs {mean}"
    return Explanation((Variant(CATALOGUE["dropout-in-eval"], {}, note),), 0.0)


def _unless_gone(trial: Trial) -> None:
    for _, error in trial.refused:
        if error.fatal:
            raise error


def _report(request: Request, facts: Facts, trial: Trial, diagnosis: Diagnosis) -> Report:
    words = CandidateWords(**{**vars(_words(facts)), "dtype": trial.dtype})
    base: dict[str, Any] = {
        "candidate": words,
        "spec": trial.reading.spec,
        "assumptions": [*trial.intention.assumptions, *trial.reading.assumptions],
        "probes": _probe_results(trial),
        "repeat": _repeat(request),
        "printed": trial.printed,
    }
    if trial.changed and trial.right:
        return Report(Verdict.WRONG, faults=[_inputs_changed(trial)], spread="every row is right", **base)
    if trial.right:
        return Report(Verdict.RIGHT, spread="every row is right", strength=strength(trial.observations), **base)
    failing = next(observation for observation in trial.observations if not observation.comparison.agrees)
    shown = smallest(trial, diagnosis) or failing
    return Report(
        Verdict.WRONG,
        first_disagreement=_first(failing, diagnosis),
        rows=_rows(failing),
        spread=describe_spread(failing.comparison.wrong, failing.expected.judged),
        wrong=_wrong_rows(failing),
        faults=_named(diagnosis.best),
        alternatives=[fault for other in diagnosis.alternatives for fault in _named(other)],
        example=example_of(shown.probe.inputs, shown.expected.run.output, shown.output),
        why="" if diagnosis.best else "no fault of the catalogue, and no pair of them, gives these numbers",
        **base,
    )


def _first(failing: Observation, diagnosis: Diagnosis) -> Disagreement:
    place = failing.comparison.first
    assert place is not None
    batch, query, head, channel = place
    by_heads = failing.expected.num_heads > 1 or failing.expected.run.spec.num_heads == 1
    return Disagreement(
        probe=failing.probe.name,
        batch=batch,
        head=head if by_heads else None,
        query=query,
        key=None,
        channel=channel,
        expected=float(failing.expected.rows[place]),
        got=float(failing.comparison.got[place]),
    )


def _rows(failing: Observation) -> list[RowPair]:
    place = failing.comparison.first
    assert place is not None
    batch, query, head, _ = place
    title = f"output of token {query}" + (f" in head {head}" if failing.expected.num_heads > 1 else "")
    return [RowPair(title, failing.expected.rows[batch, query, head], failing.comparison.got[batch, query, head])]


def _wrong_rows(failing: Observation) -> list[list[bool]]:
    place = failing.comparison.first
    assert place is not None
    return [[bool(row) for row in head] for head in failing.comparison.wrong[place[0]].T]


def _named(explanation: Explanation | None) -> list[NamedFault]:
    if explanation is None:
        return []
    return [_named_fault(variant, explanation.error) for variant in explanation.variants]


def _named_fault(variant: Variant, error: float) -> NamedFault:
    fault = variant.fault
    return NamedFault(fault.id, fault.stage.value, fault.title, fault.explanation, fault.repair, variant.note, error)


def _inputs_changed(trial: Trial) -> NamedFault:
    entry = CATALOGUE["inputs-changed"]
    changed = ", ".join(sorted(trial.changed))
    return NamedFault(
        entry.id, entry.stage.value, entry.title, entry.explanation, entry.repair, f"changed: {changed}", 0.0
    )


def _probe_results(trial: Trial) -> list[ProbeResult]:
    ran = [
        ProbeResult(
            observation.probe.name,
            observation.probe.exposes,
            observation.comparison.agrees,
            observation.comparison.max_error,
            float(observation.expected.tolerance.max()),
        )
        for observation in trial.observations
    ]
    refused = [
        ProbeResult(probe.name, probe.exposes, None, None, None, error.message) for probe, error in trial.refused
    ]
    return ran + refused


def _words(facts: Facts) -> CandidateWords:
    return CandidateWords(facts.name, facts.file, facts.line, kind_of(facts), facts.framework)


def _failed(request: Request, words: CandidateWords, error: CandidateError) -> Report:
    return Report(
        Verdict.FAILED, words, why=error.message, hint=error.hint, detail=error.detail, repeat=_repeat(request)
    )


def _name(target: Any) -> str:
    if isinstance(target, str | Path):
        return str(target).rpartition(":")[2] if ".py:" in str(target) else ""
    return str(getattr(target, "__name__", type(target).__name__))


def _file(target: Any) -> str:
    return str(target).partition(".py")[0] + ".py" if isinstance(target, str | Path) and ".py" in str(target) else ""


def _repeat(request: Request) -> str:
    return request.repeat or f"qkv check {shlex.quote(str(request.target))} --seed {request.seed}" if isinstance(
        request.target, str | Path) else ""  # fmt: skip
