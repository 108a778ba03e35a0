"""Probes of magnitude: large scores and scores with a large common part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qkv.oracle import Inputs
from qkv.probes.probe import Probe, Setting, probe


@probe
def peaked(setting: Setting) -> Iterator[Probe]:
    """Scores twelve and thirty times the ordinary: softcap, mask fills and low precision show."""
    tokens = setting.tokens(5)
    for gain in (12.0, 30.0):
        name = f"scores times {gain:g}"
        yield Probe(f"peaked {name}", "softcap, mask fills, precision", setting.inputs(name, queries=tokens, gain=gain))


Array = np.ndarray[Any, np.dtype[Any]]

SHIFT = -300.0
"""What is added to every score, roughly. Softmax doesn't mind; a hidden score of -100 stands above all visible ones."""


@probe
def shifted(setting: Setting) -> Iterator[Probe]:
    """All scores far below zero: a fill that was thought to be low enough shows."""
    inputs, exposes = setting.inputs("shifted", queries=setting.tokens(5)), "mask fills that aren't low enough"
    change = _shifted_tokens if inputs.query is None else _shifted_heads
    inputs = inputs.but(**change(setting, inputs))
    yield Probe("shifted", exposes, inputs)
    if "mask" in setting.abilities.takes:
        earlier = np.tri(inputs.lengths[0], inputs.lengths[1], dtype=bool)[None, None]
        yield Probe("shifted handed-mask", exposes, inputs.but(may_attend=earlier), optional=True)
    elif "padding" in setting.abilities.takes and setting.abilities.batched:
        is_token = np.arange(inputs.lengths[1]) < np.array([[inputs.lengths[1] - 2], [inputs.lengths[1]]])
        yield Probe("shifted padding", exposes, inputs.but(is_token=is_token), optional=True)


def _shifted_heads(setting: Setting, inputs: Inputs) -> dict[str, Array]:
    """Query and key whose first channels alone give the shift."""
    query, key = np.array(inputs.query), np.array(inputs.key)
    product = SHIFT / (setting.spec.scale_for(query.shape[-1]) or 1.0)
    query[..., 0], key[..., 0] = abs(product) ** 0.5, -(abs(product) ** 0.5)
    return {"query": query, "key": key}


def _shifted_tokens(setting: Setting, inputs: Inputs) -> dict[str, Array]:
    """Tokens with a common part along the direction that lowers the scores most, over all heads together.

    Queries and keys made of different tokens have a direction each.
    """
    parameters, x, source, spec = inputs.parameters, inputs.x, inputs.source, setting.spec
    assert parameters is not None
    assert x is not None
    query = parameters.q_proj.weight.reshape(spec.num_heads, -1, x.shape[-1])
    key = parameters.k_proj.weight.reshape(spec.kv_heads, -1, x.shape[-1])
    key = np.repeat(key, spec.group_size, axis=0)
    form = np.einsum("hde,hdf->ef", query, key) * spec.scale_for(query.shape[1]) / spec.num_heads
    if source is None:
        values, vectors = np.linalg.eigh((form + form.T) / 2)
        return {"x": x + _length(values[0]) * vectors[:, 0]}
    left, sizes, right = np.linalg.svd(form)
    return {"x": x + _length(-sizes[0]) * left[:, 0], "source": source - _length(-sizes[0]) * right[0]}


def _length(value: float) -> float:
    """How long a vector has to be for its product with itself, by a form of this least value, to be the shift."""
    return min((SHIFT / min(value, -1e-3)) ** 0.5, 30.0)


@probe
def equal_values(setting: Setting) -> Iterator[Probe]:
    """Every value is one, so every context must be one, whatever the weights are (less than one with a sink)."""
    inputs = setting.inputs("equal values", queries=setting.tokens(5))
    if inputs.value is not None:
        yield Probe(
            "equal-values", "rows of weights that don't sum to one", inputs.but(value=np.ones_like(inputs.value))
        )


@probe
def value_dim(setting: Setting) -> Iterator[Probe]:
    """Values with more channels than query and key: a scale taken from the wrong one shows."""
    able = setting.abilities
    if able.free_sizes:
        inputs = setting.inputs("value dim", queries=setting.tokens(5), value_dim=able.value_dim + 2)
        yield Probe("value-dim", "a scale taken from the value", inputs, optional=True)


@probe
def strided(setting: Setting) -> Iterator[Probe]:
    """The ordinary numbers in another order of memory."""
    inputs = setting.inputs("strided", queries=setting.tokens(5))
    yield Probe("strided", "arrays read as if contiguous", inputs.but(strided=True), optional=True)


@probe
def again(setting: Setting) -> Iterator[Probe]:
    """The ordinary inputs once more, with other random numbers: evaluation must not draw any."""
    inputs = setting.inputs("ordinary", queries=setting.tokens(7))
    yield Probe("again", "dropout left on", inputs, seed=1)
