"""The identity of a black box: read, held against fresh inputs, and put into the report's document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qkv.errors import SpecError
from qkv.identification.box import Box
from qkv.identification.examination import examine
from qkv.identification.reproduction import handed_over, reproduced
from qkv.identification.routing import Routing
from qkv.identification.wording import (
    documents_of,
    estimates_of,
    per_head,
    pictures_of,
    readings_of,
    spec_of,
    undecided_of,
)
from qkv.report import CandidateWords
from qkv.report.identity import Identity


def identity_of(
    box: Box,
    routing: Routing,
    words: CandidateWords,
    repeat: str,
    seed: int,
    advance: Callable[[float], None] = lambda share: None,
) -> Identity:
    """Which attention the box computes.

    Raises:
        CandidateError: it can't be called, or its values carry no code.
    """
    found = examine(box, routing, np.random.default_rng([seed, 1]), advance)
    if found.unasked:
        return Identity(
            words,
            per_head=per_head(found),
            estimates=estimates_of(found),
            readings=[*box.words, *readings_of(found)],
            undecided=[f"not asked: {', '.join(found.unasked)}"],
            why="it was interrupted before all questions were asked",
            repeat=repeat,
        )
    undecided = undecided_of(found)
    unread = Identity(words, per_head=per_head(found), readings=box.words, undecided=undecided, repeat=repeat)
    if found.odd and not any(found.turnings):
        return replace(
            unread, pictures=pictures_of(found), why=f"this is no attention that a spec can say: {found.odd[0]}"
        )
    try:
        spec = spec_of(found)
    except SpecError as error:
        return replace(unread, why=f"no spec says this: {error}")
    results = reproduced(found, spec, np.random.default_rng([seed, 2]))
    errors = [worst for _, worst in results if worst is not None]
    # What no spec says was handed over beside it: then the spec alone does not give these numbers.
    says_all = not found.odd and None not in found.rules and found.one_rule is not None
    says_all = says_all and all(read.matrix is None for read in found.biases)
    worst = max(errors) if errors and says_all else None
    if max(errors, default=0.0) > 1.0 and not found.odd:
        undecided.append("something that this spec does not say: fresh inputs give other numbers (see the probes)")
    return Identity(
        words,
        spec,
        per_head(found),
        estimates_of(found),
        [*box.words, *readings_of(found)],
        undecided,
        documents_of(found),
        pictures_of(found),
        worst,
        [result for result, _ in results],
        repeat=repeat,
        handed_over=handed_over(found),
    )
