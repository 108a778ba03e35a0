"""The channels that a candidate's projections take, read before it can be called."""

from __future__ import annotations

from qkv.adapters.messages import Facts
from qkv.adapters.projections.found import Found
from qkv.adapters.projections.scope import Scope


def channels_in(facts: Facts) -> dict[str, int]:
    """Channels that go into each projection whose name is known and whose class leaves no choice of axes, by role.

    The roles are ``q``, ``k``, ``v`` and ``out``; a fused array counts for each of its letters.
    """
    widths: dict[str, int] = {}
    found = Found.among({name: one for name, one in facts.arrays.items() if one.learned})
    for unit in sorted(found.units, key=lambda unit: unit.role == "loose"):
        role = "out" if unit.role == "loose" else unit.role
        size = Scope((), {role: (unit,)}, {}).size(role)
        for letter in [role] if role == "out" else role:
            if size:
                widths.setdefault(letter, size[1])
    return widths
