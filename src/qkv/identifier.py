"""identify(): the pipeline from a black box to the attention that it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qkv.adapters.calling import Caller
from qkv.adapters.dump import is_dump
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.opening import Conventions, kind_of
from qkv.dumps.identity import identify_dump
from qkv.errors import CandidateError
from qkv.findings import words_of
from qkv.identification import identity_of, opened
from qkv.report import CandidateWords
from qkv.report.identity import Identity
from qkv.request import Request


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


def name_it(request: Request, host: Hosting | None = None) -> Identity:
    """The answer to a request.

    Args:
        request: what is asked; of the spec's fields only sizes count.
        host: who holds the candidate; by default a process of its own for a file, this process for an object.
    """
    if is_dump(request.target):
        return _of_dump(request)
    if host is None:
        host = request.host()
    words, repeat = CandidateWords(name=request.name, file=request.file), request.command("identify")
    try:
        facts = host.open(request.to_open)
        words = words_of(facts)
        return _identity(host, facts, words, request, repeat)
    except CandidateError as error:
        return Identity(words, why=error.message, hint=error.hint, detail=error.detail, repeat=repeat)
    finally:
        host.close()


def _of_dump(request: Request) -> Identity:
    said = request.conventions
    return identify_dump(
        str(request.target),
        request.given,
        request.tensors,
        said.layout,
        said.mask_meaning,
        time_limit=request.time_limit,
        memory_limit=request.memory_limit,
        repeat=request.command("identify"),
    )


def _identity(host: Hosting, facts: Facts, words: CandidateWords, request: Request, repeat: str) -> Identity:
    kind = kind_of(facts)
    if kind != "function of query, key and value":
        raise CandidateError(
            f"{facts.name} is a {kind}; only a function of query, key and value can be read from outside",
            hint=f"to judge it: qkv check {request.target}",
        )
    rng = np.random.default_rng(request.seed)
    caller = Caller(host, facts.framework)
    box, routing = opened(caller, facts, request.given, request.conventions, rng)
    return identity_of(box, routing, words_of(facts, box.dtype), repeat, request.seed)
