"""The command line as a user starts it, and files for it to judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RIGHT = """\
import numpy as np


def attention(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""
FILES = {
    "right.py": RIGHT,
    "wrong.py": RIGHT.replace(" / np.sqrt(query.shape[-1])", ""),
    "raises.py": RIGHT.replace("    scores =", "    raise ValueError('\\x1b[2Jh\u00e9 \u2713')\n    scores ="),
    "hangs.py": RIGHT.replace("    scores =", "    while True: pass\n    scores ="),
}
COMMAND = [sys.executable, "-c", "from qkv.cli import main; main()"]


def environment(**others: str) -> dict[str, str]:
    """This process's environment, in a terminal of 100 columns that shows no colours."""
    unset = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONIOENCODING", "CI"}
    return {k: v for k, v in os.environ.items() if k not in unset} | {"COLUMNS": "100", "PYTHONUTF8": "1"} | others


def qkv_in(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs ``qkv`` in the folder; gives what it printed, read as UTF-8, and its exit code."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done
