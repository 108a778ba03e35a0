"""`attend` inside torch.compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_compiled() -> None:
    """In a process of its own: here each call's types are checked, and torch.compile can't follow that."""
    tests = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"]
    done = subprocess.run([*tests, Path(__file__).with_name("compiled.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
