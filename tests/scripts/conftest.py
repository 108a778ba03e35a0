"""A process that runs scripts, and the report on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qkv.adapters.process import HostProcess
from qkv.adapters.texts import text_of
from qkv.repair import explained_and_mended
from qkv.report import Report


@pytest.fixture(scope="module")
def host() -> Iterator[HostProcess]:
    """One process for all scripts of a file: they import torch once."""
    with HostProcess() as host:
        yield host


@pytest.fixture
def report_on(host: HostProcess, tmp_path: Path) -> Callable[[str], Report]:
    """The report on a script, with a repair of it."""

    def report(source: str) -> Report:
        (file := tmp_path / "mine.py").write_text(source)
        return explained_and_mended(text_of(str(file)), host, "", 6.0).report

    return report
