"""As if: the right stage, done under another spec or with other inputs, and nothing else changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.errors import ShapeError
from qkv.faults.fault import Ways
from qkv.oracle import Inputs, Replacements, Run, StageFunction
from qkv.oracle.stages import softmax
from qkv.spec import AttentionSpec
from qkv.vocabulary import EmptyRow, Stage


@dataclass(frozen=True, eq=False)
class AsIf:
    """A stage as it would go under a changed spec or with changed inputs; the stages after it see the real ones."""

    stage: StageFunction
    inputs: Callable[[Inputs], Inputs] | None
    spec_changes: Mapping[str, Any]

    def __call__(self, run: Run) -> Run:
        """The run after the stage."""
        inputs = run.inputs if self.inputs is None else self.inputs(run.inputs)
        seen = run.but(spec=run.spec.but(**self.spec_changes), inputs=inputs)
        return self.stage(seen).but(spec=run.spec, inputs=run.inputs)


def as_if(stage: StageFunction, inputs: Callable[[Inputs], Inputs] | None = None, **spec_changes: Any) -> AsIf:
    """``stage`` as it would go under a changed spec or with changed inputs."""
    return AsIf(stage, inputs, spec_changes)


def quietly(stage: StageFunction) -> StageFunction:
    """``stage`` without NumPy's warnings: a faulty implementation may well compute infinity minus infinity."""

    def quiet(run: Run) -> Run:
        with np.errstate(all="ignore"):
            return stage(run)

    return quiet


def unless(said_elsewhere: bool, why: str) -> None:
    """Makes a way impossible on these inputs.

    Raises:
        ShapeError: always when ``said_elsewhere``; the diagnosis then skips the way.
    """
    if said_elsewhere:
        raise ShapeError(why)


EMPTY_ROWS: dict[EmptyRow, str] = {"nan": "NaN", "uniform": "the mean of all values", "zero": "zeros"}
"""What rows without any key may give, in words; the most frequent first."""


def with_empty_rows(spec: AttentionSpec, replacements: Replacements, note: str = "", *, lowered: bool = True) -> Ways:
    """A way that may leave rows without any key, once under each rule for such rows.

    What a row without a key gets depends on how scores are hidden: minus infinity gives NaN, a large finite number the
    mean of all values, a guard zeros. The spec's own rule comes first.
    """
    yield note, replacements
    for rule, words in EMPTY_ROWS.items():
        if rule != spec.empty_row:
            joined = f"{note}; rows without any key give {words}" if note else f"rows without any key give {words}"
            yield joined, {**replacements, Stage.SOFTMAX: as_if(softmax, empty_row=rule)}
    if lowered and Stage.MASK in replacements and Stage.SOFTMAX not in replacements:
        shifted = {**replacements, Stage.MASK: _seeing_all_where_nothing_is_seen(replacements[Stage.MASK])}
        words = "rows without any key see every key, since all scores were lowered alike"
        yield f"{note}; {words}" if note else words, shifted


def _seeing_all_where_nothing_is_seen(stage: StageFunction) -> StageFunction:
    """A large negative number that was added to every score of a row changes nothing in it."""

    def masked(run: Run) -> Run:
        done = stage(run)
        empty = run.xp.all(done.scores == -float("inf"), axis=-1, keepdims=True)
        return done.but(scores=run.xp.where(empty, run.scores, done.scores))

    return masked
