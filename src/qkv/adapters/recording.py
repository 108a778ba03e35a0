"""A recording: every array operation of one run of the candidate, with the expression that it stands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Place:
    """Where an expression stands in the user's code.

    Attributes:
        file: its file, or ``cell 3`` of a notebook.
        line: its first line, from 1.
        end_line: its last line.
        column: its first column in ``line``, from 0, as `ast` counts.
        end_column: the column behind it in ``end_line``.
        function: qualified name of the function that it stands in: ``CausalAttention.forward``; empty for a script.
        code: the expression as it is written: ``q @ k.transpose(-2, -1)``.
        target: what its statement assigns to, as it is written: ``attn_scores``, ``self.mask``; empty for none.
        makes: what this very expression is assigned to; empty for a part of a larger one.
    """

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str = ""
    code: str = ""
    target: str = ""
    makes: str = ""


@dataclass(frozen=True)
class Ref:
    """An array among an operation's arguments: its number in `Recording.values`."""

    value: int


@dataclass(frozen=True)
class Value:
    """An array as it was at one moment. One that is changed in place has another number afterwards.

    Attributes:
        array: its values, floating ones as float64, in its own shape.
        dtype: name of the dtype it had.
        name: where it comes from when no recorded operation made it: ``x`` (an argument), ``self.W_query.weight``;
            empty where that isn't known.
    """

    array: Array
    dtype: str
    name: str = ""


@dataclass(frozen=True)
class Operation:
    """One call of the framework on arrays.

    Attributes:
        name: the framework's name for it, one for all spellings: ``matmul`` for ``@``, ``torch.matmul`` and
            ``Tensor.matmul``; ``masked_fill`` for ``masked_fill_``; ``setitem`` for ``a[i] = b``.
        place: number of its place in `Recording.places`; None where no line of the user's code is known.
        arguments: what it was given by position: `Ref`, numbers, strings, None, slices as ``("slice", a, b, c)``, and
            lists, tuples and dicts of them; anything else as its ``repr``.
        keywords: likewise by name.
        results: numbers of the values that it made, or of what it changed in place, as it is afterwards.
        in_place: whether it changed an array that was there before.
        during: while the candidate was built, or called.
        calls: numbers of the places of the user's calls that led to its place, the innermost first.
        computed_with: numbers of the values that a number may be computed with which it puts into an array, where that
            was done without arrays: ``a[i] = float(b[j]) * c``.
    """

    name: str
    place: int | None
    arguments: Sequence[Any]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[int] = ()
    in_place: bool = False
    during: Literal["build", "call"] = "call"
    calls: Sequence[int] = ()
    computed_with: Sequence[int] = ()


@dataclass(frozen=True)
class Recording:
    """What a candidate did in one run, in the order it did it.

    Attributes:
        values: every array, by number.
        operations: every operation.
        places: where operations stand.
        returned: the numbers of the arrays that it returned.
        complete: whether all of it is here; a recording is cut off where it would grow too large.
    """

    values: Sequence[Value]
    operations: Sequence[Operation]
    places: Sequence[Place]
    returned: Sequence[int] = ()
    complete: bool = True
