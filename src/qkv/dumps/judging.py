"""check() of a dump: one input and its output, read in every way that fits, held to the spec, and diagnosed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from qkv.adapters.doubts import Doubt
from qkv.adapters.messages import Argument, Facts
from qkv.diagnosis import Diagnosis, Observation, diagnose, under
from qkv.dumps.arrangements import Arrangement, arrangements
from qkv.dumps.backward import with_gradients_of
from qkv.dumps.handed import Handed, handed
from qkv.dumps.inside import Inner, first_departure, inner_tensors
from qkv.dumps.observed import DumpReading, Part, narrowed, spec_here
from qkv.dumps.tensors import Dump, read_dump
from qkv.errors import CandidateError
from qkv.findings import failed, probe_results, report_on
from qkv.inference import Intention, intention_from, intentions
from qkv.masks import Documents, Everything
from qkv.report import CandidateWords, Report, Verdict
from qkv.settling import Trial
from qkv.vocabulary import MaskMeaning

LARGEST = 12_000_000
"""Weights that are looked at at once: the oracle holds them a dozen times in float64."""

SEARCHED = 50_000
"""Weights that the whole catalogue is tried on; of more, a part is searched."""

PAIRED = 20_000
"""Weights that pairs of faults are tried on."""

MOST_DIAGNOSED = 6
"""How many readings are searched for a fault where none is right."""

MOST_READINGS = 200


@dataclass(frozen=True)
class DumpRequest:
    """What is asked of a dump.

    Attributes:
        target: the file or folder.
        given: fields of the spec, as in its JSON form.
        whole_spec: whether ``given`` is a whole spec, in which a missing field means its default.
        tensors: names of tensors by role, where they are unusual.
        layout: order of its axes; None to tell from the shapes.
        mask_meaning: what its mask means; None for any.
        time_limit: seconds that reading it may take, where another process does.
        memory_limit: bytes that its tensors may take.
        repeat: the command that asks the same again.
        advance: is told the share of the work done since it was told last, where identifying it takes long.
    """

    target: str
    given: Mapping[str, Any] = field(default_factory=dict)
    whole_spec: bool = False
    tensors: Mapping[str, str] = field(default_factory=dict)
    layout: str | None = None
    mask_meaning: MaskMeaning | None = None
    time_limit: float = 60.0
    memory_limit: int = 4 << 30
    repeat: str = ""
    advance: Callable[[float], None] = lambda share: None


@dataclass
class Held:
    """A dump held to one spec in one reading.

    Attributes:
        trial: the reading and its one observation, as the judge has them.
        intention: what it was held to, and why.
        inner: the tensors from inside beside the oracle's.
    """

    trial: Trial
    intention: Intention
    inner: list[Inner]

    @property
    def observation(self) -> Observation:
        """The one observation."""
        return self.trial.observations[0]

    @property
    def reading(self) -> DumpReading:
        """How the dump was read."""
        assert isinstance(self.trial.reading, DumpReading)
        return self.trial.reading

    @property
    def right(self) -> bool:
        """Whether the output and every tensor from inside agree."""
        return self.observation.comparison.agrees and first_departure(self.inner) is None

    @property
    def wrongness(self) -> tuple[float, float]:
        """Order among readings: the share of rows that are wrong, then the largest error."""
        comparison = self.observation.comparison
        return float(comparison.wrong.mean()), comparison.max_error


def judge_dump(request: DumpRequest, dump: Dump | None = None) -> Report:
    """The report on a dump; on one that was read already, where it is given.

    Raises:
        SpecError: the spec contradicts itself, or a tensor is given in a role that there is not.
    """
    words = CandidateWords(Path(request.target).name, request.target, kind="dump")
    said = intention_from(request.given, request.whole_spec)
    try:
        dump = dump or dump_of(request)
        tensors = dump.tensors.values()
        words = replace(words, dtype=", ".join(dict.fromkeys(tensor.dtype for tensor in tensors)))
        held = _settled(held_in_every_way(dump, said, request))
        return replace(_report(held, request), candidate=words)
    except CandidateError as error:
        return failed(words, error, request.repeat)


def dump_of(request: DumpRequest) -> Dump:
    """The dump that is asked about, read.

    Raises:
        CandidateError: it can't be read, or lacks a tensor.
        SpecError: a tensor is given in a role that there is not.
    """
    return read_dump(request.target, request.tensors, request.time_limit, request.memory_limit)


def held_in_every_way(dump: Dump, said: Intention, request: DumpRequest) -> Iterator[Held]:
    """The dump under every reading of its axes and masks, and every intention that fits what was said."""
    found = arrangements(dump, said.spec, said.stated, request.layout)
    ways = [(one, way) for one in found for way in handed(dump, one, request.mask_meaning)]
    facts = facts_of(dump)
    doubts = _doubts(found, ways)
    for (arrangement, way), meant in list(product(ways, intentions(facts, said)))[:MOST_READINGS]:
        intention = _with_tensors(meant, way, dump)
        reading = DumpReading(dump, spec_here(intention.spec, arrangement), arrangement, way, facts, doubts)
        yield held_to(reading, intention)


def facts_of(dump: Dump) -> Facts:
    """What little a dump says of itself."""
    arguments = [Argument(name) for name in ("query", "key", "value")]
    return Facts(Path(dump.file).name.partition(".")[0], "function", "numpy", False, "", call=arguments)


def _doubts(found: Sequence[Arrangement], ways: Sequence[tuple[Arrangement, Handed]]) -> list[Doubt]:
    doubts = []
    layouts = list(dict.fromkeys(one.layout for one in found))
    if len(found) > 1:
        why = f"its axes can be read in {len(found)} ways: {'; '.join(str(one) for one in found[:4])}"
        hint = f"--layout {layouts[0]} settles it" if len(layouts) > 1 else "--heads N settles it"
        doubts.append(Doubt(why, hint))
    if len(ways) > len(found):
        doubts.append(
            Doubt("its mask can be read in several ways", "--mask-argument keep, hide or additive settles it")
        )
    return doubts


def _with_tensors(meant: Intention, way: Handed, dump: Dump) -> Intention:
    """The intention with what the dump's own tensors say: scale, sinks, documents."""
    scale = dump.array("scale")
    if scale is not None and scale.size == 1 and "scale" not in meant.stated:
        meant = meant.assuming("the scale is the dump's own", scale=float(scale.item()))
    if "sinks" in way.fields and "sinks" not in meant.stated:
        meant = meant.assuming("sinks, since the dump holds them", sinks=True)
    if "document" in way.fields and "mask" not in meant.stated:
        mask = meant.spec.mask
        joined = Documents() if mask == Everything() else mask & Documents()
        meant = meant.assuming("documents, since the dump holds them", mask=joined)
    if meant.spec.sinks and "sinks" not in way.fields:
        hint = "name the tensor: --tensor sinks=NAME; or leave sinks out of the spec"
        raise CandidateError("the spec has sinks, and the dump holds none", hint=hint)
    if meant.spec.masks(Documents) and "document" not in way.fields:
        hint = "name the tensor with each token's document number: --tensor documents=NAME"
        raise CandidateError("the spec has documents, and the dump does not say which token is of which", hint=hint)
    return meant


