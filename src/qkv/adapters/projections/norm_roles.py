"""Whose normalisation a module is: by its name where that is a known one, else by what it is and where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qkv.adapters.messages import Facts
from qkv.adapters.names import norm_role

_SIDES: Mapping[str, str] = {
    side: rf"(^|_)({letter}|{words})(_|\d|$|n|l|rms)|(n|norm|ln|rms)({letter}|{words})$"
    for side, letter, words in (("q", "q", "query|queries"), ("k", "k", "key|keys"))
}
"""What in a name speaks of query or key: ``qn``, ``attn_q_rms``, ``normalise_key``, ``lnq``."""


def norm_roles(facts: Facts) -> dict[str, str]:
    """``q``, ``k``, or ``qk`` for one that serves both, by the dotted name of each module that normalises these.

    Names that are usual say it. Of other names, those of two norms in one place do, one of which speaks of the query
    and one of the key; or the two are as wide as one head, which nothing else in an attention is, and the query's
    stands first. One alone of that width serves both.
    """
    roles = {name: role for name in facts.submodules if (role := norm_role(name.rpartition(".")[2]))}
    beside: dict[str, list[str]] = {}
    for name, owner in facts.submodules.items():
        if is_norm(name, owner, facts):
            beside.setdefault(name.rpartition(".")[0], []).append(name)
    for around, names in beside.items():
        if not any(name.rpartition(".")[0] == around for name in roles):
            roles |= _by_name(names) or _by_width(around, names, facts)
    return roles


def is_norm(name: str, owner: str, facts: Facts) -> bool:
    """Whether a module normalises, by its class's name, or as its only learned array is a row of numbers."""
    if re.search(r"norm|rms", owner, re.IGNORECASE):
        return True
    own = [one for array, one in facts.arrays.items() if array.startswith(f"{name}.") and one.learned]
    return owner not in _OTHERS and bool(own) and all(len(one.shape) == 1 and one.shape[0] > 1 for one in own)


_OTHERS = ("PReLU",)
"""Classes of torch with a row of numbers that normalise nothing."""


def _by_name(names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        sides = [side for side, said in _SIDES.items() if re.search(said, name.rpartition(".")[2].lower())]
        if len(sides) == 1:
            found.setdefault(sides[0], name)
    return {name: side for side, name in found.items()} if len(found) == 2 else {}


def _by_width(around: str, names: list[str], facts: Facts) -> dict[str, str]:
    inside = {name: tuple(one.shape) for name, one in facts.arrays.items() if name.startswith(around) and one.learned}
    wide = {size for shape in inside.values() if len(shape) > 1 for size in shape}
    widths = [{shape for array, shape in inside.items() if array.startswith(f"{name}.")} for name in names]
    if len(names) > 2 or widths[0] != widths[-1] or len(widths[0]) != 1:
        return {}
    (width, *more) = next(iter(widths[0]))
    a_head = not more and width not in wide and any(size % width == 0 for size in wide)
    return dict(zip(names, ("q", "k") if len(names) == 2 else ("qk",), strict=True)) if a_head else {}
