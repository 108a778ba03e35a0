"""Bounds: whether a mask that is wrong would be right with another number, or were the distance counted backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from qkv.adapters.recording import Array, Operation, Ref
from qkv.location.frontier import Frontier
from qkv.location.kinds import COMPARING, TURNING
from qkv.location.misplaced import first_of
from qkv.masks import SlidingWindow
from qkv.oracle import Run
from qkv.recognition import Sight


def right_with_another(frontier: Frontier, operation: Operation, right: Run) -> bool:
    """Whether what cuts a triangle, or compares with a number, would make what is meant with another number.

    A size of a window that is the right one and is compared wrongly is none.

    Args:
        frontier: where what is right ends.
        operation: the operation.
        right: the run that is meant.
    """
    return _another_diagonal(frontier, operation, right) or _another_size(frontier, operation, right)


def _another_diagonal(frontier: Frontier, operation: Operation, right: Run) -> bool:
    cut = {"tril": np.tril, "triu": np.triu}.get(operation.name)
    operands = [one.value for one in operation.arguments if isinstance(one, Ref)]
    array = frontier.recognition.recording.values[operands[0]].array if operands else np.empty(0)
    meant = np.broadcast_to(right.may_attend, right.scores.shape)[0, 0]
    queries, keys = meant.shape
    if cut is None or array.ndim != 2 or (min(array.shape) < max(meant.shape) and array.shape != meant.shape):
        return False
    parts = (cut(array != 0, number)[:queries, :keys] for number in range(-len(array), len(array) + 1))
    return any(np.array_equal(part, one) for part in parts for one in (meant, ~meant))


def _another_size(frontier: Frontier, operation: Operation, right: Run) -> bool:
    numbers = [one for one in operation.arguments if isinstance(one, int)]
    sizes = {part.size for part in right.spec.mask.parts() if isinstance(part, SlidingWindow)}
    if len(numbers) != 1 or numbers[0] in sizes:
        return False
    return any(_is_meant(frontier, operation, lambda array: array, size) for size in sizes)


def turned_distance(frontier: Frontier, number: int) -> tuple[int, bool] | None:
    """Where a distance is made that an operation compares, if it is counted the other way round than that needs.

    Returns:
        the operation that makes the distance, and whether several compare it; None where it isn't turned.
    """
    for value, sight in _distances(frontier, number):
        maker, form = first_of(frontier, value, sight), _used_as(frontier, number)
        if maker is not None and _is_meant(frontier, frontier.operation(number), np.negative, form=form):
            uses = [[first_of(frontier, *one) for one in _distances(frontier, user)] for user in frontier.slice]
            return maker, sum(maker in makers for makers in uses) > 1
    return None


def _distances(frontier: Frontier, number: int) -> Iterator[tuple[int, Sight]]:
    """The distances of tokens that an operation compares with something."""
    for value in frontier.flow.operands(number) if frontier.operation(number).name in COMPARING else ():
        sight = frontier.recognition.sights[value]
        if sight is not None and sight.name == "distance":
            yield value, sight


def _is_meant(
    frontier: Frontier,
    operation: Operation,
    change: Callable[[Array], Array],
    number: int | None = None,
    form: str = "",
) -> bool:
    """Whether a comparison gives a part of the mask that is meant when its array, or its number, is another one."""
    compare, values = COMPARING.get(operation.name), frontier.recognition.recording.values
    given = [
        change(values[one.value].array) if isinstance(one, Ref) else one if number is None else number
        for one in operation.arguments
    ]
    if compare is None or sum(isinstance(one, np.ndarray) for one in given) != 1:
        return False
    made = [_pairs(compare(*given))] if form != "hide" else []
    made += [~_pairs(compare(*given))] if form != "keep" else []
    return any(np.array_equal(one, mask) for mask in map(_pairs, frontier.recognition.masks) for one in made)


def _used_as(frontier: Frontier, number: int) -> str:
    """Whether what a mask has True is kept or hidden, by what the diagnosed fault makes of it; empty where unknown."""
    turned, later = False, iter(sorted(one for one in frontier.slice if one > number))
    while frontier.operation(number).results:
        value = frontier.operation(number).results[0]
        sight = frontier.recognition.faulty[value]
        if sight is not None and sight.form in ("keep", "hide"):
            return sight.form if not turned else {"keep": "hide", "hide": "keep"}[sight.form]
        number = next((one for one in later if value in frontier.flow.operands(one)), -1)
        if number < 0:
            break
        turned ^= frontier.operation(number).name in TURNING
    return ""


def _pairs(mask: Array) -> Array:
    """A mask of one sequence and head, ``(query, key)``."""
    return mask.reshape(-1, *mask.shape[-2:])[0] if mask.ndim > 1 else mask
