"""Attention code as different people write it, each style in a file of its own, with faults planted as text edits.

A style module holds `SOURCE` (a right file of attention code), `NAME` (the attention's name in it), `OPTIONS` (flags
of `qkv check` that state the intention), `SPEC` (the whole intention), `FAULTS` (fault id to edits), `PAIRS` (two
faults at once), `RIGHT_VARIANTS` (edits that leave it right), sometimes `MORE_FAULTS` (further ways to write a fault,
labelled `fault-id: way`), and `example(namespace)`, which runs a loaded file on seeded input and returns its outputs.

The corpus is independent evidence: nothing here reads the implementation of the judge.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.styles._kit import apply

# Ids that stand for the same numbers in the styles here: naming either is right.
SAME_NUMBERS: tuple[frozenset[str], ...] = (
    frozenset({"value-is-key", "weights-times-key"}),
    frozenset({"heads-split-by-view", "strided-read-as-contiguous"}),
    # Where a mask argument carries all there is to hide, leaving it unused is each of these.
    frozenset({"padding-missing", "mask-not-applied"}),
    frozenset({"causal-missing", "mask-not-applied"}),
    frozenset({"padding-wrong-side", "mask-inverted"}),
    frozenset({"padding-on-queries", "mask-transposed"}),
    # A mask of 0 and a large negative number, read as true and false, is inverted.
    frozenset({"bias-read-as-mask", "mask-inverted"}),
    # One slot of zeros adds e^0 to every sum.
    frozenset({"cache-empty-slots", "softmax-off-by-one"}),
    # With a query at position 0 alone, rope's query is not turned at all.
    frozenset({"rope-offset-lost", "rope-one-sided"}),
)


class Variant(NamedTuple):
    """One file of code: `kind` is right, fault or pair; `faults` holds the ids of what was planted."""

    kind: str
    label: str
    faults: tuple[str, ...]
    source: str


def styles() -> Iterator[ModuleType]:
    """Every style module, by name."""
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if not found.name.startswith("_") and found.name != "selfcheck":
            yield importlib.import_module(f"{__name__}.{found.name}")


def style_name(style: ModuleType) -> str:
    """The short name of a style module."""
    return style.__name__.rpartition(".")[2]


def variants(style: ModuleType) -> Iterator[Variant]:
    """The source as written, its right variants, then every planted fault and pair of faults."""
    yield Variant("right", "as written", (), style.SOURCE)
    for label, edits in style.RIGHT_VARIANTS.items():
        yield Variant("right", label, (), apply(style.SOURCE, edits))
    for fault, edits in style.FAULTS.items():
        yield Variant("fault", fault, (fault,), apply(style.SOURCE, edits))
    for label, edits in getattr(style, "MORE_FAULTS", {}).items():
        yield Variant("fault", label, (label.partition(":")[0],), apply(style.SOURCE, edits))
    for faults, edits in style.PAIRS.items():
        yield Variant("pair", " + ".join(faults), faults, apply(style.SOURCE, edits))


def load(source: str, name: str = "candidate_code") -> dict[str, Any]:
    """The namespace that running the source leaves."""
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102  our own text
    finally:
        del sys.modules[name]
    return module.__dict__
