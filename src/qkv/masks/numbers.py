"""Numbers that a mask carries: arrays that compare and hash by what is in them, so that the mask does too."""

from __future__ import annotations

import operator
import re
from typing import Any

import array_api_compat
import numpy as np

from qkv.errors import SpecError
from qkv.masks.places import Array, Positions


class Numbers:
    """Whole numbers, of any shape, that never change.

    Attributes:
        array: the numbers, int64.
    """

    def __init__(self, array: Array) -> None:
        self.array = array.astype(np.int64)  # a copy: whoever gave the numbers may change them later
        self.array.flags.writeable = False
        self._hash = hash((self.array.shape, self.array.tobytes()))
        self._elsewhere: dict[Any, Array] = {}

    def like(self, array: Array) -> Array:
        """The numbers as an array of that array's library, on its device."""
        if isinstance(array, (np.ndarray, np.generic)):
            return self.array
        place = type(array), array.device
        if place not in self._elsewhere:
            xp = array_api_compat.array_namespace(array)
            self._elsewhere[place] = xp.asarray(self.array.copy(), device=array.device)
        return self._elsewhere[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Numbers):
            return NotImplemented
        return self is other or (self._hash == other._hash and np.array_equal(self.array, other.array))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        shown = np.array2string(self.array, separator=", ", threshold=16, edgeitems=2)
        return re.sub(r"(?<=\[)\s+|\s+(?=\s)", "", shown.replace("\n", " "))


def rows_of(numbers: Array, at: Positions) -> Array:
    """Which rows of a mask's numbers ``(batch or 1, ...)`` are meant, as an index that broadcasts with positions."""
    if numbers.shape[0] == 1:
        return 0
    if at.sequence is not None:
        return at.sequence
    xp, device = array_api_compat.array_namespace(numbers), array_api_compat.device(numbers)
    return xp.arange(numbers.shape[0], device=device)[:, None, None, None]


def whole_numbers(given: Any, name: str, axes: tuple[str, ...]) -> Numbers:
    """The numbers in anything that NumPy can read, and in a tensor of torch on any device.

    Args:
        given: the numbers, with all of the axes, or without the first ones where all are alike along these.
        name: what they are called in messages.
        axes: what the axes are called.

    Raises:
        SpecError: they aren't whole, or have more axes, or none.
    """
    wanted = f"whole numbers, ({', '.join(axes)})"
    try:
        array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{name} can't be read as {wanted}: {error}") from None
    if array.size and array.dtype.kind not in "iu":
        raise SpecError(f"{name} has dtype {array.dtype}, and must be {wanted}")
    if not 1 <= array.ndim <= len(axes) or not array.size:
        raise SpecError(f"{name} has shape {array.shape}, and must be {wanted}")
    return Numbers(array)


def whole_number(given: Any, name: str) -> int:
    """One number as an int.

    Raises:
        SpecError: it is a fraction, a text, a truth value or the like.
    """
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)
    except TypeError:
        raise SpecError(f"{name} is {given!r}, and must be one whole number, for instance {name}(4)") from None
