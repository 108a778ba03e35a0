"""Tables: whether the cosines and sines of rope have changed places on their way to what they turn."""

from __future__ import annotations

from qkv.location.frontier import Frontier
from qkv.location.misplaced import first_of
from qkv.recognition import Sight

TURNED_BY = ("cos of rope", "sin of rope")
"""The tables that rope turns by."""

A_QUARTER_ON = "a quarter turn on"
"""How the name of an array ends whose halves have changed places, one with another sign: it belongs to the sines."""


def exchanged(frontier: Frontier) -> tuple[int, int] | None:
    """Where the sines are made that are used for the cosines, and what uses them, if these are used for the sines too.

    None where it isn't so. By one of both alone nothing is said: another sign may give the same.
    """
    found: dict[str, tuple[int, int]] = {}
    for number in sorted(frontier.slice):
        given = frontier.sighted(number)
        table = next((one for one in given if one[1].name in TURNED_BY), None)
        meets = [sight for _, sight in given if sight.of in ("query", "key")]
        if frontier.operation(number).name == "mul" and table is not None and len(meets) == 1:
            maker = first_of(frontier, *table)
            if maker is not None and _belongs_to(meets[0]) not in ("", table[1].name):
                found.setdefault(table[1].name, (maker, number))
    return found.get("sin of rope") if {*TURNED_BY} <= {*found} else None


def _belongs_to(sight: Sight) -> str:
    """The table that an array is to be multiplied by; empty where it is multiplied by both."""
    if sight.name.endswith(A_QUARTER_ON):
        return "sin of rope"
    return "cos of rope" if sight.name in ("query", "key") or sight.name.endswith("channels to turn") else ""
