"""identify() of a dump: the spec that gives its output, its rivals, and what one input can't decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qkv.diagnosis import diagnose
from qkv.dumps.arrangements import arrangements
from qkv.dumps.budget import Budget, SpentError
from qkv.dumps.handed import handed
from qkv.dumps.judging import DumpRequest, dump_of, facts_of
from qkv.dumps.observed import DumpReading, spec_here
from qkv.dumps.search import EXACT, NEAR, Search, Tried
from qkv.dumps.tensors import Dump
from qkv.errors import CandidateError, SpecError
from qkv.faults import Variant
from qkv.inference import Intention, intention_from
from qkv.masks import Everything, SlidingWindow
from qkv.oracle import Run
from qkv.report import CandidateWords, ProbeResult
from qkv.report.identity import Estimate, Identity
from qkv.spec import AttentionSpec, describe

MOST_RIVALS = 6
MOST_READINGS = 6
SECONDS = 20.0
"""Time on the processor that the search may take."""
NEAREST = 2
"""Specs that a fault is sought in where no spec gives the output."""


def identify_dump(request: DumpRequest, dump: Dump | None = None) -> Identity:
    """Which attention a dump is of: the spec that gives its output, what it can't decide, and its rivals.

    One that was read already may be given.

    Raises:
        SpecError: the fields contradict themselves, or a tensor is given in a role that there is not.
    """
    words = CandidateWords(Path(request.target).name, request.target, kind="dump")
    said, budget = intention_from(request.given, False), Budget(SECONDS)
    try:
        searches = [Search(reading, said, budget) for reading in _readings(dump or dump_of(request), request, said)]
        words = replace(words, dtype=searches[0].reading.dtype)
        return replace(_found(searches, request.advance), candidate=words, repeat=request.repeat)
    except CandidateError as error:
        return Identity(words, why=error.message, hint=error.hint, detail=error.detail, repeat=request.repeat)


def _readings(dump: Dump, request: DumpRequest, said: Intention) -> list[DumpReading]:
    found = []
    for arrangement in arrangements(dump, said.spec, said.stated, request.layout):
        try:
            spec = spec_here(said.spec, arrangement)
        except SpecError:  # as many slopes, say, as it has no heads
            continue
        found += [DumpReading(dump, spec, arrangement, way, facts_of(dump))
                  for way in handed(dump, arrangement, request.mask_meaning)]  # fmt: skip
    if not found:
        raise CandidateError("what was said of the attention fits no reading of the shapes", hint="leave out --heads")
    return found


WAYS: Mapping[str, Callable[[Search], list[Tried]]] = {
    "the likely specs": lambda search: search.by_name(wide=False),
    "numbers that nobody writes": lambda search: search.by_numbers(),
    "the less likely masks": lambda search: search.by_name(wide=True),
}
"""How a spec is sought, in order: one way in all readings, then the next."""


def _found(every: Sequence[Search], advance: Callable[[float], None]) -> Identity:
    """What the first search finds; else a spec with a fault; what is known where it could not be finished."""
    searches = every[:1]
    try:
        # A reading under which the output is no mixture of the values is none, where there is another.
        searches = ([search for search in every if search.sights] or every)[:MOST_READINGS]
        for way in WAYS.values():
            for search in searches:
                found = way(search)
                if found:
                    return _identity(search, found)
                advance(1 / (len(WAYS) * len(searches)))
        for search in searches:
            by_fault = _by_fault(search)
            if by_fault is not None:
                return by_fault
    except SpentError:
        return _so_far(searches, f"it was ended after {SECONDS:.0f} s")
    except KeyboardInterrupt:
        return _so_far(searches, "it was interrupted")
    return _unknown(searches)


def _so_far(searches: Sequence[Search], ended: str) -> Identity:
    """What is known where the search could not be finished."""
    note = f"what the rest of the search would have found: {ended}"
    for search in searches:
        found = search.so_far()
        if found:
            identity = _identity(search, found)
            return replace(identity, undecided=[*identity.undecided, note])
    return replace(_unknown(searches), undecided=[note])


def _by_fault(search: Search) -> Identity | None:
    """The nearest spec with the fault that gives the dump's output; None where none does."""
    for tried in [*search.nearest[:NEAREST], *search.plain()]:
        diagnosis = diagnose([search.held(tried).observation], pairs=False)
        if diagnosis.best is not None:
            faults = " and ".join(_in_words(variant) for variant in diagnosis.best.variants)
            reading = f"no spec gives its output; this one does with a fault: {faults}"
            readings = [reading, *search.reading.assumptions]
            return Identity(
                CandidateWords(""), _spoken(search, tried), readings=readings, hint="qkv check it with this spec"
            )
    return None


def _in_words(variant: Variant) -> str:
    return f"{variant.fault.id} ({variant.note or variant.fault.title})"


