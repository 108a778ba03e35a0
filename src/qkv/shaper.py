"""predict_shapes(): the pipeline from a spec, or from a candidate's own code, to the shape of everything it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from qkv import shapes
from qkv.adapters.abilities import Abilities, NotApplicable
from qkv.adapters.construction import Construction, Sizes
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.opening import Conventions, constructions
from qkv.adapters.shaping.reading import lines_of
from qkv.adapters.shaping.sizes import PRIMES, axes_of, equal_sizes, own_sizes, sizes_said
from qkv.adapters.texts import script_of
from qkv.debugger import settled, trials_of
from qkv.errors import CandidateError, as_asked
from qkv.findings import words_of
from qkv.inference import intention_from
from qkv.oracle import Inputs
from qkv.request import Request
from qkv.scripts import sheet_of_script
from qkv.settling import Trial
from qkv.shapes import Axes, Line, Prediction, Sheet
from qkv.shapes.confirming import confirmed
from qkv.shapes.hiding import hidden_by
from qkv.size_conditions import Trying, conditions
from qkv.spec import AttentionSpec


@overload
def predict_shapes(
    candidate: AttentionSpec, *, query_len: int, key_len: int | None = ..., batch: int = ...,
    embed_dim: int | None = ..., head_dim: int | None = ...,
) -> Prediction: ...  # fmt: skip
@overload
def predict_shapes(candidate: Any, spec: Mapping[str, Any] | None = None, **said: Any) -> Sheet: ...


def predict_shapes(candidate: Any, spec: Mapping[str, Any] | None = None, **said: Any) -> Prediction | Sheet:
    """The shape of every stage of a spec, or of every array that a candidate's own code makes, in names.

    Args:
        candidate: a spec; or ``"path/to/file.py:Name"``, which runs in a process of its own; or a class, a module, a
            factory or a function, which runs in this one.
        spec: of a candidate, fields of the spec that it is meant to follow.
        said: of a spec, the sizes of the call: ``query_len``, ``key_len``, ``batch``, ``embed_dim``, ``head_dim``. Of a
            candidate, what `check` takes too: ``layout``, ``mask_argument``, ``init``, ``weights``, ``call``; and
            ``sizes``, the ones it is used with, by name, to be warned where two of them hide a mistake.

    Raises:
        ShapeError: a size of a spec's call is missing or contradicts it. A candidate that can't be run says why in
            what is returned.
    """
    if isinstance(candidate, AttentionSpec):
        return shapes.predict_shapes(candidate, **said)
    sizes = said.pop("sizes", None) or {}
    meaning, layout = said.pop("mask_argument", None), said.pop("layout", None)
    conventions = Conventions(layout=layout, mask_meaning=meaning, **said)
    return sheet_of(Request(candidate, dict(spec or {}), conventions=conventions), sizes)


def sheet_of(request: Request, sizes: Mapping[str, int]) -> Sheet:
    """The shapes of a candidate's own code, and the conditions that its sizes have to meet; of a script's arrays.

    Args:
        request: what is asked.
        sizes: the sizes that the user has, by name, for warnings.
    """
    script, host = script_of(request.target), request.host()
    sheet = Sheet(request.name, request.file)
    try:
        if script is not None:
            told = sheet_of_script(script, host)
            idle = request.idle_in_scripts(batch=sizes.get("batch"), query_len=sizes.get("tokens"))
            return replace(told, warnings=(idle, *told.warnings)) if idle else told
        facts = host.open(request.to_open, request.instead)
        words = words_of(facts)
        sheet = Sheet(words.name, words.file, words.line)
        return _filled(sheet, host, facts, request, sizes)
    except CandidateError as error:
        return _refused(sheet, error, request)
    finally:
        host.close()


def _filled(sheet: Sheet, host: Hosting, facts: Facts, request: Request, sizes: Mapping[str, int]) -> Sheet:
    try:
        settled_trial = settled(host, facts, request)[0]
    except CandidateError as error:
        if error.fatal:
            raise
        return _until_it_fails(sheet, host, facts, request) or _refused(sheet, error, request)
    trial, construction = _in_own_sizes(settled_trial, host, facts, request)
    implied = {} if construction is None else construction.implied
    reading = trial.called
    inputs, axes, lines = _run(trial, _lengths(reading.abilities), implied)
    try:
        lines = confirmed(lines, _run(trial, _other_lengths(reading.abilities), implied)[2])
    except CandidateError as error:
        if error.fatal:
            raise
    rules, free = conditions(Trying(host, reading, construction, inputs))
    return replace(
        sheet,
        sizes=axes,
        equal=equal_sizes(reading.abilities, axes),
        lines=lines,
        rules=tuple(rules),
        free=tuple(free),
        warnings=tuple(hidden_by({**sizes_said(facts), **sizes}, lines)),
    )


def _refused(sheet: Sheet, error: CandidateError, request: Request) -> Sheet:
    return replace(sheet, why=error.message, hint=as_asked(error.hint, request.repeat), detail=error.detail)


def _until_it_fails(sheet: Sheet, host: Hosting, facts: Facts, request: Request) -> Sheet | None:
    """What a candidate that can't be run makes before it fails; None where it can't even be called."""
    said = intention_from(request.given, request.whole_spec)
    try:
        construction = next(constructions(facts, said.spec, request.conventions, said.stated))
        trial = next(trials_of(host, facts, construction, said, request))
        queries, _, batch = _lengths(trial.reading.abilities)
        inputs = trial.setting.inputs("shapes", batch=batch, queries=queries, keys=queries)
    except (CandidateError, NotApplicable, StopIteration):
        return None
    caller, axes = trial.called.caller, axes_of(trial.reading.abilities, inputs)
    caller.watch = True
    try:
        trial.reading.observe(inputs)
    except (CandidateError, NotApplicable) as error:
        if isinstance(error, CandidateError) and caller.recording is not None:
            made = lines_of(caller.recording, Axes(axes))
            equal = equal_sizes(trial.reading.abilities, axes)
            return replace(_refused(sheet, error, request), sizes=axes, equal=equal, lines=made)
    return None


def _in_own_sizes(trial: Trial, host: Hosting, facts: Facts, request: Request) -> tuple[Trial, Construction | None]:
    """The same reading with every axis of its own size, as far as these may be chosen; and what it is built with."""
    able = trial.reading.abilities
    own = own_sizes(able)
    given = {name: request.given[name] for name in vars(own) if request.given.get(name)}
    if given.keys() & {"num_heads", "num_kv_heads"}:  # the other of the two goes with it
        given |= {"num_heads": able.num_heads, "num_kv_heads": able.num_kv_heads}
    resized, construction = _in_sizes(replace(own, **given), trial, host, facts, request)
    if given and not _told_apart(resized.reading.abilities):
        others = {name: value for name, value in request.given.items() if name not in vars(own)}
        return _in_sizes(own, trial, host, facts, replace(request, given=others))
    return resized, construction


def _told_apart(able: Abilities) -> bool:
    """Whether heads and channels are of sizes that no two of them share."""
    sizes = {able.num_kv_heads, able.num_heads}, {able.head_dim, able.value_dim}
    return not set.intersection(*sizes) - {1}


def _in_sizes(
    sizes: Sizes, trial: Trial, host: Hosting, facts: Facts, request: Request
) -> tuple[Trial, Construction | None]:
    """The same reading of a candidate of these sizes; as it is where they can't be chosen."""
    able = trial.reading.abilities
    if able.free_sizes:
        head_dim = sizes.head_dim if able.free_width else able.head_dim
        return trial.resized(sizes.num_heads, sizes.num_kv_heads, head_dim, head_dim), None
    if facts.what != "class":
        return trial, None
    said = intention_from(request.given, request.whole_spec)
    try:
        construction = next(constructions(facts, said.spec, request.conventions, said.stated, sizes))
        for one in trials_of(host, facts, construction, said, request):
            if _form(one.reading) == _form(trial.reading):
                return one, construction
    except CandidateError as error:
        if error.fatal:
            raise
    host.build(trial.built_with or {})
    return trial, None


