"""Probes of the backward pass: inputs and cotangents that show what ordinary ones hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.adapters.pullback import Memory
from qkv.comparison import Floats
from qkv.masks import Documents, SlidingWindow
from qkv.oracle import Inputs
from qkv.probes import Probe, Setting

PREFIX = "gradient "

Cotangent = Callable[[tuple[int, ...]], Floats]
"""What the output is multiplied by, for its shape ``(batch, query, width)``."""


def drawn(shape: tuple[int, ...]) -> Floats:
    """Every entry another random number."""
    return np.random.default_rng(3).normal(size=shape)


def one_row(shape: tuple[int, ...]) -> Floats:
    """Zero but for one query of the last sequence."""
    cotangent = np.zeros(shape)
    cotangent[-1, shape[1] // 2] = drawn(shape)[-1, shape[1] // 2]
    return cotangent


@dataclass(frozen=True)
class GradientProbe:
    """One question to the backward pass.

    Attributes:
        probe: the inputs.
        cotangent: what the output is multiplied by.
        memory: how that is handed over.
    """

    probe: Probe
    cotangent: Cotangent = drawn
    memory: Memory = "contiguous"

    @property
    def name(self) -> str:
        """The probe's name among those of the backward pass."""
        return self.probe.name.removeprefix(PREFIX)

    def cotangent_for(self, shape: tuple[int, ...]) -> Floats:
        """The cotangent: of padded queries zero, since nobody reads their output."""
        cotangent, is_token = self.cotangent(shape), self.probe.inputs.is_token
        return cotangent if is_token is None else np.where(is_token[:, :, None], cotangent, 0.0)


def _probe(name: str, exposes: str, inputs: Inputs, **more: Any) -> Probe:
    """A probe whose name no probe of the output has."""
    return Probe(f"{PREFIX}{name}", exposes, inputs, **more)


def gradient_probes(setting: Setting) -> Iterator[GradientProbe]:
    """All probes of the backward pass that fit a setting, the ordinary one first."""
    yield from _ordinary(setting)
    yield from _lengths(setting)
    yield from _masks(setting)
    yield from _memory(setting)


def wide_heads(setting: Setting) -> Iterator[GradientProbe]:
    """Heads of 256 channels, for which kernels have code of their own."""
    if setting.abilities.free_sizes:
        inputs = setting.inputs("wide heads", queries=setting.tokens(5))
        yield GradientProbe(_probe("head-dim 256", "kernels for wide heads", inputs, optional=True))


def several_blocks(setting: Setting) -> Iterator[GradientProbe]:
    """As many tokens as leave a block of 16, 32 or 64 unfilled behind full ones."""
    if setting.tokens(83) > 64:
        inputs = setting.inputs("several blocks", queries=setting.tokens(83))
        yield GradientProbe(_probe("several-blocks", "a last block that isn't full", inputs, optional=True))


def _ordinary(setting: Setting) -> Iterator[GradientProbe]:
    able = setting.abilities
    inputs = setting.inputs("gradients", queries=setting.tokens(7))
    grouped = able.num_kv_heads < able.num_heads
    name, exposes = ("grouped", "sums over a group of heads") if grouped else ("ordinary", "most faults")
    yield GradientProbe(_probe(name, exposes, inputs))
    yield GradientProbe(_probe("again", "gradients that draw random numbers", inputs, seed=1))
    yield GradientProbe(_probe("one row", "rows that get what belongs to others", inputs), one_row)
    large = setting.inputs("large scores", queries=setting.tokens(5), gain=30.0)
    yield GradientProbe(_probe("large-scores", "softcap, and softmax's own gradient", large))
    yield GradientProbe(_probe("repeated-tokens", "sums by content", _repeated(setting)))


def _repeated(setting: Setting) -> Inputs:
    """The first keys stand at the end once more."""
    inputs = setting.inputs("repeated", queries=setting.tokens(7))
    names = ("key", "value") if inputs.query is not None else ("x",) if inputs.source is None else ("source",)
    changes = {}
    for name in names:
        changes[name] = np.array(getattr(inputs, name))
        tokens = changes[name].shape[-2]
        changes[name][..., tokens - tokens // 2 :, :] = changes[name][..., : tokens // 2, :]
    return inputs.but(**changes)


def _lengths(setting: Setting) -> Iterator[GradientProbe]:
    able = setting.abilities
    window = max((part.size for part in setting.spec.mask.parts() if isinstance(part, SlidingWindow)), default=0)
    tokens = setting.tokens(min(max(2 * window + 3, 37), 300))
    if tokens > 7:
        inputs = setting.inputs("long gradients", queries=tokens)
        yield GradientProbe(_probe("long", "blocks that are left out, and windows", inputs, optional=True))
    if able.free_lengths:
        inputs = setting.inputs("fewer queries", queries=3, keys=setting.tokens(9))
        yield GradientProbe(_probe("fewer-queries", "the corner of the mask", inputs, optional=True))
    if able.batched:
        inputs = setting.inputs("one sequence", batch=1, queries=setting.tokens(5))
        yield GradientProbe(_probe("one-sequence", "confused batch axes", inputs))
    if able.free_sizes:
        inputs = setting.inputs("wider value", queries=setting.tokens(5), value_dim=able.value_dim + 2)
        yield GradientProbe(_probe("value-dim", "one width taken for the other", inputs, optional=True))


def _masks(setting: Setting) -> Iterator[GradientProbe]:
    takes, tokens, spec = setting.abilities.takes, setting.tokens(7), setting.spec
    rng = np.random.default_rng([setting.seed, 8])
    if "padding" in takes and setting.abilities.batched:
        is_token = np.arange(tokens) < np.array([[max(tokens - 3, 1)], [tokens - 1]])
        inputs = setting.inputs("padded", queries=tokens, is_token=is_token)
        yield GradientProbe(_probe("padding", "gradients of padding", inputs, optional=True))
    if "documents" in takes and spec.masks(Documents):
        document = np.array([np.arange(tokens) >= 4, np.arange(tokens) >= 2]).astype(np.int64)
        inputs = setting.inputs("packed", queries=tokens, document=document[: 2 if setting.abilities.batched else 1])
        yield GradientProbe(_probe("documents", "gradients across documents", inputs, optional=True))
    if "mask" in takes:
        may_attend = (rng.random((1, 1, tokens, tokens)) < 0.6) | np.eye(tokens, dtype=bool)
        inputs = setting.inputs("masked", queries=tokens, may_attend=may_attend)
        yield GradientProbe(_probe("handed-mask", "gradients of hidden keys", inputs, optional=True))
    if "bias" in takes:
        for heads, word in ((setting.abilities.num_heads, "each head"), (1, "all heads")):
            bias = rng.normal(size=(1, heads, tokens, tokens))
            inputs = setting.inputs("biased", queries=tokens, bias=bias)
            yield GradientProbe(_probe(f"handed-bias for {word}", "sums over broadcast axes", inputs, optional=True))


def _memory(setting: Setting) -> Iterator[GradientProbe]:
    tokens = setting.tokens(5)
    inputs = setting.inputs("strides", queries=tokens)
    summed = _probe("summed", "output.sum().backward(): one number for all", inputs)
    yield GradientProbe(summed, np.ones, "expanded")
    turned = _probe("strided-cotangent", "a cotangent read as if contiguous", inputs)
    yield GradientProbe(turned, drawn, "strided")
    strided = _probe("strided", "arrays read as if contiguous", inputs.but(strided=True), optional=True)
    yield GradientProbe(strided)
