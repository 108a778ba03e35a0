"""The judge's tests run as at users' run time: no check of types and shapes, and one thread for arrays this small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _as_at_run_time(unchecked: None) -> None:
    """Without the checks that tests/conftest.py puts on qkv's tensor code."""


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
