"""Probes of who may see whom: padding on either side, packed documents, masks handed over, rows without any key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.masks import Documents
from qkv.probes.probe import Probe, Setting, probe


@probe
def padding(setting: Setting) -> Iterator[Probe]:
    """Two sequences of unequal length, padded on the right and on the left."""
    if "padding" not in setting.abilities.takes or not setting.abilities.batched:
        return
    tokens = setting.tokens(7)
    position = np.arange(tokens)
    lengths = np.array([[max(tokens - 3, 1)], [tokens - 1]])
    for side, is_token in (("right", position < lengths), ("left", position >= tokens - lengths)):
        inputs = setting.inputs(f"padding {side}", queries=tokens, is_token=is_token)
        yield Probe(f"padding on the {side}", "padding seen, or on the wrong side", inputs, optional=True)


@probe
def documents(setting: Setting) -> Iterator[Probe]:
    """Documents of unequal lengths in one sequence: two, three and five of them."""
    if not setting.spec.masks(Documents) or "documents" not in setting.abilities.takes:
        return
    tokens = setting.tokens(9)
    rows = [np.repeat(range(len(lengths) + 1), [*lengths, tokens])[:tokens] for lengths in ((4,), (2, 4), (1, 3, 1, 2))]
    packed = [rows[:2], rows[2:]] if setting.abilities.batched else [[row] for row in rows]
    for document in packed:
        name = f"documents {', '.join(str(row[-1] + 1) for row in document)} in a sequence"
        inputs = setting.inputs(name, batch=len(document), queries=tokens, document=np.array(document))
        yield Probe(name, "texts that see each other", inputs, optional=True)


@probe
def handed_mask(setting: Setting) -> Iterator[Probe]:
    """A mask of no regular shape that leaves every query a key: its polarity and what is done with it show."""
    if "mask" not in setting.abilities.takes:
        return
    tokens = setting.tokens(5)
    rng = np.random.default_rng([setting.seed, 6])
    may_attend = rng.random((1, 1, tokens, tokens)) < 0.55
    may_attend |= np.eye(tokens, dtype=bool)
    yield Probe(
        "handed-mask",
        "a mask read the other way round, or not applied",
        setting.inputs("handed mask", queries=tokens, may_attend=may_attend),
        optional=True,
    )


@probe
def empty_row(setting: Setting) -> Iterator[Probe]:
    """A query that may attend to nothing."""
    if "mask" not in setting.abilities.takes:
        return
    tokens = setting.tokens(5)
    may_attend = np.ones((1, 1, tokens, tokens), dtype=bool)
    may_attend[..., 2 % tokens, :] = False
    inputs = setting.inputs("empty row", queries=tokens, may_attend=may_attend)
    yield Probe("empty-row", "NaN from a row without keys", inputs, optional=True)


@probe
def handed_bias(setting: Setting) -> Iterator[Probe]:
    """Numbers to be added to the scores, some of them exactly zero."""
    if "bias" not in setting.abilities.takes:
        return
    tokens = setting.tokens(5)
    rng = np.random.default_rng([setting.seed, 7])
    bias = rng.normal(size=(1, setting.abilities.num_heads, tokens, tokens))
    bias[rng.random(bias.shape) < 0.3] = 0.0
    inputs = setting.inputs("handed bias", queries=tokens, bias=bias)
    yield Probe("handed-bias", "a bias scaled or dropped", inputs, optional=True)
