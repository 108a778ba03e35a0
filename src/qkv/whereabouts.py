"""Whereabouts: the first token, head, weight and channel that are wrong, and the rows around them side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qkv.comparison import Bools, Floats
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.oracle import Run
from qkv.report import Disagreement, RowPair
from qkv.report.matrices import Matrices, matrices_at
from qkv.vocabulary import Stage

DIFFERS = 1e-6
"""Share of the largest entry from which on two rows differ to a reader."""


@dataclass(frozen=True)
class Whereabouts:
    """Where a candidate is wrong first.

    Attributes:
        first: the first entry that is wrong.
        rows: that token's weights, context and output, as they should be and as they are.
    """

    first: Disagreement
    rows: tuple[RowPair, ...]


def whereabouts(observation: Observation, diagnosis: Diagnosis) -> Whereabouts:
    """Where the candidate is wrong first on a probe.

    Which head and which weight: from the run under the fault where one was found, which has all the candidate's
    numbers; otherwise from the output, with its projection undone where that is possible.
    """
    place = observation.comparison.first
    assert place is not None
    batch, query, row_head, channel = place
    right = observation.expected.run
    faulty = None if diagnosis.best is None else under(diagnosis.best.variants, right)
    by_heads = observation.expected.num_heads == right.spec.num_heads
    head = row_head if by_heads else _head(observation, faulty, batch, query)
    key = None if head is None else _key(right, faulty, observation, (batch, head, query))
    first = Disagreement(
        observation.probe.name,
        batch,
        head,
        query,
        key,
        channel,
        float(observation.expected.rows[place]),
        float(observation.comparison.got[place]),
    )
    pairs = [RowPair(f"output of token {query}", *_output_rows(observation, batch, query, row_head))]
    if head is not None:
        pairs = [*_inner_rows(right, faulty, (batch, head, query)), *pairs]
    return Whereabouts(first, tuple(pairs))


def pictured(observation: Observation, diagnosis: Diagnosis) -> list[Matrices]:
    """The first thing inside that is wrong, of all queries: the weights of a head, else its contexts; and the output.

    What is inside is known from the run under the fault where one was found, otherwise from the output.
    """
    place = observation.comparison.first
    assert place is not None
    batch, query, row_head, _ = place
    right = observation.expected.run
    faulty = None if diagnosis.best is None else under(diagnosis.best.variants, right)
    by_heads = observation.expected.num_heads == right.spec.num_heads
    head = row_head if by_heads else _head(observation, faulty, batch, query)
    inside = () if head is None else _inside(observation, faulty, (batch, head))
    judged = observation.expected.judged[batch].any(axis=-1)[:, None]
    first = [one for matrices in inside if (one := matrices.judged(judged)).first is not None][:1]
    output = matrices_at("output", "output", (batch,), (right, right.but(output=observation.output)))
    wrong = observation.comparison.wrong[batch].any(axis=-1)[:, None]
    return [*first, output.judged(wrong)]


def wrong_heads(observation: Observation, diagnosis: Diagnosis) -> Bools | None:
    """Which heads' contexts are wrong under the fault, ``(head,)``; None where rows tell it, or nothing does."""
    right = observation.expected.run
    if observation.expected.num_heads == right.spec.num_heads or diagnosis.best is None:
        return None
    expected, got = contexts(right), _contexts_of(under(diagnosis.best.variants, right))
    if got is None or got.shape != expected.shape:
        return None
    wrong = np.array([differ(expected[:, head], got[:, head]) for head in range(expected.shape[1])])
    return wrong if wrong.any() else None


def _inside(observation: Observation, faulty: Run | None, head: tuple[int, int]) -> Iterator[Matrices]:
    """The weights and the contexts of a head, those that are known."""
    right = observation.expected.run
    if faulty is not None and faulty.weights is not None and faulty.weights.shape == right.weights.shape:
        yield matrices_at("attn_weights", "weights", head, (right, faulty))
    if faulty is None:
        rows = [_recovered(right, observation, (*head, query)) for query in range(right.weights.shape[2])]
        if all(row is not None for row in rows):
            given = right.weights.copy()
            given[head] = rows
            yield matrices_at("attn_weights", "weights", head, (right, right.but(weights=given)))
    contexts_of = undone(observation) if faulty is None else _contexts_of(faulty)
    if contexts_of is not None and contexts_of.shape == contexts(right).shape:
        yield matrices_at(
            "context", "context", head, (right.but(context=contexts(right)), right.but(context=contexts_of))
        )