def held_to(reading: DumpReading, intention: Intention) -> Held:
    """A dump in one reading, run and compared.

    Raises:
        CandidateError: it is too large.
    """
    sizes = reading.arrangement.sizes
    cost = sizes["batch"] * reading.spec.num_heads * sizes["queries"] * sizes["keys"]
    if cost > LARGEST:
        message = (
            f"the dump has {cost / 1e6:.0f} million attention weights, and {LARGEST / 1e6:.0f} million can be judged"
        )
        raise CandidateError(
            message, hint="dump fewer tokens, one sequence, or fewer heads: a small input shows as much"
        )
    judge_empty_rows = "empty_row" in intention.stated
    trial = Trial(reading, intention, 0, judge_empty_rows, [reading.observation(judge_empty_rows)], dtype=reading.dtype)
    with np.errstate(all="ignore"):
        return Held(trial, intention, inner_tensors(reading, trial.observations[0].expected.run))


def _settled(ways: Iterator[Held]) -> list[Held]:
    """The first way that is right, alone; else all, the nearest first."""
    tried: list[Held] = []
    for held in ways:
        if held.right and held.observation.expected.judged.any():
            return [held]
        tried.append(held)
    if not any(held.observation.expected.judged.any() for held in tried):
        spoilt = [t.not_numbers for t in tried[0].reading.dump.tensors.values() if t.not_numbers]
        message = "; ".join(spoilt) or "no query may attend to anything"
        raise CandidateError(
            f"no row is left to judge: {message}", hint="look for where the first NaN is made, before attention"
        )
    return sorted(tried, key=lambda held: held.wrongness)


