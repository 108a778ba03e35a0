"""Results in every form, of code that loops rather than computes with arrays. NumPy only, where not said otherwise."""

import numpy as np


def python_numbers(x):
    return [[float(number) for number in row] for row in x]


def numpy_numbers(x):
    return [[number * 1 for number in row] for row in x]


def tensor_numbers(x):
    import torch

    return [[number for number in row] for row in torch.from_numpy(np.asarray(x))]  # noqa: C416


def rows(x):
    return [row + 0 for row in x]


def rows_of_rows(x):
    return [[row + 0] for row in x]


def pair(x):
    return x + 0, x + 1


def holds_itself(x):
    result = []
    result.append(result)
    result.append(x)
    return result


def deep(x):
    for _ in range(100_000):
        x = [x]
    return x


def of_other_lengths(x):
    return [x[0], x[0, :1]]


def much(x):
    return np.broadcast_to(x[0, 0], (1 << 30,))


async def later(x):
    return x


def bit_by_bit(x):
    yield x


class Nothing:
    def attend(self, x):
        return x


class Misnamed:
    def foward(self, x):
        return x


class Later:
    async def __call__(self, x):
        return x


class UnprintableError(Exception):
    def __str__(self):
        raise SystemExit(1)


def raises_unprintable(x):
    raise UnprintableError


def raises_escapes(x):
    raise ValueError("\x1b[2J\x07red\nand more")


def raises_much(x):
    raise ValueError("x" * 10_000_000)


def debugs(x):
    breakpoint()
    return x


def reads(x):
    import sys

    assert sys.stdin.read() == ""
    assert sys.stdin.buffer.read() == b""
    return x


def spoils_random(x):
    np.random.seed = None
    return x
