"""Inference: what a candidate is meant to compute, from what it says of itself; and what it leaves open.

What it *says* counts (names, arguments, attributes), never what it computes: a causal class without its mask must still
be held to being causal. Where it says nothing, every usual meaning is an intention of equal standing.
"""

from qkv.inference.evidence import window_named as window_named
from qkv.inference.intention import (
    OPEN_IN_A_FILE as OPEN_IN_A_FILE,
    Intention as Intention,
    intention_from as intention_from,
)
from qkv.inference.rules import GROUPED as GROUPED, intentions as intentions
