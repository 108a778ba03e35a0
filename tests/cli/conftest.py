"""A folder with files to judge, and the command that runs in it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from command_line import FILES, qkv_in


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def qkv(files: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    return partial(qkv_in, files)
