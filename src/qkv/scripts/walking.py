"""Walking: through a script's operations in the order they ran, saying of every array what it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from qkv.adapters.messages import ScriptRun
from qkv.adapters.recording import Operation
from qkv.scripts import naming
from qkv.scripts.fused import FUSED
from qkv.scripts.known import CLOSE, Array, Kind, Known, Sight, close, sight_of, sights_of
from qkv.scripts.possible import PRODUCTS, VIEWS, in_own_order, possible
from qkv.scripts.reading import Reading, names_of, refs

_TOLD_APART = ("kind", "move", "slip", "over", "role", "sources")
"""What two known arrays of the same numbers may differ in."""

_REDUCING = frozenset({"max", "amax", "min", "amin", "mean", "norm", "argmax"})
"""Operations that leave one number of many: these are part of no stage, though they may equal some of its numbers."""

_COMPARING = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "logical_and", "logical_or", "less_equal"})
"""Operations that say of pairs of places which of them may see each other."""

MOST_READ = 4000
"""Operations that are read; a longer script repeats itself."""


def read(run: ScriptRun) -> Reading:
    """What every array of a script is."""
    reading = Reading(run, names=names_of(run))
    reader = _Reader(reading)
    for number, operation in enumerate(run.recording.operations[:MOST_READ]):
        reader.step(number, operation)
    return reading


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.sights = reading.sights
        self.roots: dict[int, list[int]] = {}
        self.knowns: list[Known] = []
        self.taken_out: dict[Known, int] = {}
        """The token of each known array whose row a loop has taken out last."""

    def step(self, number: int, operation: Operation) -> None:
        """Nothing; reads one operation."""
        given = list(dict.fromkeys(refs([operation.arguments, operation.keywords])))
        for value in given:
            if value not in self.reading.made_by and value not in self.sights:
                self._leaf(value)
        for value in operation.results:
            self.reading.parents[value] = given
            self.reading.made_by[value] = number
            with np.errstate(all="ignore"):
                sight = self._sight(number, operation, value, given) or self._ordered(number, operation, value, given)
            if sight is not None:
                self._take(value, sight)
            else:
                self.roots[value] = [] if operation.name in _REDUCING else self._roots(given)

    def _take(self, value: int, sight: Sight) -> None:
        self.sights[value] = sight
        if sight.known.kind != "mask":
            self.roots[value] = [value]
        if sight.known not in self.knowns:
            self.knowns.append(sight.known)

    def _roots(self, values: Iterable[int]) -> list[int]:
        """The nearest arrays above that something is known of."""
        return list(dict.fromkeys(root for value in values for root in self.roots.get(value, ())))

    def _leaf(self, value: int) -> None:
        """Nothing; an array that nothing noted has made: a row of tokens, as a loop takes it out."""
        array = self.reading.array(value)
        if array.ndim == 0:
            self.roots[value] = self._row_with(value, float(array))
        for known in reversed(self.knowns):
            next_one = self.taken_out.get(known, -1) + 1
            sight = sight_of(array, known, [next_one]) if known.kind != "mask" else None
            if sight is not None:
                self.taken_out[known] = -1 if sight.token is None else sight.token
                self._take(value, sight)
                return

    def _row_with(self, value: int, number: float) -> list[int]:
        """The latest row of weights or scores that has this number in it, as a loop takes them out one by one."""
        for other in range(value - 1, -1, -1):
            sight = self.sights.get(other)
            if sight is None or sight.known.kind not in ("weights", "scores"):
                continue
            if self.reading.array(other).ndim == 1 and number in self.reading.array(other):
                return [other]
        return []

    # --- one operation ------------------------------------------------------------------------------------------------

    def _sight(self, number: int, operation: Operation, value: int, given: Sequence[int]) -> Sight | None:
        array, name = self.reading.array(value), operation.name
        if name in PRODUCTS or name in FUSED or self._is_product_of_entries(operation, value, given):
            self._adopt_operands(operation, given)
        if array.size < 2 or name in _REDUCING:
            return None
        mask = self._mask(operation, value, given)
        if mask is not None:
            return mask
        return self._by_moves(number, operation, value, self._roots(given))

    def _by_moves(self, number: int, operation: Operation, value: int, roots: Sequence[int]) -> Sight | None:
        """What a move from what is known above it makes, or the same that is known there."""
        array, name = self.reading.array(value), operation.name
        same = (self.sights[root].known for root in roots)
        likely = [*self._chosen(operation), *(at for root in roots if (at := self.sights[root].token) is not None)]
        new = (replace(known, made=number) for known in possible(self.reading, operation, value, roots))
        # A product makes something new, even where its numbers are those of a factor.
        for sight in sights_of(array, chain(new, same) if name in PRODUCTS else chain(same, new), likely):
            if not any("*" in axis and " part" in axis for axis in sight.axes):
                return replace(sight, known=self._same(sight.known))  # no axis that takes up parts of others
        return None

    def _chosen(self, operation: Operation) -> list[int]:
        """The places that an index names, counted from the front and from the end."""
        if operation.name != "getitem" or len(operation.arguments) < 2:
            return []
        index = operation.arguments[1]
        named = [one for one in (index if isinstance(index, list) else [index]) if type(one) is int]
        sizes = [size for value in refs(operation.arguments[0]) for size in self.reading.array(value).shape]
        return [place if place >= 0 else size + place for place in named for size in sizes]

    def _ordered(self, number: int, operation: Operation, value: int, given: Sequence[int]) -> Sight | None:
        """Rows of tokens in an order of their own: what is made of them counts them there."""
        array = self.reading.array(value)
        roots = {self.sights[root].known for root in self._roots(given)}
        if array.ndim != 2 or len(roots) != 1 or not in_own_order(self.reading, operation, value):
            return None
        known = roots.pop()
        rows = known.array.reshape(-1, known.array.shape[-1])
        if known.kind != "tokens" or array.shape[-1] != rows.shape[-1]:
            return None
        if not all((np.abs(rows - row).max(-1) <= CLOSE * np.abs(rows).max()).any() for row in array):
            return None
        role = naming.role_of(self.reading.name(value)) or known.role
        ordered = Known("tokens", ("token", known.axes[-1]), array, "order", (known,), role=role, made=number)
        return sight_of(array, ordered)

    def _is_product_of_entries(self, operation: Operation, value: int, given: Sequence[int]) -> bool:
        """Whether ``*`` makes scores: by the name, or since every row of one array meets every row of another."""
        if operation.name != "mul" or len(given) != 2:
            return False
        named = bool({"score", "scores"} & set(naming.words(self.reading.target(operation, value))))
        shapes = [self.reading.array(one).shape for one in given]
        return named or all(len(shape) >= 3 and 1 in shape[:-1] for shape in shapes)

    def _same(self, known: Known) -> Known:
        """A known array that was made in this way before, by a loop or for another token, in its place."""
        for other in self.knowns:
            same = all(getattr(other, name) == getattr(known, name) for name in _TOLD_APART)
            if same and close(other.array, known.array):
                return other
        return known

    # --- what is given ------------------------------------------------------------------------------------------------

    def _adopt_operands(self, operation: Operation, given: Sequence[int]) -> None:
        """Nothing; says of operands that nothing is known of what they are, since a product is made of them."""
        operands = [one for one in given if self.reading.array(one).ndim >= 1]
        for side, operand in enumerate(operands[: 3 if operation.name in FUSED else 2]):
            if operand not in self.sights and operand not in self.reading.made_by:
                self._leaf(operand)
            if operand in self.sights:
                continue
            origin = self._origin(operand)
            if origin in self.sights:
                self._resight(origin, operand)
            if operand in self.sights:
                continue
            others = [one for one in operands if one != operand]
            kind = self._kind(operation, operand, origin, side, others[0] if others else None)
            self._adopt(origin, kind)
            if operand not in self.sights:
                self._resight(origin, operand)
            if operand not in self.sights:
                self._adopt(operand, kind)

    def _origin(self, value: int) -> int:
        """The array that this one is a view of."""
        while value in self.reading.made_by and value not in self.sights:
            operation = self.reading.operations[self.reading.made_by[value]]
            parents = self.reading.parents[value]
            if operation.name not in VIEWS or len(parents) != 1 or self.reading.array(parents[0]).ndim < 1:
                break
            if in_own_order(self.reading, operation, value):
                break
            above, below = self.reading.array(parents[0]), self.reading.array(value)
            if above.size < below.size or (operation.name != "getitem" and above.ndim > below.ndim):
                break
            value = parents[0]
        of_numbers = not self.reading.parents.get(value)
        return self._whole(value) if of_numbers and value not in self.sights else value

    def _whole(self, value: int) -> int:
        """The array that a loop has taken this row out of, or that was put together of it; the row itself for none."""
        array = self.reading.array(value)
        if array.ndim != 1:
            return value
        for other in (*(one for one, given in self.reading.parents.items() if value in given), *range(value)):
            rows = self.reading.array(other)
            if (
                rows.ndim == 2
                and rows.shape[1] == len(array)
                and other not in self.sights
                and (rows == array).all(1).any()
            ):
                return other
        return value

    def _kind(self, operation: Operation, operand: int, origin: int, side: int, other: int | None) -> Kind:
        name = self.reading.name(origin)
        array = self.reading.array(origin)
        above = {self.sights[root].known.kind for root in self._roots(self.reading.parents.get(origin, ()))}
        if above & {"scores", "weights"}:
            return "weights"
        if operation.name == "linear" and side == 1:
            return "matrix"
        if naming.is_matrix(name):
            return "matrix"
        beside = None if other is None else self.sights.get(other)
        flat = array.ndim == 2 or (array.ndim == 3 and operation.name == "einsum")
        projects = beside is not None and beside.known.kind == "tokens" and operand == origin and flat and not above
        if projects and beside is not None and side and _meets_channels(operation, array, beside):
            return "matrix"
        square = array.ndim == 1 or array.shape[-1] == array.shape[-2]
        if naming.is_weights(name) and square and not naming.is_tokens(name):
            return "weights"
        if naming.is_tokens(name) or above or side == 0:
            return "tokens"
        return "matrix" if projects else "tokens"

    def _adopt(self, value: int, kind: Kind) -> None:
        """Nothing; an array becomes known as what is given, or as what was made in a way that isn't known."""
        array = self.reading.array(value).astype(float)
        sources = tuple(
            dict.fromkeys(self.sights[root].known for root in self._roots(self.reading.parents.get(value, ())))
        )
        last = {"tokens": ("token", "channel"), "matrix": ("in", "out"), "weights": ("query", "key")}[kind]
        lead = {0: (), 1: ("batch",), 2: ("batch", "head")}
        if array.ndim == 1:
            array = array[None]
        if array.ndim - 2 not in lead:
            return
        axes = (*lead[array.ndim - 2], *last)
        if kind == "tokens" and array.ndim == 4:
            axes = ("batch", "head", "token", "dim")
        role = naming.role_of(self._name_of_whole(value))
        known = Known(kind, axes, array, "derived" if sources else "given", sources, role=role,
                      made=self.reading.made_by.get(value, -1))  # fmt: skip
        sight = sight_of(self.reading.array(value), known)
        if sight is not None:
            self._take(value, sight)

    def _name_of_whole(self, value: int) -> str:
        """The variable that holds an array, or that which it is a view of."""
        while not self.reading.name(value) and value in self.reading.made_by:
            parents = self.reading.parents[value]
            if self.reading.operations[self.reading.made_by[value]].name not in VIEWS or not parents:
                break
            value = parents[0]
        return self.reading.name(value)

    def _resight(self, origin: int, operand: int) -> None:
        """Nothing; the views between what has become known and where it is used are known too."""
        seen, value = list[int](), operand
        while value != origin:
            seen.append(value)
            value = (self.reading.parents.get(value) or [origin])[0]
        root = origin
        for one in reversed(seen if origin in self.sights else []):
            number = self.reading.made_by.get(one)
            if number is None:
                sight = sight_of(self.reading.array(one), self.sights[root].known)
            else:
                sight = self._by_moves(number, self.reading.operations[number], one, [root])
            if sight is not None:
                self._take(one, sight)
                root = one

    def _mask(self, operation: Operation, value: int, given: Sequence[int]) -> Sight | None:
        """A mask: two values, made by shape alone."""
        array = self.reading.array(value)
        if self._roots(given) or array.ndim < 2 or array.shape[-1] != array.shape[-2]:
            return None
        above = any(one in self.sights and self.sights[one].known.kind == "mask" for one in given)
        named = "mask" in naming.words(self.reading.target(operation, value))
        drawn = operation.name in ("tril", "triu", "tri") or (operation.name in _COMPARING and array.dtype == bool)
        if not (above or named or drawn):
            return None
        if len(np.unique(array)) != 2:
            return None
        axes = {2: ("query", "key"), 3: ("batch", "query", "key"), 4: ("batch", "head", "query", "key")}.get(array.ndim)
        if axes is None:
            return None
        known = Known("mask", axes, array, "given", made=len(self.knowns))
        return Sight(known, axes, {}, np.arange(array.size).reshape(array.shape))


def _meets_channels(operation: Operation, array: Array, tokens: Sight) -> bool:
    """Whether the first axis of an array can only be that of the tokens' channels, whatever its name is."""
    if operation.name != "einsum":
        return array.shape[0] == tokens.known.array.shape[-1] != tokens.known.array.shape[-2]
    terms = str(operation.arguments[0]).replace(" ", "").partition("->")[0].split(",")
    return array.ndim == 3 and len(terms) == 2 and len(set(terms[0]) & set(terms[1])) == 1
