"""Probes of length: ordinary, one token, one sequence, long, far, and other numbers of queries than of keys."""

from __future__ import annotations

from collections.abc import Iterator

from qkv.masks import SlidingWindow
from qkv.probes.probe import Probe, Setting, probe
from qkv.spec import AttentionSpec

LONGEST = 600
"""Tokens of the long probe at most, however wide the window is."""

BLOCKS = 255
"""Keys before the last window: its begin stands in the last place of every block, and so moved to one's begin it is
told from none, whatever the block.
"""

FAR = 300
"""Tokens of the far probe: bfloat16 counts whole numbers to 256 only."""


@probe
def ordinary(setting: Setting) -> Iterator[Probe]:
    """Seven tokens, two sequences, every axis its own size."""
    tokens = setting.tokens(7)
    if setting.abilities.free_lengths or "source" in setting.abilities.takes:
        yield Probe("ordinary", "most faults", setting.inputs("ordinary", queries=tokens, keys=tokens))
    else:
        yield Probe("ordinary", "most faults", setting.inputs("ordinary", queries=tokens))


@probe
def other_width(setting: Setting) -> Iterator[Probe]:
    """Heads half as wide again, where nobody said how wide they are: the scale of one width is not that of another."""
    rope = setting.spec.rope
    if setting.abilities.free_width and (rope is None or rope.dims is None):
        width = 3 * setting.abilities.head_dim // 2
        inputs = setting.inputs("other-width", queries=setting.tokens(5), head_dim=width, value_dim=width)
        yield Probe("other-width", "numbers that stand for head_dim", inputs, optional=True)


@probe
def fewer_queries(setting: Setting) -> Iterator[Probe]:
    """Decoding with a cache, or cross attention: where the causal corner and the query's position show."""
    if not setting.abilities.free_lengths:
        return
    window = _window(setting.spec)
    many = min(max(2 * window + 3, window + BLOCKS), LONGEST) if window else 35
    for queries, least, batch in ((3, 9, 2), (1, 9, 2), (2, many, 1)):
        keys = setting.tokens(least)
        name = f"{queries} of {keys}"
        inputs = setting.inputs(name, batch=batch, queries=queries, keys=keys)
        yield Probe(f"fewer-queries {name}", "the causal corner and the queries' positions", inputs, optional=True)


@probe
def long(setting: Setting) -> Iterator[Probe]:
    """Over twice the window, and a length that is no multiple of a block."""
    tokens = setting.tokens(min(max(2 * _window(setting.spec) + 3, 33), LONGEST))
    if tokens > 7:
        yield Probe("long", "windows, and sums over many keys", setting.inputs("long", queries=tokens), optional=True)


@probe
def far(setting: Setting) -> Iterator[Probe]:
    """Positions in the hundreds, where low precision and wrong frequencies show."""
    if setting.spec.rope is not None or setting.spec.alibi is not None:
        tokens = setting.tokens(FAR)
        if tokens > 33:
            yield Probe(
                "far", "positions in low precision", setting.inputs("far", batch=1, queries=tokens), optional=True
            )


@probe
def one_sequence(setting: Setting) -> Iterator[Probe]:
    """A batch of one, where a forgotten batch axis hides or crashes."""
    if setting.abilities.batched:
        tokens = setting.tokens(4)
        yield Probe("one-sequence", "confused batch axes", setting.inputs("one sequence", batch=1, queries=tokens))


@probe
def one_token(setting: Setting) -> Iterator[Probe]:
    """A single token attends to itself: its context vector is its own value."""
    yield Probe("one-token", "axes of size one", setting.inputs("one token", queries=1))


def _window(spec: AttentionSpec) -> int:
    return max((part.size for part in spec.mask.parts() if isinstance(part, SlidingWindow)), default=0)