def _output_rows(observation: Observation, batch: int, query: int, row_head: int) -> tuple[Floats, Floats]:
    return observation.expected.rows[batch, query, row_head], observation.comparison.got[batch, query, row_head]


def contexts(run: Run) -> Floats:
    """Each head's context vectors, ``(batch, head, query, value_dim)``."""
    given: Floats = run.before[Stage.MERGE].context
    return given


def undone(observation: Observation) -> Floats | None:
    """The candidate's context vectors, its output projection undone; None where it can't be undone."""
    run = observation.expected.run
    context = contexts(run)
    batch, heads, queries, dim = context.shape
    output = observation.output
    parameters = run.inputs.parameters
    if parameters is not None and parameters.out_proj is not None and run.spec.out_proj:
        weight = parameters.out_proj.weight
        if np.linalg.matrix_rank(weight) < weight.shape[1]:
            return None
        bias = 0.0 if parameters.out_proj.bias is None else parameters.out_proj.bias
        output = (output - bias) @ np.linalg.pinv(weight).T
    if output.shape[-1] != heads * dim:
        return None
    return output.reshape(batch, queries, heads, dim).transpose(0, 2, 1, 3)


def _head(observation: Observation, faulty: Run | None, batch: int, query: int) -> int | None:
    right = contexts(observation.expected.run)
    got = undone(observation) if faulty is None else _contexts_of(faulty)
    if got is None or got.shape != right.shape:
        return None
    wrong = [head for head in range(right.shape[1]) if differ(right[batch, head, query], got[batch, head, query])]
    return wrong[0] if wrong else None


def _contexts_of(faulty: Run) -> Floats | None:
    before = faulty.before.get(Stage.MERGE)
    return None if before is None else before.context


def _key(right: Run, faulty: Run | None, observation: Observation, row: tuple[int, int, int]) -> int | None:
    expected = right.weights[row]
    got = _weights_row(faulty, right, row) if faulty is not None else _recovered(right, observation, row)
    if got is None or got.shape != expected.shape or not differ(expected, got):
        return None
    with np.errstate(all="ignore"):
        off = ~np.isclose(got, expected, rtol=0, atol=DIFFERS * max(float(np.abs(expected).max()), 1e-12))
    return int(np.argmax(off))


def _weights_row(faulty: Run, right: Run, row: tuple[int, int, int]) -> Floats | None:
    """The row of weights under a fault; None where the fault makes weights of another shape."""
    weights: Floats | None = faulty.weights
    return None if weights is None or weights.shape != right.weights.shape else weights[row]


def _recovered(right: Run, observation: Observation, row: tuple[int, int, int]) -> Floats | None:
    """The row of weights that gives the candidate's context from the right values; None where many rows would."""
    context, value = undone(observation), right.value[row[:2]]
    if context is None or np.linalg.matrix_rank(value) < value.shape[0]:
        return None
    weights: Floats = context[row] @ np.linalg.pinv(value)
    return weights if np.allclose(weights @ value, context[row], atol=1e-6) else None


def _inner_rows(right: Run, faulty: Run | None, row: tuple[int, int, int]) -> Iterator[RowPair]:
    if faulty is None:
        return
    _, head, query = row
    weights, context = _weights_row(faulty, right, row), _contexts_of(faulty)
    if weights is not None and weights.shape == right.weights[row].shape:
        yield RowPair(f"weights of token {query} in head {head}", right.weights[row], weights)
    if context is not None and context.shape == contexts(right).shape:
        yield RowPair(f"context of token {query} in head {head}", contexts(right)[row], context[row])


def differ(left: Floats, right: Floats) -> bool:
    """Whether two rows differ to a reader."""
    scale = float(np.nanmax(np.abs(left), initial=1e-12))
    with np.errstate(all="ignore"):
        return not np.allclose(left, right, rtol=0, atol=DIFFERS * scale, equal_nan=True)
