"""Lists: a script that computes with Python's own numbers, judged by what its variables hold at the end.

How such a script gets from one list to the next is not followed. What it is given and what it makes in the end are held
against the oracle, and a fault of the catalogue is named where it gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from qkv.comparison import expectation
from qkv.diagnosis import Observation, diagnose
from qkv.errors import QkvError
from qkv.faults import Variant
from qkv.masks import Causal, Everything
from qkv.oracle import Inputs, run_stages
from qkv.probes import Probe
from qkv.scripts import naming
from qkv.scripts.known import Array
from qkv.spec import AttentionSpec

CONTEXT = {"context", "contexts", "ctx", "output", "outputs", "out", "attended", "result", "results", "z"}
"""Words of names that hold what an attention makes."""

MOST_DIAGNOSED = 4
"""Ways that a fault is sought in, those of a token first whose query stands in a variable of its own."""

OF_SEVERAL = frozenset({"softmax-over-heads-or-batch"})
"""Faults of several heads or sequences: in lists there is one, of which nobody can mistake the axis."""

LONGEST = 64
"""Tokens: beyond, nobody computes with lists."""


@dataclass(frozen=True)
class Answer:
    """What a script's variables at the end say of it.

    Attributes:
        name: the variable that holds the context vectors.
        given: the variables that query, key and value were computed from.
        token: the only token that it holds the context vector of; None where it holds those of all.
        fault: the fault by which they are wrong; None where they are right.
    """

    name: str
    given: tuple[str, ...]
    token: int | None = None
    fault: Variant | None = None


@dataclass(frozen=True)
class _Way:
    """One way of computing them."""

    spec: AttentionSpec
    inputs: Inputs
    given: tuple[str, ...]
    token: int | None


def answer_of(variables: Mapping[str, Array], causal: bool) -> Answer | None:
    """Whether the context vectors that a script ends with are right; None where that can't be told.

    Args:
        variables: what its variables hold at the end, lists of numbers and arrays, in the order they were made.
        causal: whether it says that tokens see none that come later.
    """
    made = [name for name in variables if set(naming.words(name)) & CONTEXT and variables[name].ndim in (1, 2)]
    if not made:
        return None
    name = made[-1]
    output = np.atleast_2d(variables[name])
    tried = []
    for way in _ways({other: array for other, array in variables.items() if other != name}, output, causal):
        try:
            run = run_stages(way.spec, way.inputs)
        except QkvError:
            continue
        if run.output.shape[1:] == output.shape:
            tried.append((way, Observation(Probe("script", "", way.inputs), expectation(run, "float32"), output[None])))
    for way, observation in tried:
        if observation.comparison.agrees:
            return Answer(name, way.given, way.token)
    alone = [array for array in variables.values() if array.ndim == 1]
    tried.sort(key=lambda one: not any(np.array_equal(one[0].inputs.query[0, 0, 0], row) for row in alone))  # type: ignore[index]
    for way, observation in tried[:MOST_DIAGNOSED]:
        best = diagnose([observation], pairs=False).best
        if best is not None and best.variants[0].fault.id not in OF_SEVERAL:
            return Answer(name, way.given, way.token, best.variants[0])
    return None


def _ways(variables: Mapping[str, Array], output: Array, causal: bool) -> Iterator[_Way]:
    """The ways in which context vectors may have been meant: projected or not, of all tokens or of one."""
    for (query, of_query), (key, of_key), (value, of_value) in _sides(variables):
        given = tuple(dict.fromkeys([*of_query, *of_key, *of_value]))
        if query.shape[1] != key.shape[1] or len(key) != len(value) or max(len(query), len(key)) > LONGEST:
            continue
        tokens = [None] if len(output) == len(query) else range(len(query))
        masks = (Causal(),) if causal else (Everything(), Causal())
        for mask, scale, token in product(masks, (1.0, None) if len(given) == 1 else (None,), tokens):
            spec = AttentionSpec(
                head_dim=query.shape[1], value_dim=value.shape[1], scale=scale, mask=mask, out_proj=False,
                query_offset=token or 0,
            )  # fmt: skip
            rows = query if token is None else query[token : token + 1]
            yield _Way(spec, Inputs(query=rows[None, None], key=key[None, None], value=value[None, None]), given, token)


def _sides(variables: Mapping[str, Array]) -> Iterator[tuple[tuple[Array, tuple[str, ...]], ...]]:
    """Query, key and value: those with such names, else what matrices of these names make of the inputs."""
    rows = {name: array for name, array in variables.items() if array.ndim == 2 and min(array.shape) > 0}
    tokens = [name for name in rows if naming.is_tokens(name) and not naming.role_of(name)]
    for role_tokens in tokens or [""]:
        found = []
        for role in ("query", "key", "value"):
            named = [name for name in rows if naming.role_of(name) == role]
            own = [(rows[name], (name,)) for name in named if not naming.is_matrix(name)]
            matrices = [name for name in named if naming.is_matrix(name)]
            projected = [
                (rows[role_tokens] @ weight, (role_tokens, name))
                for name in matrices
                for weight in (rows[name], rows[name].T)
                if role_tokens and weight.shape[0] == rows[role_tokens].shape[1]
            ]
            found.append(projected or own or ([(rows[role_tokens], (role_tokens,))] if role_tokens else []))
        yield from product(*found)
