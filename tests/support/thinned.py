"""Thinned: of many cases of one kind a few are tried in any run, and all where slow tests are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], each: int = 3, ids: Callable[[Any], str] = str) -> list[Any]:
    """Every third case, say, as it is, and the others as slow ones.

    Args:
        cases: what a test is given; a tuple for several arguments.
        each: how many cases one that is tried in any run stands for.
        ids: what a case is called.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)), id=ids(one), marks=[pytest.mark.slow] if at % each else []
        )
        for at, one in enumerate(cases)
    ]