def _report(ways: Sequence[Held], request: DumpRequest) -> Report:
    held, diagnosis = _diagnosed(ways)
    observation = held.observation
    small = _part(held)
    shown = (
        held.trial if small is None else replace(held.trial, reading=small.reading, observations=[small.observation])
    )
    report = report_on(held.reading.facts, shown, diagnosis, request.repeat)
    assumptions = [*held.intention.assumptions, *held.reading.assumptions]
    if small is not None:
        assumptions.append(f"faults were sought on a part: {_in_words(small.reading.part)}")
        report = replace(report, first_disagreement=_moved(report, small.reading))
    if report.verdict is Verdict.UNDECIDED and not request.given:
        report = replace(report, hint=f"{report.hint}; qkv identify {request.target} reads which attention it is")
    probes = [*probe_results(held.trial), *(inner.probe for inner in held.inner)]
    report = replace(report, probes=probes, assumptions=assumptions, example=None)
    departed = first_departure(held.inner)
    if departed is None:
        with np.errstate(all="ignore"):
            expected = observation.expected
            return with_gradients_of(report, held.reading, expected.run, expected.held_to)
    if observation.comparison.agrees:
        why = f"the output is right, and {departed}: the {departed.role} may be those of another place"
        return replace(
            report,
            verdict=Verdict.UNDECIDED,
            why=why,
            hint=f"leave it out, or say what it is: --tensor {departed.role}=NAME",
        )
    why = f"the first stage that departs is {departed.stage}: {departed}"
    return replace(report, why=f"{why}; {report.why}" if report.why else why)


def _moved(report: Report, reading: DumpReading) -> Any:
    """The first disagreement of a part, counted in the whole dump."""
    first, part = report.first_disagreement, reading.part
    if first is None:
        return None
    head = first.head if first.head is None else first.head + (part.kv_head or 0) * reading.spec.group_size
    return replace(first, batch=first.batch + (part.sequence or 0), head=head)


def _in_words(part: Part) -> str:
    words = [
        f"{name} {place}"
        for name, place in (("sequence", part.sequence), ("key/value head", part.kv_head))
        if place is not None
    ]
    return ", ".join([*words, *([f"the first {part.tokens} tokens"] if part.tokens else [])])


def _part(held: Held) -> Held | None:
    """A part small enough to be searched for faults, with the first wrong row in it; None where the whole is."""
    observation, run = held.observation, held.observation.expected.run
    if observation.cost <= SEARCHED:
        return None
    batch, query, head, _ = observation.comparison.first or (0, 0, 0, 0)
    kv_head = None if held.reading.spec.kv_heads == 1 else head // held.reading.spec.group_size
    part = Part(batch if run.inputs.batch > 1 else None, kv_head)
    group, (queries, keys) = held.reading.spec.group_size, run.inputs.lengths
    if group * queries * keys > SEARCHED and queries == keys:
        tokens = max(int((SEARCHED / group) ** 0.5), query + 1)
        if tokens < queries and not run.may_attend[..., :tokens, tokens:].any():
            part = replace(part, tokens=tokens)
    return held_to(narrowed(held.reading, part), held.intention)


def _diagnosed(ways: Sequence[Held]) -> tuple[Held, Diagnosis]:
    """The way to report and its diagnosis: the first that is right or explained, else the nearest."""
    if ways[0].observation.comparison.agrees:
        return ways[0], Diagnosis()
    first: Diagnosis | None = None
    for pairs in (False, True):
        for held in ways[: 1 if pairs else MOST_DIAGNOSED]:
            small = _part(held) or held
            if pairs and not _worth_pairs(small.observation):
                continue
            diagnosis = _reproducing_inside(held, diagnose([small.observation], pairs=pairs))
            if diagnosis.best is not None:
                return held, diagnosis
            first = first or diagnosis
    return ways[0], first or Diagnosis()


def _worth_pairs(observation: Observation) -> bool:
    """Whether pairs of faults are tried: not on many weights, nor where a NaN stands that no fault explains."""
    got = observation.comparison.got[observation.expected.judged]
    return observation.cost <= PAIRED and bool(np.isfinite(got).all())


def _reproducing_inside(held: Held, diagnosis: Diagnosis) -> Diagnosis:
    """Of the explanations those that give the dump's tensors from inside too, where any does."""
    if diagnosis.best is None or not held.inner:
        return diagnosis
    found = [diagnosis.best, *diagnosis.alternatives]
    agreeing = []
    for explanation in found:
        with np.errstate(all="ignore"):
            right = held.observation.expected.run
            run = under(explanation.variants, right)
            # Up to the fault all is as it should be.
            run = run.but(before={**right.before, **run.before})
            if first_departure(inner_tensors(held.reading, run)) is None:
                agreeing.append(explanation)
    kept = agreeing or found
    return replace(diagnosis, best=kept[0], alternatives=tuple(kept[1:]))
