"""What a class is to be built with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qkv.adapters.construction.sizes import Sizes


@dataclass(frozen=True)
class Construction:
    """The arguments to build a class with.

    Attributes:
        kwargs: keyword arguments; a :class:`Config` stands for a config object.
        assumptions: what was chosen, in sentences for the report.
        sizes: the sizes asked for. The candidate's own arrays have the last word: a class may read them otherwise.
        implied: what these arguments settle and the spec leaves open, by role: ``{"window": 5, "rotary_dims": 4}``.
        roles: what each argument is, where its name says it.
        given: the arguments that the user gave.
    """

    kwargs: Mapping[str, Any]
    assumptions: Sequence[str]
    sizes: Sizes
    implied: Mapping[str, Any] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
