"""predict_shapes(): the pipeline from a spec, or from a candidate's own code, to the shape of everything it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

from qkv import shapes
from qkv.adapters.abilities import Abilities, NotApplicable
from qkv.adapters.construction import Construction
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.opening import Conventions, constructions
from qkv.adapters.shaping.reading import lines_of
from qkv.adapters.shaping.sizes import PRIMES, axes_of, equal_sizes, own_sizes, sizes_said
from qkv.adapters.texts import script_of
from qkv.debugger import settled, trials_of
from qkv.errors import CandidateError
from qkv.findings import words_of
from qkv.inference import intention_from
from qkv.oracle import Inputs
from qkv.request import Request
from qkv.scripts import sheet_of_script
from qkv.settling import Trial
from qkv.shapes import Axes, Prediction, Sheet
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
        facts = host.open(request.to_open, request.source)
        words = words_of(facts)
        sheet = Sheet(words.name, words.file, words.line)
        return _filled(sheet, host, facts, request, sizes)
    except CandidateError as error:
        return replace(sheet, why=error.message, hint=error.hint, detail=error.detail)
    finally:
        host.close()


def _filled(sheet: Sheet, host: Hosting, facts: Facts, request: Request, sizes: Mapping[str, int]) -> Sheet:
    trial, construction = _in_own_sizes(settled(host, facts, request)[0], host, facts, request)
    inputs = _run(trial)
    reading = trial.called
    axes = axes_of(reading.abilities, inputs)
    if construction is not None and "rotary_dims" in construction.implied:
        axes["rotary_dims"] = construction.implied["rotary_dims"]
    recording = reading.caller.recording
    lines = lines_of(recording, Axes(axes)) if recording is not None else ()
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


def _in_own_sizes(trial: Trial, host: Hosting, facts: Facts, request: Request) -> tuple[Trial, Construction | None]:
    """The same reading with every axis of its own size, as far as these may be chosen; and what it is built with."""
    able, reading = trial.reading.abilities, trial.reading
    given = {name: request.given[name] for name in vars(own_sizes(able)) if request.given.get(name)}
    if given.keys() & {"num_heads", "num_kv_heads"}:  # the other of the two goes with it
        given |= {"num_heads": able.num_heads, "num_kv_heads": able.num_kv_heads}
    sizes = replace(own_sizes(able), **given)
    if able.free_sizes:
        head_dim = sizes.head_dim if able.free_width else able.head_dim
        return trial.resized(sizes.num_heads, sizes.num_kv_heads, head_dim, head_dim), None
    if facts.what != "class":
        return trial, None
    said = intention_from(request.given, request.whole_spec)
    try:
        construction = next(constructions(facts, said.spec, request.conventions, said.stated, sizes))
        for one in trials_of(host, facts, construction, said, request):
            if _form(one.reading) == _form(reading):
                return one, construction
    except CandidateError as error:
        if error.fatal:
            raise
    host.build(trial.built_with or {})
    return trial, None


def _form(reading: Any) -> tuple[Any, ...]:
    """What one way of calling a candidate differs from another in."""
    return reading.layout, reading.mask_form, reading.padding_form


def _run(trial: Trial) -> Inputs:
    """What it was given in the call that was recorded: other numbers of queries than of keys where it takes these."""
    able = trial.reading.abilities
    trial.called.caller.watch = True
    queries, keys, batch = _lengths(able)
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
            return inputs
    raise refused or CandidateError("its arguments can't be given without a mask or a cache of their own")


def _lengths(able: Abilities) -> tuple[int, int, int]:
    """Numbers of queries, keys and sequences that no other axis has."""
    taken = {able.num_heads, able.num_kv_heads, able.head_dim, able.value_dim, able.embed_dim}
    queries, keys, batch = [prime for prime in PRIMES if prime not in taken][:3]
    most = able.max_tokens or queries
    return min(queries, most) * able.step, keys * able.step, batch
