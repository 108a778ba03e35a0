"""What a class is to be built with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qkv.adapters.construction.sizes import Sizes
from qkv.adapters.messages import Config


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

    @property
    def as_given(self) -> str:
        """The arguments as a user would give them: ``--init '{"d_model": 48, "n_heads": 6}'``; empty for none."""
        told = ", ".join(
            f'"{name}": {"{...}" if isinstance(value, Config) else json.dumps(value, default=str)}'
            for name, value in self.kwargs.items()
        )
        return f"--init '{{{told}}}'" if told else ""
