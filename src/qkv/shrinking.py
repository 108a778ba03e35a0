"""Shrinking: the smallest input that still shows the fault, with numbers that a person can check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.adapters.construction import Sizes
from qkv.diagnosis import Diagnosis, Observation
from qkv.oracle import Inputs
from qkv.probes import Probe
from qkv.settling import Trial


def smallest(trial: Trial, diagnosis: Diagnosis) -> Observation | None:
    """The first of ever larger inputs on which the candidate is wrong, in the way that was diagnosed."""
    failing = [observation for observation in trial.observations if not observation.comparison.agrees]
    faint: list[Observation] = []
    for small, probe in _growing(trial):
        try:
            observation = small.observe(probe)
        except Exception as error:  # noqa: BLE001 - an example is a courtesy: no failure of it may cost the report
            if getattr(error, "fatal", False):
                break
            continue
        if not observation.comparison.agrees and _same_fault(observation, diagnosis):
            if _plain_to_see(observation):
                return observation
            faint.append(observation)
    return faint[0] if faint else min(failing, key=lambda observation: observation.cost, default=None)


PLAIN = 0.1
"""Share of the largest entry by which an example should be off, so that the difference is no matter of decimals."""


def _plain_to_see(observation: Observation) -> bool:
    largest = float(np.abs(np.nan_to_num(observation.expected.rows)).max(initial=0.0))
    return not observation.comparison.max_error <= PLAIN * largest


def _growing(trial: Trial) -> Iterator[tuple[Trial, Probe]]:
    """Trials of ever larger sizes, each with probes of ever more tokens."""
    able = trial.reading.abilities
    if able.free_sizes:
        for sizes in _all_sizes(able, trial):
            small = trial.resized(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.value_dim)
            yield from _probes(small, short=True)
    elif trial.rebuild is not None:
        for small in _rebuilt(trial):
            yield from _probes(small, short=True)
    yield from _probes(trial, short=False)


def _rebuilt(trial: Trial) -> Iterator[Trial]:
    """The candidate built with sizes that a person can follow, and read as before."""
    able, spec = trial.reading.abilities, trial.reading.spec
    grouped = spec.group_size > 1
    assert trial.rebuild is not None
    for heads, dim in ((1, 2), (2, 2), (4, 1), (4, 2)):
        kv_heads = max(heads // 2, 1) if grouped else heads
        if heads > able.num_heads or (grouped and heads == 1):
            continue
        sizes = Sizes(dim * heads, heads, kv_heads, dim, dim, max(able.max_tokens or 8, 8))
        try:
            same = (small for small in trial.rebuild(sizes) if small.reading.assumptions == trial.reading.assumptions)
            small = next(same, None)
        except Exception as error:  # noqa: BLE001 - as in smallest
            if getattr(error, "fatal", False):
                return
            continue
        if small is not None:
            yield small


def _same_fault(observation: Observation, diagnosis: Diagnosis) -> bool:
    if diagnosis.best is None:
        return True
    if not any(variant.replacements for variant in diagnosis.best.variants):
        return True
    with np.errstate(all="ignore"):
        return observation.reproduced_under(diagnosis.best.variants) is not None


def _probes(trial: Trial, *, short: bool) -> Iterator[tuple[Trial, Probe]]:
    for (batch, queries, keys), seed in product(_lengths(trial.setting.abilities), range(1, 4)):
        setting = replace(trial.setting, seed=trial.seed + seed)
        inputs = setting.inputs("small", batch=batch, queries=queries, keys=keys)
        name = f"smallest {batch} {queries} {keys} {seed}"
        yield trial, Probe(name, "checking by hand", rounded(inputs) if short else inputs)


def _all_sizes(able: Abilities, trial: Trial) -> Iterator[Abilities]:
    spec = trial.reading.spec
    fixed = spec.alibi is not None or spec.relative_bias is not None or spec.mask.varies[1]
    heads = [(able.num_heads, able.num_kv_heads)]
    if not fixed:
        heads = [(1, 1), (2, 2), (2, 1), (4, 2), *heads]
        heads = [pair for pair in heads if pair[0] <= able.num_heads and (pair[1] < pair[0]) <= (spec.group_size > 1)]
    dims = [2, 4, able.head_dim] if spec.rope is None or spec.rope.dims is None else [able.head_dim]
    for (query_heads, kv_heads), dim in product(heads, dims):
        yield replace(able, num_heads=query_heads, num_kv_heads=kv_heads, head_dim=dim, value_dim=dim)


def _lengths(able: Abilities) -> Iterator[tuple[int, int, int]]:
    for tokens in (2, 3, 4, 6):
        if able.max_tokens is None or tokens <= able.max_tokens:
            yield 1, tokens, tokens
            if able.free_lengths:
                yield 1, max(tokens - 1, 1), tokens
    if able.batched:
        yield 2, 3, 3


def rounded(inputs: Inputs) -> Inputs:
    """The same inputs with short numbers, no two equal where they can help it, so that a person can do the sums."""
    parameters = inputs.parameters
    return inputs.map(lambda array: np.round(2 * array) / 2 + 0.0 if array.dtype.kind == "f" else array).but(
        parameters=parameters
    )
