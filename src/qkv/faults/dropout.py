"""Dropout that stays on in evaluation: what it dropped is read off the candidate's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from qkv.errors import ShapeError
from qkv.faults.fault import Ways, fault
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import mix, output
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_ROUNDING = 1e-3
"""How far a factor may lie from 0 or from the common one. Running it decides whether it reproduces the numbers."""


def _factors(got: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """What each entry was multiplied by, 0 or one common number; None where that is no dropout."""
    counts = np.isfinite(right) & (np.abs(right) > 1e-9 * max(float(np.nanmax(np.abs(right), initial=0.0)), 1e-300))
    ratio = np.where(counts, got, 0.0) / np.where(counts, right, 1.0)
    kept = counts & (ratio > 0.5)
    dropped = counts & (np.abs(ratio) < _ROUNDING)
    if not kept.any() or not dropped.any() or (counts & ~kept & ~dropped).any():
        return None
    factor = float(np.median(ratio[kept]))
    if (np.abs(ratio[kept] - factor) > _ROUNDING * factor).any():
        return None
    return np.where(dropped, 0.0, factor)


def _in_words(factors: np.ndarray) -> str:
    factor = float(factors.max())
    if abs(factor - 1) < _ROUNDING:
        return "what is kept is not scaled up"
    return f"p is {1 - 1 / factor:.3g}: what is kept is multiplied by {factor:.4g} = 1/(1 - p)"


def _weights(context: np.ndarray, value: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The weights that give ``context``; None where a row sees more keys than the value has channels."""
    visible = right > 0
    if int(visible.sum(-1).max(initial=0)) > value.shape[-1]:
        return None
    found = np.zeros_like(right)
    for place in np.ndindex(right.shape[:-1]):
        keys = np.flatnonzero(visible[place])
        rows = value[place[:-1]][keys]
        found[place][keys] = np.linalg.lstsq(rows.T, context[place], rcond=None)[0] if keys.size else 0.0
    return found


def _multiplied(stage: Stage, factors: np.ndarray) -> Replacements:
    def of(run: Run, array: Array) -> Array:
        if tuple(array.shape) != factors.shape:
            raise ShapeError(f"dropout was read off {factors.shape} entries, and these are {tuple(array.shape)}")
        return array * run.array(factors)

    changes: dict[Stage, Callable[[Run], Run]] = {
        Stage.DROPOUT: lambda run: run.but(weights=of(run, run.weights)),
        Stage.MIX: lambda run: (done := mix(run)).but(context=of(run, done.context)),
        Stage.OUTPUT: lambda run: (done := output(run)).but(output=of(run, done.output)),
    }
    return {stage: changes[stage]}


def read_off(run: Run, got: Array) -> Iterator[tuple[str, Replacements]]:
    """The entries that were dropped, found in the context (four axes) or the output (three) of a candidate."""
    got = np.asarray(got, dtype=np.float64)
    weights, value = (np.asarray(array, dtype=np.float64) for array in (run.weights, run.value))
    if got.ndim == 3:
        yield from _dropped(Stage.OUTPUT, "of the output", got, np.asarray(run.output, dtype=np.float64))
    elif got.shape == (*weights.shape[:-1], value.shape[-1]) and np.isfinite(got).all():
        found = _weights(got, value, weights)
        if found is not None:
            yield from _dropped(Stage.DROPOUT, "of the weights", found, weights)
        yield from _dropped(Stage.MIX, "of the context", got, weights @ value)


def _dropped(stage: Stage, words: str, got: np.ndarray, right: np.ndarray) -> Iterator[tuple[str, Replacements]]:
    factors = _factors(got, right) if got.shape == right.shape else None
    if factors is not None:
        yield f"{words}; {_in_words(factors)}", _multiplied(stage, factors)


@fault(
    "dropout-in-eval",
    Stage.DROPOUT,
    title="dropout is on in evaluation",
    explanation=(
        "Dropout sets random weights to zero while a model is trained, and scales up the others. In evaluation it "
        "must be off. Here two runs on the same input differ, and random entries in all rows are wrong. F.dropout "
        "and scaled_dot_product_attention don't know about model.eval()."
    ),
    repair="attn_weights = F.dropout(attn_weights, p=self.dropout, training=self.training)",
    fit=read_off,
    commonness=3,
)
def dropout_in_eval(spec: AttentionSpec) -> Ways:
    """``w_ij m_ij / (1 - p)`` with ``m`` 0 or 1 at random. Always the same ``m`` here; a candidate's is read off it."""
    p = 0.3

    def dropped(run: Run) -> Run:
        kept = np.random.default_rng(0).random(tuple(run.weights.shape)) >= p
        return run.but(weights=run.weights * run.array(kept / (1 - p)))

    yield f"p is {p}", {Stage.DROPOUT: dropped}
