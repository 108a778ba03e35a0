"""What surrounds a candidate while it runs: its output caught, its random numbers seeded, its framework set."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from qkv.adapters.endings import end_of
from qkv.adapters.messages import DType, Framework
from qkv.adapters.values import imported_torch

PRINTED = 2000
"""How many characters of what a candidate prints are kept: the last ones."""

KEPT = 4 * (PRINTED + 1)
"""Bytes: enough for one character more, so that it is seen where something is left out."""


class _Tail(io.BufferedIOBase):
    """A stream that keeps the end of what is written to it."""

    name = "<printed>"

    def __init__(self) -> None:
        self._kept = bytearray()

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int:
        """How many bytes were taken: all."""
        size = memoryview(data).nbytes
        self._kept += bytes(data)[-KEPT:]
        del self._kept[:-KEPT]
        return size

    def text(self) -> str:
        """The last lines written."""
        return end_of(self._kept.decode("utf-8", "replace"), PRINTED)


class Printed(io.TextIOWrapper):
    """Stands in for stdout and stderr."""

    def __init__(self) -> None:
        self._tail = _Tail()
        super().__init__(self._tail, encoding="utf-8", errors="replace", write_through=True)

    def tail(self) -> str:
        """The end of what was printed."""
        return self._tail.text()


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """What the candidate prints meanwhile, warnings included."""
    printed, keyboard = Printed(), sys.stdin
    # A candidate that asks for input must not wait for it.
    sys.stdin = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings():
        # Shown whatever this process does with warnings of its own; those for the candidate's author are not.
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("default", RuntimeWarning)
        try:
            yield printed
        finally:
            sys.stdin = keyboard


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Nothing; meanwhile all random numbers follow from the seed, and afterwards they go on as if nothing had been."""
    torch = sys.modules.get("torch")
    ours, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - what np.random.randn draws from
    torchs = torch.get_rng_state() if torch else None
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch:
        # Not torch.manual_seed: that queues a call for every kind of device there might be, at a cost, each time.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
        if torch and torchs is not None:
            torch.set_rng_state(torchs)


@contextlib.contextmanager
def mode(dtype: DType, framework: Framework, threads: int) -> Iterator[None]:
    """Nothing; meanwhile torch keeps no graph, and what is made without naming a dtype is float64 if the call is.

    Args:
        dtype: that of the call.
        framework: that of the candidate.
        threads: how many threads torch may compute on meanwhile.
    """
    if framework != "torch":
        yield
        return
    torch = imported_torch()

    default, usual = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_num_threads(threads)
    if dtype == "float64":
        torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(default)
        torch.set_num_threads(usual)
