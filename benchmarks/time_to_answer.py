"""How long a check takes, beside what it can't do without: ``qkv check`` of a small module over ``import torch``.

Run: ``python -m benchmarks.time_to_answer``. The two are run in turn, several times; the ratio is taken pair by pair.
The claim: under 2.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

CANDIDATE = Path(__file__).parent.parent / "src" / "qkv" / "demo" / "causal_attention.py"
RUNS = 5


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - started


def main() -> None:
    check = [sys.executable, "-m", "qkv", "check", str(CANDIDATE)]
    bare = [sys.executable, "-c", "import torch"]
    seconds(check), seconds(bare)
    ratios = [seconds(check) / seconds(bare) for _ in range(RUNS)]
    print(f"qkv check over import torch, {RUNS} pairs: median {statistics.median(ratios):.2f}, "
          f"from {min(ratios):.2f} to {max(ratios):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
