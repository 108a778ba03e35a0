"""Probes of a cache: one sequence handed over bit by bit must give what it gives at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from qkv.masks import SlidingWindow
from qkv.oracle import Inputs
from qkv.probes.probe import Probe, Setting, probe

LONGEST = 40
"""Tokens that are decoded at most, however wide the window is."""


@probe
def decoding(setting: Setting) -> Iterator[Probe]:
    """A prompt, then one token after the other."""
    yield from _in_steps(setting, "decoding", lambda tokens: (tokens - 3, 1, 1, 1))


@probe
def token_by_token(setting: Setting) -> Iterator[Probe]:
    """Every token by itself, from the first on."""
    yield from _in_steps(setting, "token-by-token", lambda tokens: (1,) * tokens)


@probe
def chunked_prefill(setting: Setting) -> Iterator[Probe]:
    """Several tokens at once behind a cache that holds some: where the mask of a chunk begins shows."""
    yield from _in_steps(setting, "chunked-prefill", lambda tokens: (2, 3, tokens - 5))


@probe
def long_decoding(setting: Setting) -> Iterator[Probe]:
    """Over twice the window: slots are used again, and what has left the window is gone."""
    window = max((part.size for part in setting.spec.mask.parts() if isinstance(part, SlidingWindow)), default=0)
    if window:
        least = min(2 * window + 3, LONGEST)
        yield from _in_steps(setting, "long-decoding", lambda tokens: (2,) + (1,) * (tokens - 2), least)


@probe
def second_sequence(setting: Setting) -> Iterator[Probe]:
    """A shorter sequence before it: what the cache held of that one must be gone."""
    if setting.abilities.cached == "kept":
        for one in _in_steps(setting, "second-sequence", lambda tokens: (tokens - 3, 1, 1, 1)):
            inputs = one.inputs.but(earlier=_inputs(setting, "earlier", 3).but(steps=(2, 1)))
            yield Probe(one.name, "keys and values of another sequence", inputs, optional=True)


@probe
def shorter_caches(setting: Setting) -> Iterator[Probe]:
    """Caches with room for more tokens than they hold, each with its own number: what lies behind them is no key."""
    spec, able = setting.spec, setting.abilities
    placed = spec.rope is not None or spec.alibi is not None or spec.relative_bias is not None
    if "cache_lens" not in able.takes or not able.batched or placed or spec.masks(SlidingWindow):
        return  # the query of another length would stand at another place
    tokens = setting.tokens(9)
    is_token = np.arange(tokens) < np.array([[tokens - 4], [tokens - 1]])
    inputs = setting.inputs("shorter-caches", queries=1, keys=tokens, is_token=is_token)
    yield Probe("shorter-caches", "slots of a cache that hold no token", inputs, optional=True)


def _in_steps(setting: Setting, name: str, steps: Callable[[int], tuple[int, ...]], least: int = 7) -> Iterator[Probe]:
    if setting.abilities.cached:
        tokens = setting.tokens(least)
        if tokens >= least:
            inputs = _inputs(setting, name, tokens).but(steps=steps(tokens))
            yield Probe(name, "what a cache holds, and where its tokens stand", inputs, optional=True)


def _inputs(setting: Setting, name: str, tokens: int) -> Inputs:
    """Random inputs of a sequence that attends to itself."""
    return setting.inputs(name, queries=tokens).but(source=None)
