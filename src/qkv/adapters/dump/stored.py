"""One tensor of a dump as it lies in its file: shape and dtype at once, its numbers when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Stored:
    """One tensor of a dump.

    Attributes:
        shape: its shape.
        dtype: the name of what its numbers are stored in: ``float16``, ``bfloat16``, ``float8_e4m3fn``.
        read: reads the numbers, in that dtype.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """How much memory its numbers take."""
        return math.prod(self.shape) * dtype_named(self.dtype).itemsize


Contents = Mapping[str, Stored]
"""Every tensor of a dump by its name."""


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of this name, those of machine learning included.

    Raises:
        TypeError: there is none.
    """
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # only now: most dumps do without

        return np.dtype(getattr(ml_dtypes, name, name))
