"""Probes of magnitude: large scores and scores with a large common part."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.probes.probe import Probe, Setting, probe


@probe
def peaked(setting: Setting) -> Iterator[Probe]:
    """Scores twelve and thirty times the ordinary: softcap, mask fills and low precision show."""
    tokens = setting.longest(6)
    for gain in (12.0, 30.0):
        name = f"scores times {gain:g}"
        yield Probe(f"peaked {name}", "softcap, mask fills, precision", setting.inputs(name, queries=tokens, gain=gain))


@probe
def equal_values(setting: Setting) -> Iterator[Probe]:
    """Every value is one, so every context must be one, whatever the weights are (less than one with a sink)."""
    inputs = setting.inputs("equal values", queries=setting.longest(5))
    if inputs.value is not None:
        yield Probe("equal-values", "rows of weights that don't sum to one", inputs.but(value=np.ones_like(inputs.value)))


@probe
def strided(setting: Setting) -> Iterator[Probe]:
    """The ordinary numbers in another order of memory."""
    inputs = setting.inputs("strided", queries=setting.longest(6))
    yield Probe("strided", "arrays read as if contiguous", inputs, strided=True)


@probe
def again(setting: Setting) -> Iterator[Probe]:
    """The ordinary inputs once more, with other random numbers: evaluation must not draw any."""
    inputs = setting.inputs("ordinary", queries=setting.longest(7))
    yield Probe("again", "dropout left on", inputs, seed=1)
