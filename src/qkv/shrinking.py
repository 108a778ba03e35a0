"""Shrinking: the smallest input that still shows the fault, with numbers that a person can check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.diagnosis import Diagnosis, Observation, under
from qkv.errors import QkvError
from qkv.oracle import Inputs
from qkv.probes import Probe
from qkv.settling import Reading, Trial


def smallest(trial: Trial, diagnosis: Diagnosis) -> Observation | None:
    """The first of ever larger inputs on which the candidate is wrong, in the way that was diagnosed."""
    failing = [observation for observation in trial.observations if not observation.comparison.agrees]
    for probe, sizes in _growing(trial):
        small = replace(trial, reading=_resized(trial, sizes), observations=[], refused=[])
        try:
            observation = small.observe(probe)
        except (QkvError, Exception) as error:  # noqa: BLE001 - an example is a courtesy: no failure of it may cost the report
            if isinstance(error, QkvError) and getattr(error, "fatal", False):
                return None
            continue
        if not observation.comparison.agrees and _same_fault(observation, diagnosis):
            return observation
    return min(failing, key=lambda observation: observation.cost, default=None)


def _same_fault(observation: Observation, diagnosis: Diagnosis) -> bool:
    if diagnosis.best is None:
        return True
    if not any(variant.replacements for variant in diagnosis.best.variants):
        return True
    with np.errstate(all="ignore"):
        given = under(diagnosis.best.variants, observation.expected.run)
    return observation.reproduced_by(given.output) is not None


def _resized(trial: Trial, sizes: Abilities) -> Reading:
    reading = trial.reading
    if not sizes.free_sizes:
        return reading
    spec = reading.spec.but(
        num_heads=sizes.num_heads, num_kv_heads=sizes.num_kv_heads, head_dim=sizes.head_dim, value_dim=sizes.value_dim
    )
    return replace(reading, spec=spec)  # type: ignore[type-var]  # every reading is a dataclass


def _growing(trial: Trial) -> Iterator[tuple[Probe, Abilities]]:
    able = trial.reading.abilities
    all_sizes = list(_all_sizes(able, trial)) if able.free_sizes else [able]
    for sizes, (batch, queries, keys) in product(all_sizes, _lengths(able)):
        setting = replace(trial.setting, abilities=sizes, seed=trial.seed + 1)
        inputs = setting.inputs("small", batch=batch, queries=queries, keys=keys)
        inputs = rounded(inputs) if sizes.free_sizes else inputs
        yield Probe("smallest", "checking by hand", inputs), sizes


def _all_sizes(able: Abilities, trial: Trial) -> Iterator[Abilities]:
    spec = trial.reading.spec
    fixed = spec.alibi is not None or spec.relative_bias is not None
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
    """The same inputs with short numbers: halves, so that a person can do the sums."""
    return inputs.map(lambda array: np.round(2 * array) / 2 if array.dtype.kind == "f" else array)
