"""Fitting: the numbers of a spec (scale, softcap, sinks, slopes) under which it comes nearest to a dump's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qkv.comparison import Bools, Floats
from qkv.oracle import Inputs, Run, resume, run_stages
from qkv.positions import Alibi
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

STEPS = 25
"""Steps of an estimation at most."""

SMALL = 1e-5
"""Share of a number by which it is moved to see what that does."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of a spec. Those that are None are not there.

    Attributes:
        scale: what the scores are multiplied by.
        softcap: ``c`` in ``c * tanh(scores / c)``.
        sinks: each head's, ``(num_heads,)``.
        slopes: each head's slope of alibi, ``(num_heads,)``.
    """

    scale: float
    softcap: float | None = None
    sinks: Floats | None = None
    slopes: Floats | None = None

    def spec(self, spec: AttentionSpec) -> AttentionSpec:
        """The spec with these numbers."""
        alibi = spec.alibi
        if self.slopes is not None:
            alibi = replace(alibi or Alibi(), slopes=tuple(float(slope) for slope in self.slopes))
        cap = None if self.softcap is None else max(self.softcap, 1e-6)
        return spec.but(scale=self.scale, softcap=cap, sinks=self.sinks is not None or spec.sinks, alibi=alibi)

    def inputs(self, inputs: Inputs) -> Inputs:
        """The inputs with these sinks."""
        return inputs if self.sinks is None else inputs.but(sinks=self.sinks)


@dataclass
class Target:
    """The output that a spec is fitted to.

    Attributes:
        inputs: what it was computed from.
        rows: it, ``(batch, query, head, channel)``.
        judged: the rows that count, ``(batch, query, head)``.
    """

    inputs: Inputs
    rows: Floats
    judged: Bools

    def start(self, spec: AttentionSpec) -> Run:
        """The oracle's run up to the raw scores, which no number changes."""
        return run_stages(spec, self.inputs).before[Stage.SCALE]

    def off(self, start: Run, numbers: Numbers) -> Floats:
        """What the spec with these numbers is off by in the rows that count, ``(batch, query, head, channel)``."""
        run = start.but(spec=numbers.spec(start.spec), inputs=numbers.inputs(start.inputs))
        given = resume(run, {}, Stage.SCALE.order).output.reshape(self.rows.shape)
        off = np.where(self.judged[..., None], given - self.rows, 0.0)
        return np.where(np.isfinite(off), off, 1e3)

    def share(self, off: Floats) -> float:
        """The size of what it is off by, as a share of the output."""
        size = float(np.sqrt((np.where(self.judged[..., None], np.nan_to_num(self.rows), 0.0) ** 2).sum()))
        return float(np.sqrt((off**2).sum())) / max(size, 1e-300)


def fitted(target: Target, start: Run, numbers: Numbers) -> tuple[Numbers, float]:
    """The numbers that come nearest, and what share of the output is left.

    Levenberg's way between Gauss-Newton and the steepest descent, with derivatives by differences.
    """
    off, damping = target.off(start, numbers), 1e-3
    share = target.share(off)
    for _ in range(STEPS):
        moves, columns = _derivatives(target, start, numbers, off)
        normal, right = columns @ columns.T, -columns @ off.ravel()
        for _ in range(6):
            step = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal)) + 1e-30, right, rcond=None)[0]
            there = numbers
            for move, size in zip(moves, step, strict=True):
                there = move(there, float(size))
            next_off = target.off(start, there)
            if target.share(next_off) < share:
                break
            damping *= 8
        else:
            return numbers, share
        gained = share - target.share(next_off)
        numbers, off, share, damping = there, next_off, target.share(next_off), damping / 10
        if gained < 1e-9 * share:
            break
    return numbers, share


Move = Callable[[Numbers, float], Numbers]


def _derivatives(target: Target, start: Run, numbers: Numbers, off: Floats) -> tuple[list[Move], Floats]:
    """For each number how it is moved, and what that does to the output, ``(number, entry)``."""
    moves: list[Move] = [lambda at, size: replace(at, scale=at.scale + size)]
    columns = [_change(target, start, off, numbers, moves[0], max(abs(numbers.scale), 1e-3))]
    if numbers.softcap is not None:
        moves.append(lambda at, size: replace(at, softcap=max((at.softcap or 0.0) + size, 1e-2)))
        columns.append(_change(target, start, off, numbers, moves[-1], abs(numbers.softcap)))
    for name in ("sinks", "slopes"):
        own = getattr(numbers, name)
        if own is None:
            continue
        # Each head's number moves that head alone, so all of them are moved at once.
        together = _change(target, start, off, numbers, _all_moved(name), 1.0).reshape(off.shape)
        for head in range(len(own)):
            moves.append(_one_moved(name, head))
            column = np.zeros(off.shape)
            column[:, :, head] = together[:, :, head]
            columns.append(column.ravel())
    return moves, np.array(columns)


def _change(target: Target, start: Run, off: Floats, numbers: Numbers, move: Move, size: float) -> Floats:
    ahead = target.off(start, move(numbers, SMALL * size))
    changed: Floats = ((ahead - off) / (SMALL * size)).ravel()
    return changed


def _all_moved(name: str) -> Move:
    return lambda at, size: replace(at, **{name: getattr(at, name) + size})


def _one_moved(name: str, head: int) -> Move:
    def moved(at: Numbers, size: float) -> Numbers:
        values = getattr(at, name).copy()
        values[head] += size
        return replace(at, **{name: values})

    return moved


def start_numbers(scale: float, what: Sequence[str], scores: Floats, num_heads: int) -> list[Numbers]:
    """Where the estimation of these numbers begins."""
    largest = max(float(np.abs(scores).max()) * abs(scale), 1e-3)
    caps = [largest, 4 * largest, 0.3 * largest] if "softcap" in what else [None]
    sinks = np.zeros(num_heads) if "sinks" in what else None
    slopes = np.full(num_heads, 0.1) if "slopes" in what else None
    return [Numbers(scale, cap, sinks, slopes) for cap in caps]
