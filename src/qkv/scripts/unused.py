"""What was made rightly and is not used: a variable from before stands in its place."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known, close
from qkv.scripts.mixes import Mix
from qkv.scripts.spots import Spot, Written, spot_at

_MADE_GOOD = {
    "mask-after-softmax": "renormalise",
    "rows-not-one": "renormalise",
    "scale-missing": "scale",
    "causal-missing": "mask",
    "mask-not-applied": "mask",
}
"""The step that is missing on the way to a mix, by the fault that it is."""

_WORDS = {
    "renormalise": "which holds them divided by the sums of their rows",
    "scale": "which holds them scaled",
    "mask": "which holds them masked",
}


@dataclass(frozen=True)
class _Unused:
    """A variable that nothing is made of.

    Attributes:
        name: the variable.
        used: the step of the mix that was used in its place.
        use: where that was.
        moves: the steps that led to it from there, none of them wrong.
    """

    name: str
    used: Known
    use: Spot
    moves: Set[str]


def blamed_on_use(mix: Mix, finding: Finding, live: Set[int]) -> Finding:
    """The finding that a step is missing, on the use of what lacks it where that step was made and is not used.

    Args:
        mix: the mix that it spoils.
        finding: what is said of it.
        live: the arrays that some context vector was made of.
    """
    move = _MADE_GOOD.get(finding.fault, "")
    for unused in (*_shares(mix, live), *_further(mix, live)) if move else ():
        used = unused.use.name(unused.used, "")
        code, times = with_code(unused.use.code, used, unused.name) if used else ("", 0)
        if times and move in unused.moves:
            said = f"{used} is used here, and {unused.name}, {_WORDS[move]}, is not used at all"
            fault = "rows-not-one" if move == "renormalise" else finding.fault
            return Finding.of(fault, said, Written(unused.use, code), mix)
    return finding


def _shares(mix: Mix, live: Set[int]) -> Iterator[_Unused]:
    """The variables that hold the weights of a mix divided by the sums of their rows."""
    reading, use = mix.reading, spot_at(mix.reading, mix.operation)
    held, name = reading.held_at(use.operation, use.function), use.variable(mix.weights)
    if not name:
        return
    rows = reading.array(held[name])
    with np.errstate(all="ignore"):
        shares = rows / rows.sum(-2 if mix.context.over == "query" and rows.ndim > 1 else -1, keepdims=True)
    for other, value in held.items():
        if value not in live and close(reading.array(value), shares):
            yield _Unused(other, mix.weights, use, {"renormalise"})


def _further(mix: Mix, live: Set[int]) -> list[_Unused]:
    """The variables that go on from the scores of a mix and end there, those that went furthest first."""
    reading, found = mix.reading, list[_Unused]()
    for step in mix.path:
        use = _widest(mix, step)
        for name, value in reading.held_at(use.operation, use.function).items():
            sight = reading.sights.get(value)
            if value in live or sight is None or sight.known in mix.path or step not in sight.known.chain():
                continue
            between = list(_between(sight.known, step))
            if sight.known.kind == step.kind and not any(one.slip for one in between):
                found.append(_Unused(name, step, use, {one.move for one in between}))
    return sorted(found, key=lambda one: -len(one.moves))


def _between(known: Known, step: Known) -> Iterator[Known]:
    """The steps that lead from one to another."""
    while known is not step and known.sources:
        yield known
        known = known.sources[0]


def _widest(mix: Mix, step: Known) -> Spot:
    """The expression that uses a step, all of it where it does so twice: the maximum that is taken off is one use."""
    reading, last = mix.reading, mix.uses(step)[-1]
    name = spot_at(reading, last).name(step, "")
    made = mix.operation if step is mix.weights else mix.made(mix.path[mix.path.index(step) - 1])
    around = [spot_at(reading, number) for number in range(last, made + 1)] if name else []
    line = reading.place(last)
    on_line = [spot for spot in around if spot.place and line and spot.place.line == line.line]
    by_uses = [(with_code(spot.code, name, name)[1], -len(spot.code), spot) for spot in on_line]
    return max(by_uses, key=lambda one: one[:2])[2] if by_uses else spot_at(reading, last)
