"""The frontier: operations that are given what is right and make what isn't. One of them is the fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from qkv.adapters.recording import Operation, Place
from qkv.location.filling import filled_in_part, puts_a_number, single_numbers
from qkv.location.kinds import ASSEMBLING, CASTING, COMPARING, EMPTY, LAYING_OUT, TELLING, WRAPPING
from qkv.recognition import REPEATED, SHOWN, Flow, Recognition, Sight, operands_of
from qkv.vocabulary import Stage

OF_A_ROW = frozenset({"row's largest score", "row's sum", "row's decay", "row's share", "log-sum-exp"})
"""What stands for a row in one number: it may be right, or the fault's, though the row is not."""

OF_COS = ("cos of rope", "by cos")
"""How the names end of what is made with a cosine, which loses the sign of its angle."""

CONFIRMED = 3
"""The weight from which on a suspect makes what the diagnosed fault makes."""


@dataclass(frozen=True)
class Suspect:
    """An operation on the frontier.

    Attributes:
        operation: its number.
        weight: how much speaks against it.
        sight: what it made, under the fault or as far as it is known.
    """

    operation: int
    weight: int
    sight: Sight | None


class Frontier:
    """Where what is right ends.

    Args:
        recognition: what each value is.
        stage: the stage that the diagnosis says is at fault; None where it says nothing.
    """

    def __init__(self, recognition: Recognition, stage: Stage | None) -> None:
        self.recognition, self.stage = recognition, stage
        self.flow = Flow(recognition.recording)
        self._known_clear: dict[int, bool] = {}

    @cached_property
    def slice(self) -> set[int]:
        """The operations that what was returned is made by."""
        return self.flow.behind(list(self.recognition.recording.returned))

    @cached_property
    def cleared(self) -> set[int]:
        """Values that are right: recognised as such, or only ever needed for one that is."""
        right = [value for value in range(len(self.recognition.sights)) if self.recognition.right(value)]
        mute = {value for value in right if not self._tells(value)} | self._picked_from
        behind = self.flow.behind([value for value in right if value not in mute] + self._masks_of_shown, mute)
        through = {result for operation in behind for result in self.operation(operation).results}
        return self._with_parts({*right, *(value for value in through if self.recognition.faulty[value] is None)})

    @cached_property
    def _masks_of_shown(self) -> list[int]:
        """What scores are masked with that the diagnosed fault leaves to be seen: right masks, used wrongly."""
        sights, faulty, found = self.recognition.sights, self.recognition.faulty, list[int]()
        for number, operation in enumerate(self.recognition.recording.operations):
            if any((one := faulty[value]) is not None and one.name == SHOWN for value in operation.results):
                operands = [(value, sights[value]) for value in self.flow.operands(number) if faulty[value] is None]
                found += [value for value, sight in operands if sight is None or sight.form or not sight.right]
        return found

    def _with_parts(self, cleared: set[int]) -> set[int]:
        """What is clear, and of that the single numbers, and the arrays that are filled with such in part."""
        for number, operation in enumerate(self.recognition.recording.operations):
            if self._parts.issuperset(operation.results) and all(
                value in cleared or self._has_no_content(value) for value in self.flow.operands(number)
            ):
                cleared.update(operation.results)
        return cleared

    def _has_no_content(self, value: int) -> bool:
        maker = self.flow.maker(value)
        return maker is None or self.empty(maker)

    @cached_property
    def _parts(self) -> set[int]:
        """What is judged only by the array that it becomes a part of."""
        numbers = single_numbers(self.recognition)
        return numbers | filled_in_part(self.recognition, numbers)

    @cached_property
    def suspects(self) -> list[Suspect]:
        """The frontier, the most suspicious operation first, and of equals the earliest."""
        found = []
        for number in sorted(self.slice):
            operation = self.operation(number)
            if self.empty(number) or all(self.clear(value) for value in operation.results):
                continue
            if all(self.clear(value) for value in self.flow.operands(number)):
                sight = self.sight_of(operation.results)
                found.append(Suspect(number, self._weight(number, sight), sight))
        return self._as_usual(found)

    def _as_usual(self, suspects: list[Suspect]) -> list[Suspect]:
        """The suspects in order; of an operation that is done again and again counts what it mostly is.

        Of one key the weight is 1, whatever its score, and one row may be close to right.
        """
        kinds: dict[tuple[str, int | None], Counter[int]] = {}
        for one in sorted(suspects, key=lambda one: self._is_alike(one.operation)):
            counted = kinds.setdefault(self._kind_of(one.operation), Counter())
            if not (counted and self._is_alike(one.operation)):
                counted[one.weight] += 1
        unclear = Counter(
            self._kind_of(number)
            for number in self.slice
            if not (all(map(self.clear, self.operation(number).results)) or self._is_alike(number))
        )

        def rank(one: Suspect) -> tuple[int, bool, int]:
            weights, often = kinds[kind := self._kind_of(one.operation)], unclear[kind]
            usual = weights.most_common(1)[0][0] if 2 * weights.total() >= often else 0
            return -min(one.weight, usual), one.weight != usual, one.operation

        return [replace(one, weight=-rank(one)[0]) for one in sorted(suspects, key=rank)]

    def _kind_of(self, number: int) -> tuple[str, int | None]:
        operation = self.operation(number)
        return operation.name, operation.place

    @cached_property
    def masks(self) -> bool:
        """Whether what was returned is made with a mask."""
        sights = (self.recognition.sights[value] for number in self.slice for value in self.operation(number).results)
        return any(sight is not None and sight.form for sight in sights)

    def clear(self, value: int) -> bool:
        """Whether a value is right, was given, or has no content of its own: a copy, or the weight of one key."""
        if value not in self._known_clear:
            self._known_clear[value] = self._is_clear(value)
        return self._known_clear[value]

    def _is_clear(self, value: int) -> bool:
        maker = self.flow.maker(value)
        if value in self.cleared or maker is None or self.empty(maker):
            return True
        adds_nothing = self.operation(maker).name in TELLING or self._copies(maker) or self._weighs_one_key(maker)
        return adds_nothing and all(map(self.clear, self.flow.operands(maker)))

    def _copies(self, number: int) -> bool:
        """Whether an operation makes of one array the same once more."""
        values, results = self.recognition.recording.values, self.operation(number).results
        operands = list(self.flow.operands(number))
        if len(results) != 1 or not (len(operands) == 1 or self.operation(number).name in CASTING):
            return False
        return np.array_equal(values[operands[0]].array, values[results[0]].array)

    def _weighs_one_key(self, number: int) -> bool:
        arrays = [self.recognition.recording.values[value].array for value in self.operation(number).results]
        return all(array.size > 1 and 1 in array.shape and (array == 1).all() for array in arrays)

    def sight_of(self, values: Collection[int]) -> Sight | None:
        """What an operation's results are: under the fault, or in part."""
        for value in values:
            sight = self.recognition.faulty[value] or self.recognition.sights[value]
            if sight is not None:
                return sight
        return None

    def sighted(self, operation: int) -> list[tuple[int, Sight]]:
        """What an operation is given that a stage makes, masks aside: the numbers of the values, and what they are.

        Instead of what is only judged as a part of something, what that is made of.
        """
        found, waiting, seen = list[tuple[int, Sight]](), [*self.flow.operands(operation)], set[int]()
        for value in waiting:
            sight, maker = self.recognition.sights[value], self.flow.maker(value)
            if sight is not None and sight.stage is not None and not sight.form:
                found.append((value, sight))
            elif sight is None and maker is not None and value in self._parts and value not in seen:
                seen.add(value)
                waiting += self.flow.operands(maker)
        return list(dict(found).items())

    def operation(self, number: int) -> Operation:
        """An operation by its number."""
        return self.recognition.recording.operations[number]

    def place(self, number: int) -> Place | None:
        """Where an operation stands."""
        place = self.operation(number).place
        return None if place is None else self.recognition.recording.places[place]

    def fills_in_numbers(self, number: int) -> bool:
        """Whether an operation writes a single number into an array: what that was computed with isn't watched."""
        return puts_a_number(self.operation(number), ())

    def chain(self, number: int) -> list[Place]:
        """The places of the calls that lead to an operation, the outermost first, and its own."""
        operation, places = self.operation(number), self.recognition.recording.places
        return [] if operation.place is None else [places[one] for one in (*reversed(operation.calls), operation.place)]

    def beside(self, number: int, other: int, *, whole: bool = False) -> Place | None:
        """Where an operation stands in the innermost function that another stands in too: its call, if it is elsewhere.

        A call that gives several arrays says nothing of each; it will do where they are meant as a whole.
        """
        for mine, theirs in zip(self.chain(number), self.chain(other), strict=False):
            if mine != theirs:
                together = (mine.file, mine.function) == (theirs.file, theirs.function)
                return mine if together and (whole or "," not in mine.target) else self.place(number)
        return self.place(number)

    def origin(self, value: int, earlier: Callable[[int], int | None]) -> int | None:
        """The operation that a value comes from, through what is made of it; None where none made the value.

        Args:
            value: its number.
            earlier: for an operation, which of what it is given to follow; None for the one that is looked for.
        """
        maker = self.flow.maker(value)
        while maker is not None:
            before = earlier(maker)
            behind = None if before is None else self.flow.maker(before)
            if behind is None:
                return maker
            maker = behind
        return None

    def known(self, value: int) -> bool:
        """Whether a value was recognised, was given, or has no content of its own."""
        maker = self.flow.maker(value)
        return self.recognition.right(value) or maker is None or self.empty(maker)

    def from_nowhere(self, number: int) -> bool:
        """Whether an operation is given an array that isn't known and that nothing which was watched has made."""
        values = self.recognition.recording.values
        return any(
            self.flow.maker(value) is None
            and not values[value].name
            and not self.recognition.right(value)
            and values[value].array.size > 1
            for value in self.flow.operands(number)
        )

    def empty(self, number: int) -> bool:
        """Whether an operation makes an array without any content of its own; counting from 0 is none.

        Nor has one of no entries, what was handed over and is only laid out, nor a mask of such that hides nothing.
        """
        operation = self.operation(number)
        arrays = [self.recognition.recording.values[value].array for value in operation.results]
        makers = [self.flow.maker(value) for value in self.flow.operands(number)]
        if not any(array.size for array in arrays):
            return True
        if operation.name in LAYING_OUT:
            return all(maker is None or self.operation(maker).name in EMPTY for maker in makers)
        if operation.name in COMPARING and all(array.all() for array in arrays):
            return all(maker is None or self.empty(maker) for maker in makers)
        if operation.name == "arange":
            return not any(array[:1].any() for array in arrays)
        if operation.name in WRAPPING and not self.flow.operands(number):
            return all(array.size == 1 for array in arrays)  # a number that scores are filled with
        return operation.name in EMPTY

    def _tells(self, value: int) -> bool:
        """Whether a right value says that what it was made of is right too.

        What was projected says nothing of scores: it is one token's value, since all weight was laid on that.
        """
        sight, maker = self.recognition.sights[value], self.flow.maker(value)
        scored = maker in self._scored and sight is not None and sight.stage is not None and sight.stage < Stage.SCORES
        if sight is not None and sight.form and {*sight.axes} == {REPEATED}:
            return False  # it hides all or nothing, as anything may
        return sight is not None and not _is_of_less(sight) and not scored and not self._only_passed_on(maker, sight)

    def _only_passed_on(self, maker: int | None, sight: Sight) -> bool:
        """Whether an operation on several arrays makes what one of them is: that tells nothing of the others."""
        operands = [] if maker is None else self.flow.operands(maker)
        if maker is None or len(operands) < 2 or self.operation(maker).name in ASSEMBLING:
            return False
        others = (other for _, other in self.sighted(maker))
        return any((one.name, one.stage, one.factor) == (sight.name, sight.stage, sight.factor) for one in others)

    @cached_property
    def _picked_from(self) -> set[int]:
        """The arrays of which single entries are picked: that one of them is right says nothing of the others."""
        values = self.recognition.recording.values
        picks = (one for one in self.recognition.recording.operations if one.name == "getitem")
        return {
            operand
            for pick in picks
            for operand in operands_of(pick)
            if values[operand].array.size > 1 and all(values[value].array.size == 1 for value in pick.results)
        }

    @cached_property
    def _scored(self) -> set[int]:
        """The operations that something is made by of scores, or of what is made of them."""
        found: set[int] = set()
        for number in range(len(self.recognition.recording.operations)):
            operands = self.flow.operands(number)
            sights = [self.recognition.sights[value] or self.recognition.faulty[value] for value in operands]
            scores = any(
                one is not None and one.stage is not None and not one.form and one.stage >= Stage.SCORES
                for one in sights
            )
            if scores or any(self.flow.maker(value) in found for value in operands):
                found.add(number)
        return found

    def _weight(self, number: int, sight: Sight | None) -> int:
        operation = self.operation(number)
        if sight is not None and any(self.recognition.faulty[value] is not None for value in operation.results):
            return CONFIRMED + 2 if sight.stage == self.stage else CONFIRMED
        if sight is not None:
            return 2
        return 0 if operation.name in ASSEMBLING or self._is_alike(number) else 1

    def _is_alike(self, number: int) -> bool:
        """Whether all that an operation makes is one number again and again: of one key the weight is 1."""
        operation = self.operation(number)
        arrays = [self.recognition.recording.values[value].array for value in operation.results]
        return all(array.size and (array == array.flat[0]).all() for array in arrays)


def _is_of_less(sight: Sight) -> bool:
    """Whether something may be right though what it was made of is wrong: a row, or a sign, is not to be seen in it."""
    without_sign = sight.factor == -1.0 or sight.name.endswith((*OF_COS, "without sign"))
    return without_sign or sight.name in OF_A_ROW
