"""What has been read off a box so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from qkv.identification.biases import Biases
from qkv.identification.box import Box, Floats
from qkv.identification.constants import Reading
from qkv.identification.mask_rules import Rule
from qkv.identification.precision import smallest_normal
from qkv.identification.rotation import Frequencies, Turning
from qkv.identification.routing import Routing
from qkv.identification.visibility import View
from qkv.identification.weights import WeightReader
from qkv.masks import PerHead
from qkv.positions import Rope
from qkv.spec.attention_spec import QueryOffset
from qkv.vocabulary import EmptyRow

LONG = 96
"""Tokens of the longest input that biases are read at."""


SPARE = 64.0
"""Times that a weight becomes smaller, at most, while scores are read: they move by 4 or less."""


@dataclass
class Found:
    """Everything that is known of a box.

    Attributes:
        box: the box.
        reader: reads its weights.
        routing: where heads and channels lead.
        precision: the coarsest precision that shows in its weights.
        view: which keys get weight, by lengths.
        rules: each head's mask; None for a head whose sets no rule makes.
        offset: position of the first query.
        offset_shown: whether lengths that differ have shown it.
        biases: what is added to each head's scores.
        normalised: ``head`` or ``width`` where query and key are normalised.
        softcap: the cap and its error.
        turnings: scale and rotation of each head; None where its rows show one key only.
        scales: the scale read at several sizes.
        frequencies: how fast the pairs of channels turn.
        rope: the rule of the rotation.
        rope_error: relative error of its base.
        sinks: each head's sink and its error.
        dropout: the probability with which weights are dropped; 0 for never.
        empty_row: what a row without keys gives; None where none was seen.
        odd: reasons why this is no softmax attention that a spec can say, in sentences.
        undecided: what could not be decided, in sentences.
        unasked: what was not asked any more when the examination was interrupted.
    """

    box: Box
    reader: WeightReader
    routing: Routing
    precision: str = "float64"
    view: View = field(default_factory=View)
    rules: list[Rule | None] = field(default_factory=list)
    offset: QueryOffset = "bottom_right"
    offset_shown: bool = False
    biases: list[Biases] = field(default_factory=list)
    normalised: Literal["head", "width"] | None = None
    softcap: tuple[float, float] | None = None
    turnings: list[Turning | None] = field(default_factory=list)
    scales: list[Reading] = field(default_factory=list)
    frequencies: Frequencies | None = None
    rope: Rope | None = None
    rope_error: float = 0.0
    sinks: tuple[Floats, Floats] | None = None
    dropout: float = 0.0
    empty_row: EmptyRow | None = None
    odd: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        heads = self.box.sizes.num_heads
        self.rules = [None] * heads
        self.biases = [Biases("none")] * heads
        self.turnings = [None] * heads

    @property
    def one_rule(self) -> Rule | None:
        """The rule of all heads together; None where some have none, or theirs don't go together."""
        rules = [rule for rule in self.rules if rule is not None]
        if not rules or len(rules) < len(self.rules):
            return None
        first, *others = rules
        if all(rule == first for rule in others):
            return first
        offsets = tuple(offset for offset in first.offsets if all(offset in rule.offsets for rule in others))
        if not offsets or any(rule.documents != first.documents for rule in others):
            return None
        return Rule(PerHead(tuple(rule.mask for rule in rules)), offsets, first.documents)

    @property
    def heads(self) -> range:
        """Every query head."""
        return range(self.box.sizes.num_heads)

    def offset_for(self, query_len: int, key_len: int) -> int:
        """Position of the first query."""
        if self.offset == "bottom_right":
            return key_len - query_len
        return 0 if self.offset == "top_left" else int(self.offset)

    def allowed(self, lengths: tuple[int, int]) -> np.ndarray:
        """Which keys may be attended to, ``(head, query, key)``, as it was seen at these lengths."""
        return self.view.sights[lengths].allowed

    @property
    def exact_square(self) -> tuple[int, int]:
        """Equal lengths that are long, and still short enough for small weights to be exact."""
        squares = self.view.squares
        return max((lengths for lengths in squares if lengths[0] <= LONG), default=squares[0])

    def exact(self, lengths: tuple[int, int]) -> np.ndarray:
        """Which weights are large enough to have all their digits, ``(head, query, key)``."""
        seen = self.view.sights[lengths]
        exact: np.ndarray = seen.allowed & (seen.even > smallest_normal(self.precision))
        return exact

    def telling(self, lengths: tuple[int, int]) -> np.ndarray:
        """Which keys scores can be read at, ``(head, query, key)``: their weights stay exact as scores move."""
        seen = self.view.sights[lengths]
        # Nothing but NaN for zeros says nothing of other queries and keys.
        telling: np.ndarray = seen.allowed & ~(seen.even <= SPARE * smallest_normal(self.precision))
        return telling
