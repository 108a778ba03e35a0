"""identify(): the pipeline from a black box to the attention that it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from qkv.adapters.calling import Caller
from qkv.adapters.dump import is_dump
from qkv.adapters.layouts import from_layout
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.opening import Conventions
from qkv.adapters.values import to_float64
from qkv.debugger import of_dump
from qkv.dumps.identity import identify_dump
from qkv.errors import CandidateError, as_asked
from qkv.findings import words_of
from qkv.identification import WeightReader, functions, identity_of, opened, plain_routing
from qkv.inference import Intention, intention_from, intentions
from qkv.report import CandidateWords
from qkv.report.identity import Identity
from qkv.request import Request
from qkv.spec import AttentionSpec
from qkv.vocabulary import Layout


def identify(
    candidate: Any,
    sizes: Mapping[str, Any] | None = None,
    *,
    layout: str | None = None,
    mask_argument: str | None = None,
    init: Mapping[str, Any] | None = None,
    weights: Mapping[str, str] | None = None,
    call: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit: float = 20.0,
    memory_limit: int = 4 * 2**30,
) -> Identity:
    """Which attention a black box computes, read from its outputs alone.

    Args:
        candidate: ``"path/to/file.py:Name"``, which runs in a process of its own; or a function or a module, which runs
            in this one.
        sizes: what is known of its sizes: ``num_heads``, ``num_kv_heads``, ``head_dim``, ``value_dim``.
        layout: order of its axes: BHTD, BTHD, THD, TD.
        mask_argument: what its mask argument means: ``keep``, ``hide`` or ``additive``.
        init: arguments of its constructor.
        weights: names of its projections in its state dict.
        call: values for arguments of its call that qkv doesn't know.
        seed: seed of every random number.
        time_limit: seconds that one call may take (files only).
        memory_limit: bytes that it may take (files only).
    """
    conventions = Conventions(layout, mask_argument, init or {}, weights or {}, call or {}, seed)  # type: ignore[arg-type]
    return name_it(Request(candidate, dict(sizes or {}), False, conventions, seed, time_limit, memory_limit))


def read_weights(
    function: Any, query: Any, key: Any, *, layout: Layout = "BHTD", value_dim: int | None = None
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The attention weights that a function of query, key and value uses, ``(batch, head, query, key)``, float64.

    They are read from the outside, in one call where the function takes values of ``key_len`` channels, and in
    ``ceil(key_len / value_dim)`` where it doesn't; fewer where it takes several sequences. A row without keys is NaN or
    zero, as the function has it; a row with a sink sums to less than one.

    Args:
        function: takes query, key and value, NumPy arrays or tensors; ``"file.py:name"`` runs in a process of its own.
        query: in the layout's order, ``(batch, num_heads, query, head_dim)`` for BHTD.
        key: likewise, ``(batch, num_kv_heads, key, head_dim)``.
        layout: order of the axes.
        value_dim: channels of the values that it takes, where these are not as many as head_dim.

    Raises:
        CandidateError: it can't be called with these.
    """
    queries, keys = (from_layout(to_float64(array), layout) for array in (query, key))
    sizes = {"num_heads": queries.shape[1], "num_kv_heads": keys.shape[1], "head_dim": queries.shape[-1]}
    request = Request(function, sizes | {"value_dim": value_dim or queries.shape[-1]}, conventions=Conventions(layout))
    host = request.host()
    try:
        facts = host.open(request.to_open)
        box = next(functions(Caller(host, facts.framework), facts, request.given, request.conventions))
        return WeightReader(box, plain_routing(box.sizes)).weights(queries, keys)
    finally:
        host.close()


def name_it(request: Request, host: Hosting | None = None) -> Identity:
    """The answer to a request.

    Args:
        request: what is asked; of the spec's fields only sizes count.
        host: who holds the candidate; by default a process of its own for a file, this process for an object.
    """
    request.check_sizes()
    if is_dump(request.target):
        return identify_dump(of_dump(request, "identify"))
    if host is None:
        host = request.host()
    words, repeat = CandidateWords(name=request.name, file=request.file), request.command("identify")
    try:
        facts = host.open(request.to_open)
        words = words_of(facts)
        return _identity(host, facts, request, repeat)
    except CandidateError as error:
        hint = as_asked(error.hint, repeat)
        return Identity(words, why=error.message, hint=hint, detail=error.detail, repeat=repeat)
    finally:
        host.close()


HEADS = ("num_heads", "num_kv_heads")


def _identity(host: Hosting, facts: Facts, request: Request, repeat: str) -> Identity:
    sizes_of = partial(sizes_known, given=request.given)
    box, routing = opened(host, facts, sizes_of, request.conventions, np.random.default_rng(request.seed))
    words = words_of(box.facts, box.dtype)
    return identity_of(box, routing, words, repeat, request.seed, request.advance)


def sizes_known(facts: Facts, given: Mapping[str, Any]) -> Intention:
    """The sizes that are given, and the numbers of heads that it says of itself. What it computes is read instead."""
    heads = {name: size for name, size in given.items() if name in ("num_heads", "num_kv_heads")}
    said = intentions(facts, intention_from(heads, whole=False))[0]
    known = {name: size for name in HEADS if (size := getattr(said.spec, name)) is not None} | dict(given)
    spec = AttentionSpec(**known)
    sure = {name: size for name, size in known.items() if name in given or size > 1}
    return replace(said, spec=spec, stated=said.stated | set(given), given=sure)
