"""The command line in a folder of dumps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from command_line import qkv_in


@pytest.fixture
def qkv_in_folder(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    return partial(qkv_in, tmp_path)
