"""What a number is computed with that is put into an array: by the names that it is written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qkv.adapters.watching.numbers import lines_behind

SOURCE = """
def attention(x, y, out):
    total = 0.0
    for a in x:
        total += a
    other = y[0]
    found = []
    for b in y:
        found.append(b * total)
    out[0] = found[1]
    out[1] = (
        other
    )
    out[2] = 1.0
"""


def test_lines_are_followed_by_names(write: Callable[[str], str]) -> None:
    file = write(SOURCE)
    assert lines_behind(file, 10) == (3, 4, 5, 7, 8, 9, 10)
    assert lines_behind(file, 11) == (6, 11, 12, 13)
    assert lines_behind(file, 14) == (14,)


def test_a_number_put_into_an_array_has_what_it_is_made_of(watch: Callable[..., Any]) -> None:
    seen = watch(
        """
        import numpy as np

        def dot(a, b):
            return sum(float(one) * float(other) for one, other in zip(a, b))

        def attention(x, y):
            out = np.zeros(2)
            for i in range(2):
                largest = y[i].max()
                out[i] = dot(x[i], x[0]) * 2
            return out
        """,
        np.arange(6.0).reshape(3, 2),
        np.arange(6.0).reshape(3, 2),
    )
    first, second = seen.operations("setitem")
    behind = [seen.recording.values[value].array.tolist() for value in second.computed_with]
    assert behind == [2.0, 0.0, 3.0, 1.0]  # of this round alone, and nothing of y
    assert len(first.computed_with) == 4


def test_iterating_gives_what_it_always_gives() -> None:
    from qkv.adapters.watching.numpy_arrays import handed_on

    array = np.arange(6.0).reshape(3, 2)
    watched = handed_on(array)
    assert [row.tolist() for row in watched] == array.tolist()
    assert [type(one) for one in watched[0]] == [np.float64] * 2
    assert not np.iterable(handed_on(np.array(1.0)))
