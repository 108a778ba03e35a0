"""Filling: arrays that numbers are put into one by one. No number is known by itself: the array is, when it is full."""

from __future__ import annotations

from collections.abc import Collection

from qkv.adapters.recording import Operation, Ref
from qkv.recognition import Recognition, operands_of


def single_numbers(recognition: Recognition) -> set[int]:
    """The values that are one number, made of arrays: an entry, a product of two rows, what is computed with these."""
    values, found = recognition.recording.values, set[int]()
    for operation in recognition.recording.operations:
        if any(values[one].array.size > 1 or one in found for one in operands_of(operation)):
            found |= {
                value
                for value in operation.results
                if values[value].array.ndim == 0
                and values[value].dtype.startswith(("float", "bfloat"))
                and recognition.sights[value] is None
            }
    return found


def filled_in_part(recognition: Recognition, numbers: Collection[int]) -> set[int]:
    """The arrays that a number was put into, and the next one is put into after that.

    Args:
        recognition: what each value is.
        numbers: the values that are single numbers.
    """
    puts = [one for one in recognition.recording.operations if puts_a_number(one, numbers)]
    made = {value for one in puts for value in one.results}
    return {one.arguments[0].value for one in puts} & made


def puts_a_number(operation: Operation, numbers: Collection[int]) -> bool:
    """Whether an operation puts one number into an array at one place.

    Args:
        operation: the operation.
        numbers: the values that are single numbers.
    """
    if operation.name != "setitem" or len(operation.arguments) != 3 or not isinstance(operation.arguments[0], Ref):
        return False
    _, index, put = operation.arguments
    places = index if isinstance(index, tuple) else (index,)
    number = put.value in numbers if isinstance(put, Ref) else isinstance(put, int | float)
    return number and all(isinstance(place, int) for place in places)
