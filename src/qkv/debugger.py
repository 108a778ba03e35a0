"""check(): the pipeline from a candidate to a report, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.adapters.calling import DTYPES, Caller
from qkv.adapters.construction import Construction, Sizes
from qkv.adapters.dump import is_dump
from qkv.adapters.messages import DType, Facts, Hosting
from qkv.adapters.opening import Conventions, as_built, constructions, fitting_constructions, readings
from qkv.adapters.targets import same_file
from qkv.adapters.texts import Text, is_notebook, script_of, text_of
from qkv.adapters.tracebacks import shown
from qkv.comparison import Expectation
from qkv.diagnosis import Diagnosis, Explanation, diagnose
from qkv.dumps.judging import DumpRequest, judge_dump
from qkv.dumps.pair import judge_dumps
from qkv.errors import CandidateError, SpecError
from qkv.faults import CATALOGUE, Variant
from qkv.findings import failed, in_own_words, report_on, words_of
from qkv.gradients import with_gradients
from qkv.idle_mask import without_idle_mask
from qkv.inference import OPEN_IN_A_FILE, Intention, intention_from, intentions
from qkv.location import located
from qkv.long_sequence import with_length
from qkv.randomness import RANDOM, RUNS, differs_from_run_to_run, has_dropout, right_on_average
from qkv.repair import Bench, explained_and_mended, line_shown_by, patch_for
from qkv.report import CandidateWords, Report, SourceLine, Verdict
from qkv.report.anatomy import Anatomy
from qkv.report.cells import in_cells
from qkv.request import Request
from qkv.settling import Trial, settle
from qkv.sharing import sharing_heads
from qkv.size_sweep import SizeSweep, swept
from qkv.spec import AttentionSpec, spec_from_mapping, spec_to_mapping
from qkv.undeclared import undeclared_option


def check(
    candidate: Any,
    spec: AttentionSpec | Mapping[str, Any] | None = None,
    *,
    layout: str | None = None,
    mask_argument: str | None = None,
    init: Mapping[str, Any] | None = None,
    weights: Mapping[str, str] | None = None,
    call: Mapping[str, Any] | None = None,
    tensors: Mapping[str, str] | None = None,
    seed: int = 0,
    time_limit: float = 20.0,
    memory_limit: int = 4 * 2**30,
    sweep: bool = False,
    gradients: bool = False,
    length: int | None = None,
    dtype: DType | None = None,
) -> Report:
    """The verdict on an attention implementation, with all that explains it.

    Args:
        candidate: ``"path/to/file.py:Name"``, which runs in a process of its own; or a class, a module, a factory or a
            function, which runs in this one; or a dump: a ``.safetensors``, ``.npz`` or ``.pt`` file, or a folder of
            ``.npy`` files, with the query, key, value and output of one attention.
        spec: what it is meant to compute: a whole spec, or some fields of one (as in the spec's JSON form), the others
            being inferred from what the candidate says of itself.
        layout: order of its axes: BHTD, BTHD, THD, TD for functions of query, key and value; BTE, TBE for modules.
        mask_argument: what its mask argument means: ``keep``, ``hide`` or ``additive``.
        init: arguments of its constructor.
        weights: names of its projections in its state dict: ``{"q_proj": "W_query.weight"}``.
        call: values for arguments of its call that qkv doesn't know.
        tensors: names of a dump's tensors by role, where they are unusual: ``{"query": "layers.3.q"}``.
        seed: seed of every random number.
        time_limit: seconds that one call may take (files only).
        memory_limit: bytes that it may take (files only).
        sweep: try many more sizes than usual (functions of query, key and value only).
        gradients: judge the backward pass too, where the output is right (torch only).
        length: tokens of one long sequence, every row of which is judged too, in memory that grows with the length
            alone: up to 65,536 and more.
        dtype: the precision to run the candidate in; None for the best that it takes.

    Raises:
        SpecError: the spec contradicts itself. Everything else that goes wrong is a verdict.
    """
    given = fields_of(spec) if isinstance(spec, AttentionSpec) else dict(spec or {})
    conventions = Conventions(layout, mask_argument, init or {}, weights or {}, call or {}, seed)  # type: ignore[arg-type]
    whole = isinstance(spec, AttentionSpec)
    return judge(
        Request(
            candidate,
            given,
            whole,
            conventions,
            seed,
            time_limit,
            memory_limit,
            sweep=sweep,
            tensors=dict(tensors or {}),
            gradients=gradients,
            length=length,
            dtype=dtype,
        )
    )


def compare_dumps(
    first: str | Path,
    second: str | Path,
    spec: AttentionSpec | Mapping[str, Any] | None = None,
    *,
    layout: str | None = None,
    tensors: Mapping[str, str] | None = None,
    time_limit: float = 60.0,
    memory_limit: int = 4 * 2**30,
) -> Report:
    """What two dumps of one attention differ in, stage by stage; and which of the two is right, where a spec says.

    Args:
        first: a ``.safetensors``, ``.npz`` or ``.pt`` file, or a folder of ``.npy`` files.
        second: another one, of the same layer on the same input.
        spec: what the attention is meant to compute, or some fields of it.
        layout: order of the axes, where the shapes leave it open.
        tensors: names of tensors by role, where they are unusual.
        time_limit: seconds that reading may take, where another process does it.
        memory_limit: bytes that the tensors may take.

    Raises:
        SpecError: the spec contradicts itself, or one of the two is no dump.
    """
    given = fields_of(spec) if isinstance(spec, AttentionSpec) else dict(spec or {})
    conventions, whole = Conventions(layout=layout), isinstance(spec, AttentionSpec)
    request = Request(first, given, whole, conventions, 0, time_limit, memory_limit, tensors=dict(tensors or {}))
    return judge_pair(request, str(second))


def fields_of(spec: AttentionSpec) -> dict[str, Any]:
    """The spec's fields; those that a candidate's own parameters may settle only where they were set."""
    untouched = spec_to_mapping(AttentionSpec())
    fields = spec_to_mapping(spec)
    return {name: value for name, value in fields.items() if name not in OPEN_IN_A_FILE or value != untouched[name]}


def _unseen(trial: Trial, diagnosis: Diagnosis) -> None:
    """Nothing: nobody wants to see the candidate while it can be called."""


def judge(request: Request, host: Hosting | None = None, seen: Callable[[Trial, Diagnosis], None] = _unseen) -> Report:
    """The report on a request.

    Args:
        request: what is asked.
        host: who holds the candidate; by default a process of its own for a file, this process for an object.
        seen: is given the reading of the candidate that is judged, and what was diagnosed, while it can be called.
    """
    spec_from_mapping(request.given)
    request.check_sizes()
    asked_of_calls = {
        "gradients": request.gradients, "length": request.length, "dtype": request.dtype, "sweep": request.sweep,
    }  # fmt: skip
    dump, script = is_dump(request.target), script_of(request.target, request.source)
    if (dump or script is not None) and any(asked_of_calls.values()):
        names, kind = ", ".join(name for name, asked in asked_of_calls.items() if asked), "dump" if dump else "script"
        raise SpecError(f"{names}: only what can be called can be asked for it, and {request.target} is a {kind}")
    if request.tensors and not dump:
        raise SpecError(f"tensors are named for a dump, and {request.target} is none. Leave --tensor out")
    if dump:
        return judge_dump(of_dump(request, "check"))
    if host is None:
        host = request.host()
    try:
        if script is not None:
            return judge_script(script, request, host, "check").report
        report = _judged(host, request, seen)
        loaded_notebook = is_notebook(request.file) and report.candidate.line
        return in_cells(report, text_of(request.file, request.source)) if loaded_notebook else report
    finally:
        host.close()


def judge_script(script: Text, request: Request, host: Hosting, verb: str) -> Anatomy:
    """A script's lines with what each makes, and the report on it, asked for by a command."""
    found = explained_and_mended(script, host, request.command(verb), request.patch_seconds, request.advance)
    idle = request.idle_in_scripts()
    assumptions = [*([idle] if idle else []), *found.report.assumptions]
    return replace(found, report=replace(found.report, assumptions=assumptions))


def judge_pair(request: Request, other: str) -> Report:
    """The report on two dumps of one layer, held against each other.

    Raises:
        SpecError: one of the two is no dump.
    """
    for target in (request.target, other):
        if not is_dump(target):
            raise SpecError(
                f"{target} is no dump, and two files are compared where both are: .safetensors, .npz, .pt, or a folder "
                f"of .npy files. To judge one attention: qkv check {request.target}"
            )
    return judge_dumps(of_dump(request, "check"), other)


def of_dump(request: Request, verb: str) -> DumpRequest:
    """The same request as one of a dump, asked by a command."""
    said = request.conventions
    return DumpRequest(
        str(request.target),
        request.given,
        request.whole_spec,
        request.tensors,
        said.layout,
        said.mask_meaning,
        request.time_limit,
        request.memory_limit,
        request.command(verb),
        request.advance,
    )


def _judged(host: Hosting, request: Request, seen: Callable[[Trial, Diagnosis], None] = _unseen) -> Report:
    words, repeat = CandidateWords(name=request.name, file=request.file), request.command("check")
    try:
        facts = host.open(request.to_open, request.instead)
        words = words_of(facts)
        trial, diagnosis = _decided(settled(host, facts, request))
        sweep, diagnosis = _at_other_sizes(trial, diagnosis, request.sweep)
        bench = Bench(host, request.to_open, trial, request.instead) if _may_be_patched(request, trial) else None
        runs_plainly = bench is not None and trial.runs_plainly()
        seen(trial, diagnosis)
        line = _line_of(trial, diagnosis)  # while it is as it was judged: what follows builds it in other sizes
        report = report_on(trial.reading.facts, trial, diagnosis, repeat, sweep)
        if report.verdict is Verdict.WRONG:
            report = _with_line(report, line)
        report = with_gradients(report, trial) if request.gradients else report
        if request.length is not None:
            report = with_length(report, trial, request.length, dtype=request.dtype, advance=request.advance)
        report = report if bench is None else _with_patch(report, bench, runs_plainly, request)
        return in_own_words(report, facts.framework, getattr(trial.reading, "layout", ""))
    except CandidateError as error:
        return failed(words, error, repeat)


def _line_of(trial: Trial, diagnosis: Diagnosis) -> SourceLine | str:
    """The line that makes the wrong numbers, or why none is named. A verdict is never lost over it."""
    try:
        return located(trial, diagnosis)
    except CandidateError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of qkv's own, in what only adds to the verdict
        return _own_failure("it", error)


def _own_failure(sought: str, error: Exception) -> str:
    return f"qkv failed while it looked for {sought} ({type(error).__name__}: {error}); please report it"


def _with_line(report: Report, line: SourceLine | str) -> Report:
    """The report with the line that makes the wrong numbers, in the file as it was named; or why there is none."""
    if isinstance(line, str):
        return replace(report, line_why=line)
    file = report.candidate.file
    own = file and same_file(file, line.file)
    return replace(report, line=replace(line, file=file if own else shown(line.file)))


def _may_be_patched(request: Request, trial: Trial) -> bool:
    """Whether a repair is looked for: in a file, and where its numbers say when it is right."""
    return request.patch_seconds > 0 and bool(request.file) and (trial.wrong or bool(trial.changed))


def _with_patch(report: Report, bench: Bench, runs_plainly: bool, request: Request) -> Report:
    """The report with a repair of the file, where it is wrong and one is found in time.

    Args:
        report: what is known of it.
        bench: tries edited files.
        runs_plainly: whether it could be called without a mask as it was judged.
        request: what was asked.
    """
    if report.verdict is not Verdict.WRONG:
        return report

    def is_right(edits: Mapping[str, bytes]) -> bool:
        if runs_plainly and not bench.trial.runs_plainly():  # who leaves its mask out must still be able to
            return False
        again = replace(request, instead={**request.instead, **edits}, patch_seconds=0.0, advance=lambda share: None)
        return _judged(bench.host, again).verdict is Verdict.RIGHT

    # A bar of progress is either that of a long sequence or this one.
    advance = request.advance if request.length is None else lambda share: None
    try:
        patch = patch_for(report, bench, is_right, request.patch_seconds, advance)
    except CandidateError:
        raise
    except Exception as error:  # noqa: BLE001 - as for the line
        return replace(report, assumptions=[*report.assumptions, _own_failure("a repair", error)])
    if patch is None:
        return report
    line = line_shown_by(patch, report.line)
    return replace(report, patch=patch, line=line, line_why="" if line is not None else report.line_why)


def settled(host: Hosting, facts: Facts, request: Request) -> Sequence[Trial]:
    """The readings to judge, under the first construction of the candidate that can be called.

    Raises:
        CandidateError: it can't be built or called in any way; the error is that of the first.
    """
    said = intention_from(request.given, request.whole_spec)
    spec = intentions(facts, said)[0].spec
    first_error: CandidateError | None = None

    def reopen() -> None:
        host.open(request.to_open, request.instead)

    for construction in fitting_constructions(host, facts, spec, request.conventions, said.stated):
        try:
            trials = trials_of(host, facts, construction, said, request)
            return sharing_heads(settle(trials, reopen if construction is None else None), said.stated, reopen)
        except CandidateError as error:
            first_error = first_error or error
            if error.fatal:
                break
    assert first_error is not None
    raise first_error


def trials_of(
    host: Hosting, facts: Facts, construction: Construction | None, said: Intention, request: Request
) -> Iterator[Trial]:
    """Every reading of a candidate that is built in one way."""
    if construction is None:
        yield from _trials(host, facts, None, intentions(facts, said), request)
        return

    def rebuild(sizes: Sizes) -> Iterator[Trial]:
        short = replace(request, conventions=replace(request.conventions, short=True))
        small = next(constructions(facts, said.spec, request.conventions, said.stated, sizes))
        yield from trials_of(host, facts, small, said, short)

    try:
        built = host.build(construction.kwargs)
    except CandidateError as error:
        error.hint = error.hint or (construction.as_given and f"to build it otherwise: {construction.as_given}")
        raise
    ready = replace(as_built(built, construction), init=facts.init, beside=facts.beside)
    meant = intentions(ready, replace(said, assumptions=tuple(construction.assumptions)))
    for trial in _trials(host, ready, construction, meant, request):
        trial.rebuild, trial.built_with = rebuild, construction.kwargs
        yield trial


def _trials(
    host: Hosting, facts: Facts, construction: Construction | None, meant: Sequence[Intention], request: Request
) -> Iterator[Trial]:
    caller = Caller(host, facts.framework, allowed=DTYPES if request.dtype is None else (request.dtype,))
    known: dict[Hashable, Expectation] = {}
    errors = []
    for intention in meant:
        if intention.if_refused and caller.dtype is not None:
            continue
        try:
            for reading in readings(caller, facts, construction, intention.spec, request.conventions, intention.stated):
                yield Trial(reading, intention, request.seed, "empty_row" in intention.stated, known=known)
        except CandidateError as error:
            errors.append(error)
    if len(errors) == len(meant):
        raise errors[0]


MOST_DIAGNOSED = 6
"""How many readings are searched for a fault where none is right."""


def _decided(trials: Sequence[Trial]) -> tuple[Trial, Diagnosis]:
    """The reading to report, and its diagnosis: the first that is right or explained, else the likeliest."""
    idle = without_idle_mask(trials)
    for trial in idle:
        trial.run(quick=False)
        if trial.right:
            return trial, Diagnosis()
    first: Diagnosis | None = None
    trials = [trials[0], *idle, *trials[1:]]
    for pairs in (False, True) if len(trials) > 1 else (True,):
        for trial in islice(trials, MOST_DIAGNOSED if not pairs else 2):
            trial.run(quick=False)
            _unless_gone(trial)
            if differs_from_run_to_run(trial):
                return trial, _randomness(trial)
            diagnosis = diagnose(trial.observations, pairs=pairs)
            if trial.wrong:
                diagnosis = replace(diagnosis, undeclared=undeclared_option(trial, diagnosis.best))
            if trial.right or diagnosis.best is not None or diagnosis.undeclared is not None:
                return trial, diagnosis
            first = first or diagnosis
    return trials[0], first or Diagnosis()


SIZE_KINDS = frozenset(
    {"fewer-queries", "long", "far", "one-sequence", "one-token", "value-dim", "strided", "other-width"}
)
"""Kinds of probe that are ordinary but for their size."""


def _at_other_sizes(trial: Trial, diagnosis: Diagnosis, more: bool) -> tuple[SizeSweep | None, Diagnosis]:
    """What a function that is right, or wrong at some size only, gives at many; and the diagnosis of that."""
    wrong = {observation.probe.kind for observation in trial.observations if not observation.comparison.agrees}
    if not trial.reading.abilities.free_sizes or trial.broken is not None or not wrong <= SIZE_KINDS:
        return None, diagnosis
    if not any(observation.expected.judged.any() for observation in trial.observations):
        return None, diagnosis
    sweep = swept(trial, more=more)
    if sweep.wrong and diagnosis.best is None:
        there = sweep.most_telling
        trial.observations = [*there, *trial.observations]
        diagnosis = diagnose(trial.observations, pairs=False)
        if diagnosis.best is None:  # a fault of some sizes alone need not be right at the others
            diagnosis = diagnose([o for o in trial.observations if not o.comparison.agrees], pairs=False)
    return sweep, diagnosis


def _randomness(trial: Trial) -> Diagnosis:
    """What makes two runs on the same input differ: dropout, where the mean is right or its code speaks of it."""
    right = right_on_average(trial)
    if not right and not has_dropout(trial.reading.facts):
        return Diagnosis(untold=RANDOM)
    mean = "is right" if right else "is not right either: mend this first, then check again"
    note = f"two runs on the same input differ; the mean of {RUNS} runs {mean}"
    return Diagnosis(Explanation((Variant(CATALOGUE["dropout-in-eval"], {}, note),), 0.0))


def _unless_gone(trial: Trial) -> None:
    for _, error in trial.refused:
        if error.fatal:
            raise error