def _form(reading: Any) -> tuple[Any, ...]:
    """What one way of calling a candidate differs from another in."""
    return reading.layout, reading.mask_form, reading.padding_form


def _run(
    trial: Trial, lengths: tuple[int, int, int], implied: Mapping[str, int]
) -> tuple[Inputs, dict[str, int], tuple[Line, ...]]:
    """What it was given, its axes and what its code made: of other numbers of queries than of keys where these may be.

    Args:
        trial: the candidate.
        lengths: how many queries, keys and sequences it is given.
        implied: sizes that it was built with beside those of the call.
    """
    able, caller = trial.reading.abilities, trial.called.caller
    caller.watch = True
    queries, keys, batch = lengths
    refused: CandidateError | None = None
    for number in (keys, queries) if able.free_lengths or "source" in able.takes else (queries,):
        inputs = trial.setting.inputs("shapes", batch=batch, queries=queries, keys=number)
        try:
            trial.reading.observe(inputs)
        except CandidateError as error:
            refused = error
        except NotApplicable:
            continue
        else:
            axes = axes_of(able, inputs)
            if "rotary_dims" in implied:
                axes["rotary_dims"] = implied["rotary_dims"]
            return inputs, axes, () if caller.recording is None else lines_of(caller.recording, Axes(axes))
    raise refused or CandidateError("its arguments can't be given without a mask or a cache of their own")


def _lengths(able: Abilities) -> tuple[int, int, int]:
    """Numbers of queries, keys and sequences that no other axis has."""
    queries, keys, batch, _ = _free(able)
    return _fitting(able, queries, keys, batch)


def _other_lengths(able: Abilities) -> tuple[int, int, int]:
    """Others than those: what goes by the name of a length is then of that length again."""
    _, batch, queries, keys = _free(able)
    return _fitting(able, queries, keys, batch)


def _free(able: Abilities) -> Sequence[int]:
    taken = {able.num_heads, able.num_kv_heads, able.head_dim, able.value_dim, able.embed_dim}
    return [prime for prime in PRIMES if prime not in taken][:4]


def _fitting(able: Abilities, queries: int, keys: int, batch: int) -> tuple[int, int, int]:
    return min(queries, able.max_tokens or queries) * able.step, keys * able.step, batch
