"""The search for a dump's spec: every structure under every usual scale, then the nearest with estimated numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from qkv.dumps.budget import Budget
from qkv.dumps.fitting import Numbers, Target, fitted, start_numbers
from qkv.dumps.judging import Held, held_to
from qkv.dumps.observed import DumpReading, Part, narrowed
from qkv.dumps.structures import FIRST, Sight, sights, structures
from qkv.faults.constants import scale_names
from qkv.inference import Intention
from qkv.masks import Causal, Everything
from qkv.oracle import Run, run_stages
from qkv.oracle.stages import allowed
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

SEARCHED = 25_000
"""Weights that specs are tried on; of more, a part."""

NEAR = {"float64": 1e-4, "float32": 1e-4, "float16": 0.01, "bfloat16": 0.05}
"""Share of the output that a spec may be off by and still be worth a closer look, by dtype."""

EXACT = {"float64": 1e-5, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}
"""Share by which an estimated number may be off, by dtype."""

TWICE = 2.0
"""How many times more than the nearest spec one may be off by that is as near but for rounding."""

MOST_NEAR = 12
"""Specs that the whole dump is held to."""

MOST_WIDE = 60
"""Masks that are tried where none of the likeliest ones is right."""

MOST_FITTED = 16
"""Structures whose numbers are estimated."""

ESTIMATED = ((), ("softcap",), ("sinks",), ("slopes",), ("softcap", "sinks"))
"""Which numbers are estimated beside the scale, the plainest first."""

USUAL = "1/sqrt(head_dim)"


@dataclass(frozen=True)
class Tried:
    """A structure with its numbers.

    Attributes:
        structure: the spec without them.
        numbers: them.
        share: what share of the output it is off by.
        scale_name: what the scale is, where it is a number that people write.
    """

    structure: AttentionSpec
    numbers: Numbers
    share: float
    scale_name: str = ""

    @property
    def spec(self) -> AttentionSpec:
        """The structure with its numbers; the usual scale is left to be the default."""
        spec = self.numbers.spec(self.structure)
        return spec.but(scale=None) if self.scale_name == USUAL else spec

    @property
    def features(self) -> int:
        """How much it says: what is plainer comes first."""
        spec = self.spec
        said = (spec.mask != Everything(), spec.rope, spec.alibi, spec.qk_norm, spec.softcap, spec.scale, spec.sinks)
        return sum(map(bool, said)) + len(list(spec.mask.parts()))


class Search:
    """The search for the spec of a dump in one reading of its axes and masks.

    Args:
        reading: the reading; its spec has the sizes, and what the user said.
        said: what the user said.
        budget: the time there is for it; where it is over, `SpentError` is raised and ``tried`` holds what was tried.
    """

    def __init__(self, reading: DumpReading, said: Intention, budget: Budget) -> None:
        spec = reading.spec.but(sinks=reading.spec.sinks or "sinks" in reading.handed.fields)
        self.reading, self.said, self._budget = replace(reading, spec=spec), said, budget
        self.part = self._part()
        small = self._small(spec)
        self.inputs, output = small.inputs(), small.output()
        self.rows = output.reshape(*output.shape[:2], small.spec.num_heads, -1)
        self.tried: list[Tried] = []
        self._raw: dict[Hashable, Run] = {}

    def _part(self) -> Part:
        sizes, spec = self.reading.arrangement.sizes, self.reading.spec
        large = spec.num_heads * sizes["queries"] * sizes["keys"] > SEARCHED
        # The last sequence: where an axis is taken for that of sequences, it tells more than the first.
        return Part(sizes["batch"] - 1 if sizes["batch"] > 1 else None, 0 if large and spec.kv_heads > 1 else None)

    def _small(self, spec: AttentionSpec) -> DumpReading:
        """The part that specs are tried on, under one of them."""
        return narrowed(replace(self.reading, spec=spec), self.part)

    @cached_property
    def sights(self) -> list[Sight]:
        """The masks that are possible, the likeliest first; empty where the output is no mixture of the values."""
        return sights(self.reading, self.inputs, self.rows)

    @property
    def nearest(self) -> list[Tried]:
        """The specs with usual numbers that were tried, the nearest first."""
        return sorted(self.tried, key=lambda one: one.share)

    def by_name(self, wide: bool) -> list[Tried]:
        """The specs with usual numbers that give the whole dump's output, the plainest first.

        Args:
            wide: whether the less likely masks are tried, instead of the likely ones.
        """
        likely = sum(min(sum(one.family == family for one in self.sights), FIRST) for family in
                     {one.family for one in self.sights})  # fmt: skip
        seen = self.sights[likely : likely + MOST_WIDE] if wide else self.sights[:likely]
        found: list[Tried] = []
        with np.errstate(all="ignore"):
            try:
                for one in structures(self.reading.spec, seen, self.said.stated):
                    self._budget.check()
                    found.append(self._under_usual_scales(one))
            finally:
                # The likely masks stay in front: a window that is too narrow may come near by what alibi hides.
                self.tried += sorted(found, key=lambda tried: tried.share)
            return self._right(found)

    def so_far(self) -> list[Tried]:
        """Of the specs with usual numbers that were tried those that give the whole dump's output."""
        with np.errstate(all="ignore"):
            return self._right(self.tried)

    def by_numbers(self) -> list[Tried]:
        """The nearest specs with estimated numbers that give the whole dump's output, the plainest first."""
        with np.errstate(all="ignore"):
            for what in ESTIMATED:
                found = self._right(list(self._fitted(what)))
                if found:
                    return found
        return []

    def _start(self, structure: AttentionSpec) -> tuple[Target, Run]:
        """What the structure is fitted to, and the oracle's run up to the raw scores, which no number changes."""
        small = self._small(structure)
        made_by = (structure.rope, structure.qk_norm)
        if made_by not in self._raw:
            self._raw[made_by] = run_stages(small.spec, self.inputs).before[Stage.SCALE]
        start = self._raw[made_by].but(spec=small.spec)
        may_attend = allowed(start)
        judged = small.untouched(start.but(may_attend=may_attend)) & may_attend.any(axis=-1).transpose(0, 2, 1)
        judged &= np.isfinite(self.rows).all(axis=-1)
        return Target(self.inputs, self.rows, judged), start

    def _under_usual_scales(self, structure: AttentionSpec) -> Tried:
        return min(self._by_scale(structure), key=lambda one: one.share)

    def _by_scale(self, structure: AttentionSpec) -> Iterator[Tried]:
        """The structure under each usual scale, the commonest first."""
        target, start = self._start(structure)
        for name, scale in self._scales().items():
            numbers = Numbers(scale, structure.softcap)
            yield Tried(structure, numbers, target.share(target.off(start, numbers)), name)

    def plain(self) -> list[Tried]:
        """The plain specs, tried whatever masks are possible: a fault of theirs may say why none is."""
        specs = [self.reading.spec] if "mask" in self.said.stated else [
            self.reading.spec.but(mask=mask) for mask in (Causal(), Everything())]  # fmt: skip
        with np.errstate(all="ignore"):
            return [next(self._by_scale(spec)) for spec in specs]

    def _scales(self) -> dict[str, float]:
        spec = self.reading.spec
        if "scale" in self.said.stated and spec.scale is not None:
            return {"": spec.scale}
        dim = spec.head_dim or 1
        names = {USUAL: dim**-0.5, "1": 1.0, "1/head_dim": 1 / dim, "sqrt(head_dim)": dim**0.5}
        return names | {"1/sqrt(num_heads * head_dim)": (dim * spec.num_heads) ** -0.5}

    def _fitted(self, what: Sequence[str]) -> Iterator[Tried]:
        """The nearest structures with these numbers and the scale estimated."""
        fitting = (one for one in self.tried if "slopes" not in what or not (one.structure.alibi or one.structure.rope))
        for tried in islice(fitting, MOST_FITTED):
            self._budget.check()
            target, start = self._start(tried.structure)
            begins = start_numbers(tried.numbers.scale, what, start.scores, start.spec.num_heads)
            numbers, _ = min((fitted(target, start, begin) for begin in begins), key=lambda end: end[1])
            numbers = _snapped(numbers, self._error)
            unnamed = Tried(tried.structure, numbers, target.share(target.off(start, numbers)))
            name = self._scale_name(numbers.scale)
            numbers = replace(numbers, scale=self._scale_names.get(name, numbers.scale))
            named = Tried(tried.structure, numbers, target.share(target.off(start, numbers)), name)
            yield named if named.share <= max(TWICE * unnamed.share, 1e-6) else unnamed

    @property
    def _error(self) -> float:
        return EXACT[self.reading.dtype]

    @cached_property
    def _scale_names(self) -> dict[str, float]:
        """Names of a scale, but for those of lengths: there is one length here."""
        names = scale_names(self.reading.spec, self.inputs)
        return {name: number for name, number in names.items() if "_len" not in name and "batch" not in name}

    def _scale_name(self, value: float) -> str:
        near = (name for name, number in self._scale_names.items() if abs(value - number) <= self._error * abs(number))
        return next(near, "")

    def _right(self, tried: Sequence[Tried]) -> list[Tried]:
        """Those that give the whole dump, the plainest first."""
        least = min((one.share for one in tried), default=0.0)
        if least > NEAR[self.reading.dtype]:
            return []
        # What is off by several times more than another could only pass by the width of the tolerance.
        near = sorted((one for one in tried if one.share <= max(TWICE * least, 1e-6)), key=lambda one: one.share)
        right = [one for one in near[:MOST_NEAR] if self._gives_all(one)]
        return sorted(right, key=lambda one: (one.features, one.share))

    def _gives_all(self, tried: Tried) -> bool:
        in_part = self.part.kv_head is not None and (
            tried.numbers.sinks is not None or tried.numbers.slopes is not None
        )
        # Numbers of each head that were read off some heads say nothing of the others.
        return not in_part and self.held(tried).right

    def held(self, tried: Tried, stated: frozenset[str] = frozenset()) -> Held:
        """The whole dump held to a spec, of which these fields are meant beside those that the user said."""
        spec, way, said = tried.spec, self.reading.handed, self.said.stated | stated
        if tried.numbers.sinks is not None:
            way = replace(way, fields={**way.fields, "sinks": tried.numbers.sinks})
        return held_to(
            replace(self.reading, spec=spec, handed=way),
            replace(self.said, spec=spec, stated=said),
        )


def _snapped(numbers: Numbers, error: float) -> Numbers:
    """The numbers with as few digits as they may have."""
    cap = None if numbers.softcap is None else _short(numbers.softcap, 10 * error)
    slopes = None if numbers.slopes is None else np.array([_short(slope, 10 * error) for slope in numbers.slopes])
    return replace(numbers, scale=_short(numbers.scale, error), softcap=cap, slopes=slopes)


def _short(value: float, error: float) -> float:
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, 4))
    return next((short for short in rounded if abs(short - value) <= error * abs(value)), value)
