"""Whereabouts: the first token, head, weight and channel that are wrong, and the rows around them side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qkv.comparison import Bools, Floats
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.oracle import Run
from qkv.report import Disagreement, RowPair
from qkv.report.matrices import Matrices, beside_row, matrices_at, unlike
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class Inside:
    """What is known of the inside of a candidate that is wrong on a probe.

    It is the run under the fault where one was found, which has all the candidate's numbers; otherwise what the output
    tells, with its projection undone where that is possible.

    Attributes:
        observation: the candidate's output beside the right one. It is wrong.
        diagnosis: the fault, where one was found.
    """

    observation: Observation
    diagnosis: Diagnosis

    @property
    def right(self) -> Run:
        """The oracle's run."""
        return self.observation.expected.run

    @cached_property
    def faulty(self) -> Run | None:
        """The run under the fault; None where none was found."""
        best = self.diagnosis.best
        return None if best is None else under(best.variants, self.right)

    @cached_property
    def contexts(self) -> Floats | None:
        """The candidate's context vectors, ``(batch, head, query, value_dim)``; None where they can't be told."""
        if self.faulty is None:
            found = undone(self.observation)
        else:
            before = self.faulty.before.get(Stage.MERGE)
            found = None if before is None else before.context
        return None if found is None or found.shape != contexts(self.right).shape else found

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Sequence, query, row and channel of the first wrong entry; a row is a head where heads can be told apart."""
        place = self.observation.comparison.first
        assert place is not None
        return place

    @property
    def by_heads(self) -> bool:
        """Whether the output tells the heads apart."""
        return self.observation.expected.num_heads == self.right.spec.num_heads

    @cached_property
    def head(self) -> int | None:
        """The first head that is wrong in the first wrong row; None where it can't be told."""
        batch, query, row_head, _ = self.place
        if self.by_heads:
            return row_head
        if self.contexts is None:
            return None
        pairs = zip(contexts(self.right)[batch, :, query], self.contexts[batch, :, query], strict=True)
        return next((head for head, (expected, got) in enumerate(pairs) if unlike(expected, got).any()), None)

    def weights(self, row: tuple[int, int, int]) -> Floats | None:
        """The candidate's weights at a sequence, head and query; None where they can't be told."""
        if self.faulty is None:
            return self._recovered(row)
        weights: Floats | None = self.faulty.weights
        return None if weights is None or weights.shape != self.right.weights.shape else weights[row]

    def _recovered(self, row: tuple[int, int, int]) -> Floats | None:
        """The weights that give the candidate's context from the right values; None where many would."""
        value = self.right.value[row[:2]]
        if self.contexts is None or np.linalg.matrix_rank(value) < value.shape[0]:
            return None
        weights: Floats = self.contexts[row] @ np.linalg.pinv(value)
        return weights if np.allclose(weights @ value, self.contexts[row], atol=1e-6) else None


@dataclass(frozen=True)
class Whereabouts:
    """Where a candidate is wrong first.

    Attributes:
        first: the first entry that is wrong.
        rows: that token's weights, context and output, as they should be and as they are.
    """

    first: Disagreement
    rows: tuple[RowPair, ...]


def whereabouts(inside: Inside) -> Whereabouts:
    """Where the candidate is wrong first on a probe."""
    observation, place = inside.observation, inside.place
    batch, query, row_head, channel = place
    expected, got = observation.expected.rows, observation.comparison.got
    first = Disagreement(
        observation.probe.name,
        batch,
        inside.head,
        query,
        _key(inside),
        channel,
        float(expected[place]),
        float(got[place]),
    )
    rows = expected[batch, query, row_head], got[batch, query, row_head]
    return Whereabouts(first, (*_inner_rows(inside), RowPair(f"output of token {query}", *rows)))


def pictured(inside: Inside) -> list[Matrices]:
    """The first thing that is wrong inside, of all queries: a head's weights, else its contexts; and the output."""
    observation, batch = inside.observation, inside.place[0]
    judged = observation.expected.judged[batch].any(axis=-1)[:, None]
    first = [one for matrices in _of_head(inside) if (one := matrices.judged(judged)).first is not None][:1]
    first = [beside_row(one, inside.place[1]) for one in first]
    output = matrices_at("output", "output", (batch,), (inside.right, inside.right.but(output=observation.output)))
    wrong = observation.comparison.wrong[batch].any(axis=-1)[:, None]
    return [*first, output.judged(wrong)]


def wrong_heads(inside: Inside) -> Bools | None:
    """Which heads' contexts are wrong under the fault, ``(head,)``; None where rows tell it, or nothing does."""
    if inside.by_heads or inside.faulty is None or inside.contexts is None:
        return None
    heads = zip(contexts(inside.right).swapaxes(0, 1), inside.contexts.swapaxes(0, 1), strict=True)
    wrong = np.array([unlike(expected, got).any() for expected, got in heads])
    return wrong if wrong.any() else None


def _of_head(inside: Inside) -> Iterator[Matrices]:
    """The weights and the contexts of the first wrong head, those that are known."""
    right, batch = inside.right, inside.place[0]
    if inside.head is None:
        return
    head = batch, inside.head
    rows = [inside.weights((*head, query)) for query in range(right.weights.shape[2])]
    if inside.faulty is not None:
        if rows[0] is not None:
            yield matrices_at("attn_weights", "weights", head, (right, inside.faulty))
    elif all(row is not None for row in rows):
        given = right.weights.copy()
        given[head] = rows
        yield matrices_at("attn_weights", "weights", head, (right, right.but(weights=given)))
    if inside.contexts is not None:
        runs = right.but(context=contexts(right)), right.but(context=inside.contexts)
        yield matrices_at("context", "context", head, runs)


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


def _key(inside: Inside) -> int | None:
    """The first key whose weight is wrong in the first wrong row; None where that can't be told."""
    batch, query, _, _ = inside.place
    if inside.head is None:
        return None
    row = batch, inside.head, query
    got = inside.weights(row)
    off = None if got is None else unlike(inside.right.weights[row], got)
    return int(np.argmax(off)) if off is not None and off.any() else None


def _inner_rows(inside: Inside) -> Iterator[RowPair]:
    """The weights and the context of the first wrong row, under the fault."""
    batch, query, _, _ = inside.place
    if inside.faulty is None or inside.head is None:
        return
    row = batch, inside.head, query
    weights = inside.weights(row)
    if weights is not None:
        yield RowPair(f"weights of token {query} in head {inside.head}", inside.right.weights[row], weights)
    if inside.contexts is not None:
        yield RowPair(f"context of token {query} in head {inside.head}", contexts(inside.right)[row],
                      inside.contexts[row])  # fmt: skip
