"""Repair: the styles' single faults, each mended by qkv. What share is repaired, how often as it was, how quickly?

Run: ``python -m benchmarks.repair [style ...] [--only LABEL] [--every 4] [--seconds 10]``. The candidates are judged in
this process, so that the framework is imported once; everything else is as at the command line. Times are of the
processor, and of the search alone: what a check without a search takes is taken off.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import signal
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from benchmarks.styles import Variant, style_name, styles, variants
from qkv.adapters.host import Host
from qkv.adapters.messages import Call, Reply
from qkv.cli.check import command, request_from
from qkv.debugger import judge
from qkv.report import Report, Verdict
from qkv.request import Request

MEMORY = 6 << 30
"""Bytes that this process may take."""

PATIENCE = 10
"""Seconds that a call may take."""


class ImpatientHost(Host):
    """Gives a call up that takes long, as a child process would be ended: an edit may have made it endless."""

    def call(self, call: Call) -> Reply:
        """What came of calling it, in time."""
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(PATIENCE)
        try:
            return super().call(call)
        finally:
            signal.alarm(0)


def _give_up(*_: object) -> None:
    raise TimeoutError


class Row(NamedTuple):
    """One faulty file: whether it was found wrong, what was changed, and how long the search took."""

    style: str
    label: str
    fault: str
    wrong: bool
    change: str
    seconds: float


def request_for(path: Path, name: str | None, options: list[str]) -> Request:
    """What ``qkv check`` with these options asks of a file."""
    target = f"{path}:{name}" if name else str(path)
    context = command.make_context("check", [target, *options])
    return request_from(target, {key: value for key, value in context.params.items() if key != "targets"})


def patched(path: Path, name: str | None, options: list[str], seconds: float) -> Report:
    """The report on a file, with the repair that is found in this time."""
    with contextlib.redirect_stdout(io.StringIO()):
        return judge(replace(request_for(path, name, options), patch_seconds=seconds), ImpatientHost())


def row_of(style: ModuleType, variant: Variant, path: Path, seconds: float) -> Row:
    path.write_text(variant.source)
    started = time.process_time()
    without = patched(path, style.NAME, list(style.OPTIONS), 0.0)
    between = time.process_time()
    report = patched(path, style.NAME, list(style.OPTIONS), seconds) if without.verdict is Verdict.WRONG else without
    took = (time.process_time() - between) - (between - started)
    patch = report.patch
    lines = [] if patch is None else [line for line in patch.diff.splitlines()[2:] if line[:1] in "+-"]
    change = " / ".join(" ".join(line.split()) for line in lines)
    return Row(style_name(style), variant.label, variant.faults[0], report.verdict is Verdict.WRONG, change, took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("styles", nargs="*")
    parser.add_argument("--only", default="", help="variants whose label has this in it")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--every", type=int, default=1, help="of so many variants one, for a quick look")
    chosen = parser.parse_args()
    # An edit may ask for any amount of memory, and here no child process has a limit of its own.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, style in enumerate(styles()):
            if chosen.styles and style_name(style) not in chosen.styles:
                continue
            for place, variant in enumerate(variants(style)):
                in_turn = (place + number) % chosen.every == 0
                if variant.kind == "fault" and in_turn and chosen.only in variant.label:
                    row = row_of(style, variant, Path(folder) / f"candidate_{place}.py", chosen.seconds)
                    rows.append(row)
                    came = row.change or ("NONE" if row.wrong else "not wrong")
                    print(f"{row.seconds:6.2f}  {row.style} / {row.label}: {came}", flush=True)
    report_on(rows)


def report_on(rows: list[Row]) -> None:
    wrong = [row for row in rows if row.wrong]
    mended = [row for row in wrong if row.change]
    times = sorted(row.seconds for row in mended)
    print(f"{len(wrong)} faulty files, {len(mended)} repaired ({len(mended) / max(len(wrong), 1):.1%})")
    if times:
        quick = sum(seconds <= 2 for seconds in times) / len(wrong)
        print(f"median {times[len(times) // 2]:.2f} s, {quick:.1%} of all within 2 s")
    left = Counter(row.fault for row in wrong if not row.change)
    kinds = {row.fault for row in mended}
    print(f"{len(kinds)} kinds repaired; not repaired: {dict(left.most_common())}")


if __name__ == "__main__":
    main()
