"""Sharing: functions that take fewer key/value heads than query heads are held to sharing them, whatever they say.

One key/value head alone is broadcast by code that knows nothing of sharing, so there are two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.comparison import Floats, as_rows
from qkv.errors import CandidateError
from qkv.inference import GROUPED
from qkv.oracle import Inputs
from qkv.probes import probes_for
from qkv.settling import Trial

NEAR = 1e-3
"""How far apart the same head may be in two calls, in units of the largest number: some run in bfloat16."""


def sharing_heads(trials: Sequence[Trial], stated: Iterable[str], reopen: Callable[[], object]) -> Sequence[Trial]:
    """The readings, those under which a function shares key/value heads held to grouped ones.

    Args:
        trials: readings of one candidate. Their quick probes have run.
        stated: fields of the spec that the user gave: whoever said how many heads there are meant these.
        reopen: opens the candidate again, should its process end over this: compiled code may read beyond its arrays.
    """
    if "num_heads" in stated:
        return trials
    shares: dict[str, bool] = {}
    found = []
    for trial in trials:
        able, layout = trial.reading.abilities, getattr(trial.reading, "layout", "")
        if able.free_sizes and able.free_heads and able.num_heads == able.num_kv_heads > 1:
            if layout not in shares:
                shares[layout] = _shares(trial, reopen)
            found.append(_grouped(trial) if shares[layout] else trial)
        else:
            found.append(trial)
    return found


def _grouped(trial: Trial) -> Trial:
    """The same reading with grouped heads, unless less can be asked of it then."""
    heads, kv_heads = GROUPED
    words = f"{heads} query heads over {kv_heads} key/value heads, shared in runs, since it takes fewer of them"
    held = _with_heads(trial, heads, kv_heads)
    held = replace(held, intention=held.intention.noting(words), unsaid=0)
    held.run(quick=True)
    return held if held.nearness[:2] >= trial.nearness[:2] else trial


def _shares(trial: Trial, reopen: Callable[[], object]) -> bool:
    """Whether each head comes out as it does when all have key/value heads of their own, which are the same.

    So it may share them in any order; what only happens to run with fewer, reading beyond them or too few of them,
    gives other numbers.
    """
    heads, kv_heads = GROUPED
    probe = next(iter(probes_for(_with_heads(trial, heads, kv_heads).setting)))
    try:
        shared, own = (_heads(trial, probe.inputs, count, probe.seed) for count in (kv_heads, heads))
    except NotApplicable:
        return False
    except CandidateError as error:
        if error.fatal:
            reopen()
        return False
    apart = np.abs(shared[:, None] - own[None]).max(axis=(2, 3, 4))
    return bool((apart.min(axis=1) <= NEAR * np.abs(own).max()).all())


def _heads(trial: Trial, inputs: Inputs, kv_heads: int, seed: int) -> Floats:
    """The output, head by head in front, with so many key/value heads that are all the same."""
    heads = GROUPED[0]
    assert inputs.key is not None
    assert inputs.value is not None
    key, value = (np.repeat(array[:, :1], kv_heads, axis=1) for array in (inputs.key, inputs.value))
    output = _with_heads(trial, heads, kv_heads).reading.observe(inputs.but(key=key, value=value), seed=seed).output
    return np.moveaxis(as_rows(output, heads), 2, 0)  # head batch query channel


def _with_heads(trial: Trial, heads: int, kv_heads: int) -> Trial:
    return trial.under(trial.reading.spec.but(num_heads=heads, num_kv_heads=kv_heads))
