"""Matrices: what a stage should make beside what it makes, as they are drawn and read cell by cell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qkv.oracle import Run
from qkv.vocabulary import Stage

DIFFERS = 1e-6
"""Share of the largest entry from which on two entries differ to a reader."""


@dataclass(frozen=True)
class Matrices:
    """Two matrices of one shape, the right one and the one that was made.

    Attributes:
        title: what they are: ``attn_weights of head 0``.
        axes: what a row and a column are: ``("query", "key")``.
        expected: the right one.
        got: the other.
        wrong: which cells are wrong, as booleans.
        hidden: of each of the two, where a query may not attend; None where nothing hides.
        start: number of the first row.
        aside: why the first wrong cell stands elsewhere than the first wrong row; empty where it doesn't.
    """

    title: str
    axes: tuple[str, str]
    expected: Any
    got: Any
    wrong: Any
    hidden: tuple[Any, Any] | None = None
    start: int = 0
    aside: str = ""

    @property
    def first(self) -> tuple[int, int] | None:
        """Row and column of the first cell that is wrong, counted from 0; None where none is."""
        places = np.argwhere(self.wrong)
        return (int(places[0][0]), int(places[0][1])) if len(places) else None

    def judged(self, wrong: Any) -> Matrices:
        """The same where it is known which cells can be wrong: rows of padding can't, nor what rounding explains."""
        return replace(self, wrong=self.wrong & wrong)


def beside_row(of: Matrices, row: int) -> Matrices:
    """The same with what is to be said where the first wrong row of the output has nothing wrong here."""
    if of.first is None or of.wrong[row].any():
        return of
    name, number = of.title.partition(",")[0], of.start + row
    alone = of.hidden is not None and (~of.hidden[0][row]).sum() == 1
    why = "it may attend to one key alone, which gets all weight" if alone else "what is made of them is wrong"
    first = f"{of.axes[0]} {of.start + of.first[0]}"
    return replace(of, aside=f"Token {number} comes out wrong with the right {name}: {why}. "
                             f"The first wrong ones are those of {first}")  # fmt: skip


def unlike(expected: Any, got: Any, share: float = DIFFERS) -> Any:
    """Where two arrays of one shape differ to a reader, by this share of the largest entry, as booleans."""
    finite = np.abs(expected[np.isfinite(expected)])
    near = share * max(float(finite.max(initial=0.0)), 1e-12)
    with np.errstate(invalid="ignore"):
        return ~np.isclose(got, expected, rtol=0, atol=near, equal_nan=True)


MADE: dict[Stage, tuple[str, ...]] = {
    Stage.PROJECT: ("query", "key", "value"),
    Stage.HEADS: ("query", "key", "value"),
    Stage.POSITION: ("query", "key", "value"),
    Stage.SCORES: ("scores",),
    Stage.SCALE: ("scores",),
    Stage.SOFTCAP: ("scores",),
    Stage.BIAS: ("scores",),
    Stage.MASK: ("scores",),
    Stage.SOFTMAX: ("weights",),
    Stage.DROPOUT: ("weights",),
    Stage.MIX: ("context",),
    Stage.MERGE: ("context",),
    Stage.OUTPUT: ("output",),
}
"""The tensors of a run that each stage makes."""

WORDS = {"scores": "attn_scores", "weights": "attn_weights"}
"""What tensors of queries and keys are called."""


def first_difference(right: Run, faulty: Run) -> Matrices | None:
    """The first tensor on the way that differs, from the sequence, head and stage at which it does.

    None where all that can be shown beside each other is equal: shapes may differ too.

    Args:
        right: a finished run.
        faulty: the finished run of the same inputs with a stage replaced.
    """
    begin = 0
    for call, runs in enumerate(zip(right.parts or (right,), faulty.parts or (faulty,), strict=True)):
        found = _first_in_a_call(*runs)
        if found is not None:
            title = f"{found.title}, in call {call + 1} of {len(right.parts)}" if right.parts else found.title
            return replace(found, title=title, start=begin if found.axes[0] == "query" else 0)
        begin += runs[0].inputs.lengths[0]
    return None


def _first_in_a_call(right: Run, faulty: Run) -> Matrices | None:
    for stage in Stage:
        ends = after(right, stage), after(faulty, stage)
        for name in MADE[stage] if stage in right.before and stage in faulty.before else ():
            expected, got = (getattr(end, name) for end in ends)
            if expected is None or got is None or expected.shape != got.shape or not unlike(expected, got).any():
                continue
            if not np.isnan(got).all():
                place = tuple(int(one) for one in np.argwhere(unlike(expected, got))[0][:-2])
                return matrices_at(f"{WORDS.get(name, name)} after the stage {stage}", name, place, ends)
    return None


def after(run: Run, stage: Stage) -> Run:
    """A finished run as it was after one of its stages."""
    following = list(Stage)[stage.order + 1 :]
    return next((run.before[one] for one in following if one in run.before), run)


def matrices_at(title: str, name: str, place: tuple[int, ...], runs: tuple[Run, Run]) -> Matrices:
    """One tensor of two runs at a sequence, or at a sequence and a head.

    Args:
        title: what it is.
        name: the run's name for it.
        place: ``(batch,)`` or ``(batch, head)``.
        runs: the right one and the other, neither further than the tensor.
    """
    tensors = [getattr(run, name) for run in runs]
    of_pairs = name in ("scores", "weights")
    row = "token" if name in ("key", "value") else "query"
    batch, *heads = (f"{axis} {at}" for axis, at in zip(("sequence", "head"), place, strict=False))
    title = ", ".join([title, *heads, *([batch] if runs[0].inputs.batch > 1 else [])])
    expected, got = (tensor[place] for tensor in tensors)
    axes = row, "key" if of_pairs else "channel"
    if not of_pairs:
        return Matrices(title, axes, expected, got, unlike(expected, got))
    hidden = [_hidden(run, tensor)[place] for run, tensor in zip(runs, tensors, strict=True)]
    return Matrices(title, axes, expected, got, unlike(expected, got), (hidden[0], hidden[1]))


def _hidden(run: Run, tensor: Any) -> Any:
    """Where a query may not attend, of scores or weights: what the mask makes minus infinity."""
    if run.scores is not None and run.scores.shape == tensor.shape:
        return np.isneginf(run.scores)
    if run.may_attend is not None and run.may_attend.shape == tensor.shape:  # of several calls, the scores are not kept
        return ~run.may_attend & (tensor == 0)
    return np.zeros(tensor.shape, bool)
