"""A mix: one product of weights and values in a script, with all that led to it, whichever way round it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qkv.scripts.known import Array, Known
from qkv.scripts.possible import PRODUCTS
from qkv.scripts.reading import Reading, refs

_BENT = frozenset({"tanh", "sigmoid", "relu", "leaky_relu", "gelu", "elu", "softplus", "silu"})
"""Functions through which additive attention makes its scores."""


@dataclass(frozen=True, eq=False)
class Mix:
    """The weights and values that a script makes context vectors of.

    Attributes:
        reading: the script.
        context: what was made.
        last: whether it is the last of several that made the same numbers that is meant, and not the first.
    """

    reading: Reading
    context: Known
    last: bool = False

    @property
    def weights(self) -> Known:
        """What the values are multiplied by."""
        return self.context.sources[0]

    @property
    def value(self) -> Known:
        """What is mixed."""
        return self.context.sources[1]

    @cached_property
    def operation(self) -> int:
        """The operation that mixes; where one token's context vector was made by itself too, that which makes all."""
        reading, made = self.reading, dict[int, int]()
        for value in reading.values_of(self.context):
            number = reading.made_by.get(value, -1)
            if number >= 0 and reading.operations[number].name in PRODUCTS:
                made.setdefault(number, reading.array(value).size)
        return max(sorted(made, reverse=self.last), key=lambda number: made[number], default=self.context.made)

    @cached_property
    def path(self) -> list[Known]:
        """The weights and the scores that they were made of, the latest first."""
        path = [self.weights]
        while path[-1].sources and path[-1].sources[0].kind in ("weights", "scores"):
            path.append(path[-1].sources[0])
        return path

    @property
    def product(self) -> Known | None:
        """The scores as they were first; None where the weights were not made of scores."""
        return self.path[-1] if self.path[-1].move == "product" else None

    @property
    def turned(self) -> bool:
        """Whether the rows of the weights belong to the keys: they sum to one along them, and are summed over."""
        along = self.context.over if self.normalised is None else self.normalised.over
        return self.context.over == along == "query"

    @property
    def query(self) -> Known | None:
        """The tokens whose context is made."""
        return None if self.product is None else self.product.sources[1 if self.turned else 0]

    @property
    def key(self) -> Known | None:
        """The tokens that they look at."""
        return None if self.product is None else self.product.sources[0 if self.turned else 1]

    @property
    def sides(self) -> tuple[Known | None, Known | None, Known]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def additive(self) -> bool:
        """Whether the scores are made of what a bent line makes of query and key together, and not of both."""
        values = [value for side in (self.query, self.key) if side for value in self.reading.values_of(side)]
        made = (self.reading.made_by.get(value, -1) for value in values)
        return any(number >= 0 and self.reading.operations[number].name in _BENT for number in made)

    @property
    def normalised(self) -> Known | None:
        """The step after which the weights sum to one."""
        return next((one for one in self.path if one.move in ("softmax", "renormalise")), None)

    @property
    def softmax(self) -> Known | None:
        """The step that makes weights of scores."""
        made = (one for one in self.path if one.kind == "weights" and one.sources)
        return next((one for one in made if one.sources[0].kind == "scores"), None)

    @cached_property
    def visible(self) -> Array | None:
        """Where the masks let through, ``(..., query, key)``; None without a mask."""
        masks = [one.visible for one in self.path if one.visible is not None]
        if not masks:
            return None
        both: Array = np.logical_and.reduce(masks)
        return both.swapaxes(-1, -2) if self.turned else both

    @cached_property
    def token(self) -> int | None:
        """The one token whose context vector is made; None where all are."""
        tokens = {self.reading.sights[value].token for value in self.reading.values_of(self.context)}
        return tokens.pop() if len(tokens) == 1 else None

    @property
    def projected(self) -> bool:
        """Whether query or key comes out of a projection, or is given as query and key."""
        sides = [one for one in (self.query, self.key) if one is not None]
        by_name = len({one.role for one in sides} & {"query", "key"}) == 2
        return by_name or any(step.move == "project" for side in sides for step in side.chain())

    @property
    def factor(self) -> float:
        """What the scores were multiplied by in all."""
        of_scores = [one.number for one in self.path if one.kind == "scores" and one.move == "scale"]
        return float(np.prod(of_scores)) * self.factor_of_sides

    @property
    def factor_of_sides(self) -> float:
        """What query and key were multiplied by before they made the scores."""
        steps = [step for side in (self.query, self.key) if side is not None for step in _own(side)]
        return float(np.prod([step.number for step in steps if step.move == "scale"]))

    @property
    def right_factor(self) -> float:
        """What the scores should be multiplied by in all: 1/sqrt of their length, or nothing where no one projects."""
        scale = self.head_dim**-0.5
        return scale if self.projected or np.isclose(self.factor, scale, rtol=1e-3) else 1.0

    @property
    def head_dim(self) -> int:
        """Numbers that one query and one key are multiplied in."""
        return 1 if self.query is None else self.query.array.shape[-1]

    @property
    def biased(self) -> bool:
        """Whether something was added to the scores."""
        return any(one.move == "bias" for one in self.path)

    @property
    def dropped(self) -> bool:
        """Whether some weights were dropped by chance."""
        return any(one.move == "drop" and one.number > 0 for one in self.path)

    @property
    def weights_first(self) -> bool:
        """Whether the weights are the first factor: ``weights @ values``, and not ``values.T @ weights``."""
        given = [self.reading.sights.get(value) for value in refs(self.reading.operations[self.operation].arguments)]
        return not given or given[0] is None or given[0].known is self.weights

    @property
    def is_torch(self) -> bool:
        """Whether the script computes in torch."""
        return "torch" in self.reading.run.frameworks

    @cached_property
    def _above(self) -> list[int]:
        """The arrays that led to the context vectors."""
        return self.reading.above(self.operation)

    def made(self, step: Known) -> int:
        """The operation that made a step of this mix; others may have made the same before, for one token say."""
        if step is self.context:
            return self.operation
        reading = self.reading
        steps = [value for value in self._above if value in reading.sights and reading.sights[value].known is step]
        made = min((reading.made_by[value] for value in steps if value in reading.made_by), default=step.made)
        place = self.path.index(step) if step in self.path else 0
        # Numbers that are scaled before they are put together make no array of their own.
        return self.made(self.path[place - 1]) if made < 0 and place else made

    def uses(self, step: Known) -> list[int]:
        """The operations that take a step of this mix on to the next one, in their order."""
        place, reading = self.path.index(step), self.reading
        if not place:
            return [self.operation]
        made = self.made(self.path[place - 1])
        above = {reading.made_by[value] for value in reading.above(made) if value in reading.made_by}
        return sorted(number for number in {*above, made} if self._takes(number, step)) or [made]

    def _takes(self, number: int, known: Known) -> bool:
        """Whether an operation makes something else of a known array."""
        operation, sights = self.reading.operations[number], self.reading.sights
        given = [sights[value].known for value in refs(operation.arguments) if value in sights]
        made = [sights[value].known for value in operation.results if value in sights]
        return known in given and known not in made

    def made_for(self, product: Known, side: Known) -> int:
        """The operation that made one side of a product, the last one before it where several made the same."""
        reading = self.reading
        same = [value for value in reading.above(product.made) if value in reading.sights and value in reading.made_by]
        return max((reading.made_by[value] for value in same if reading.sights[value].known is side), default=side.made)

    def name(self, known: Known, otherwise: str) -> str:
        """The variable that holds a known array, else the expression that makes it, else what else to call it."""
        return self.reading.name_of(known) or self.reading.expression_of(known) or otherwise

    def names(self) -> list[str]:
        """Every variable that holds a step on the way."""
        return [name for one in (self.context, *self.path) if (name := self.reading.name_of(one))]


def _own(side: Known) -> Iterator[Known]:
    """The steps that query or key went through after its projection."""
    while side.move in ("scale", "split", "bias", "drop") and side.sources:
        yield side
        side = side.sources[0]


def mixes_of(reading: Reading) -> list[Mix]:
    """Every mix of a script, in its order."""
    knowns = dict.fromkeys(sight.known for sight in reading.sights.values())
    return [Mix(reading, known) for known in knowns if known.move == "mix"]