def _unknown(searches: Sequence[Search]) -> Identity:
    nearest = {search: [*search.nearest, *search.plain()][0] for search in searches}
    search = min(searches, key=lambda one: nearest[one].share)
    spec, share = _spoken(search, nearest[search]), nearest[search].share
    broken = search.reading.dump.tensors["output"].not_numbers
    if broken and share <= NEAR[search.reading.dtype]:
        why = f"{broken}; its other rows are those of this spec"
        hint = "look for where the first of them is made, before attention or in it"
        return Identity(CandidateWords(""), spec, why=why, hint=hint, readings=search.reading.assumptions)
    why = f"no spec that was tried gives its output; the nearest is off by {share:.2g} of it: {describe(spec)}"
    why = f"{broken}; {why}" if broken else why
    return Identity(CandidateWords(""), why=why, hint=_hint(search), readings=search.reading.assumptions)


def _hint(search: Search) -> str:
    """What may help where no spec was found: how it is read, then what else could be dumped."""
    hint = f"if it was misread ({search.reading.arrangement}): --layout THD, --heads 8, --kv-heads 2 say how it lies"
    if "weights" in search.reading.dump.tensors:
        return hint
    return f"{hint}; else dump the weights too, or fewer tokens than a value has channels"


def _identity(search: Search, found: Sequence[Tried]) -> Identity:
    best = found[0]
    best = _with_empty_rows(search, best)
    observation = search.held(best).observation
    run = observation.expected.run
    largest, allowed = observation.comparison.max_error, float(observation.expected.tolerance.max())
    spec = _spoken(search, best)
    rivals = dict.fromkeys(describe(_spoken(search, one)) for one in found[1:])
    rivals.pop(describe(spec), None)
    estimates = _estimates(search, best)
    return Identity(
        CandidateWords(""),
        spec,
        per_head=_per_head(spec, best),
        estimates=estimates,
        readings=[
            *search.reading.assumptions,
            *(f"{name} {one} (± {one.error:.1g})" for name, one in estimates.items()),
        ],
        undecided=list(_undecided(search, best, run)),
        reproduced=observation.comparison.worst,
        probes=[ProbeResult("dump", "its one input", True, largest, allowed)],
        rivals=list(rivals)[:MOST_RIVALS],
    )


def _with_empty_rows(search: Search, best: Tried) -> Tried:
    """The same with what its queries get that may attend to nothing, where it has such queries and follows a rule."""
    if search.held(best).observation.expected.run.may_attend.any(axis=-1).all():
        return best
    for rule in ("zero", "uniform", "nan"):
        one = replace(best, structure=best.structure.but(empty_row=rule))
        if search.held(one, frozenset({"empty_row"})).right:
            return one
    return best


def _spoken(search: Search, tried: Tried) -> AttentionSpec:
    """The spec with the first query's place by its name."""
    query_len, key_len = search.inputs.lengths
    names = {0: "top_left", key_len - query_len: "bottom_right"}
    spec = tried.spec
    offset = spec.query_offset
    return spec if isinstance(offset, str) else spec.but(query_offset=names.get(offset, offset))


def _estimates(search: Search, best: Tried) -> dict[str, Estimate]:
    numbers, error = best.numbers, EXACT[search.reading.dtype]
    found = {"scale": Estimate(numbers.scale, error * abs(numbers.scale), best.scale_name)}
    if numbers.softcap is not None:
        found["softcap"] = Estimate(numbers.softcap, 10 * error * numbers.softcap)
    return found


def _per_head(spec: AttentionSpec, best: Tried) -> list[dict[str, Any]]:
    heads: list[dict[str, Any]] = [{"kv_head": head // spec.group_size} for head in range(spec.num_heads)]
    slopes = None if spec.alibi is None else spec.alibi.slopes_for(spec.num_heads)
    for name, values in (("sink", best.numbers.sinks), ("slope", slopes)):
        for head, value in zip(heads, () if values is None else values, strict=False):
            head[name] = float(value)
    return heads


def _undecided(search: Search, best: Tried, run: Run) -> Iterator[str]:
    query_len, key_len = search.inputs.lengths
    spec = best.spec
    if query_len == key_len and spec.mask != Everything():
        yield "the corner that the mask starts from: there are as many queries as keys; a decoding step would tell"
    if run.may_attend.any(axis=-1).all():
        yield "what a query gets that may attend to nothing: there is none here"
    if not spec.masks(SlidingWindow):
        yield f"whether there is a window of {key_len} keys or more: a longer dump would tell"
    if query_len == 1 and key_len > 1:
        yield "whether it is causal: the only query stands at the end"
    if spec.kv_heads == 1 < spec.num_heads:
        yield "how key/value heads are shared: there is one"
