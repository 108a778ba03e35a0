"""Confusion table: faults x styles of writing attention. What share is detected, named rightly, blamed on its line?

Run: ``python -m benchmarks.confusion [style ...] [--by flags|spec] [--every 4] [--write]``. The candidates are judged
in this process, so that the framework is imported once; everything else is as at the command line, the repair included.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from benchmarks.planted_lines import is_planted
from benchmarks.repair import MEMORY, patched
from benchmarks.styles import SAME_NUMBERS, style_name, styles, variants
from qkv.cli.fixing import SHOWN_SECONDS
from qkv.report import Patch, SourceLine, Verdict

TABLE = Path(__file__).parent / "confusion.md"


@dataclass(frozen=True)
class Row:
    """One file judged.

    Attributes:
        style: the style it is written in.
        kind: ``right``, ``fault`` or ``pair``.
        label: which variant of the style.
        planted: ids of the faults planted in it.
        verdict: the verdict.
        named: ids of the faults named first.
        also: ids of the faults that give the same numbers.
        seconds: how long it took.
        why: the reason for a ``failed``.
        line: ``right`` where the planted line is blamed; ``mended`` where it is another one with a change of which the
            file was found right; ``other`` for any other one; empty where none is.
        blamed: the line that is blamed, with its number.
    """

    style: str
    kind: str
    label: str
    planted: tuple[str, ...]
    verdict: str
    named: tuple[str, ...]
    also: tuple[str, ...]
    seconds: float
    why: str
    line: str = ""
    blamed: str = ""

    @property
    def detected(self) -> bool:
        """Whether a faulty file was found wrong."""
        return self.verdict == Verdict.WRONG

    @property
    def named_rightly(self) -> bool:
        """Whether the planted faults were named, first or as having the same numbers."""
        named = {*self.named, *self.also}
        return all(
            fault in named or any(named & same for same in SAME_NUMBERS if fault in same) for fault in self.planted
        )

    @property
    def missed(self) -> bool:
        """Whether the answer is not the one it should be."""
        return self.verdict != Verdict.RIGHT if self.kind == "right" else not (self.detected and self.named_rightly)


def rows_of(style: ModuleType, by: str, seconds: float, only: str = "", turn: int = 0, every: int = 1) -> list[Row]:
    """A style's variants, judged: of so many one, from this turn on."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.json"
        spec.write_text(__import__("json").dumps(style.SPEC))
        for place, variant in enumerate(variants(style)):
            if only not in variant.label or (place + turn) % every:
                continue
            path = Path(folder) / f"candidate_{place}.py"
            path.write_text(variant.source)
            options = list(style.OPTIONS) if by == "flags" else ["--spec", str(spec), *_beside_spec(style.OPTIONS)]
            rows.append(_row(style, variant, path, options, seconds))
    return rows


def _row(style: ModuleType, variant: Any, path: Path, options: list[str], patch_seconds: float) -> Row:
    started = time.perf_counter()
    try:
        report = patched(path, style.NAME, options, patch_seconds)
        verdict, why = report.verdict.value, report.why
        named = tuple(fault.id for fault in report.faults)
        also = tuple(fault.id for fault in report.alternatives)
        blamed, patch = report.line, report.patch
    except click.ClickException as error:
        verdict, named, also, why, blamed, patch = "usage", (), (), error.format_message(), None, None
    seconds = time.perf_counter() - started
    line = "" if blamed is None else _how_good(blamed, patch, style.SOURCE, variant.source)
    words = "" if blamed is None else f"{blamed.line}: {blamed.code}"
    who = (style_name(style), variant.kind, variant.label, variant.faults)
    return Row(*who, verdict, named, also, seconds, why, line, words)


def _how_good(blamed: SourceLine, patch: Patch | None, right: str, faulty: str) -> str:
    if is_planted(blamed, right, faulty):
        return "right"
    return "mended" if patch is not None and is_planted(blamed, patch.edited.decode(), faulty) else "other"


BESIDE_SPEC = {"--layout": 1, "--init": 1, "--mask-argument": 1, "--weights": 1, "--call": 1}


def _beside_spec(options: list[str]) -> list[str]:
    kept: list[str] = []
    for place, option in enumerate(options):
        if option in BESIDE_SPEC:
            kept += options[place : place + 2]
    return kept


def rows_of_style(rows: list[Row], style: ModuleType) -> list[Row]:
    """Those of one style."""
    return [row for row in rows if row.style == style_name(style)]


def summary(rows: list[Row]) -> str:
    """The shares, and every miss by name."""
    right = [row for row in rows if row.kind == "right"]
    lines = []
    for kind in ("fault", "pair"):
        faulty = [row for row in rows if row.kind == kind]
        if faulty:
            detected = sum(row.detected for row in faulty)
            named = sum(row.detected and row.named_rightly for row in faulty)
            lines.append(
                f"{kind}s: {len(faulty)} files, detected {detected / len(faulty):.1%}, "
                f"named rightly {named / len(faulty):.1%}" + (f", {lines_in_words(faulty)}" if kind == "fault" else "")
            )
    alarms = sum(row.verdict != Verdict.RIGHT for row in right)
    lines.append(f"right: {len(right)} files, false alarms {alarms}")
    lines += [
        f"  missed: {row.style} / {row.label} -> {row.verdict} {' + '.join(row.named)}"
        + (f" (or {', '.join(row.also)})" if row.also else "")
        + (f" [{row.why[:150]}]" if row.why else "")
        for row in rows
        if row.missed
    ]
    lines += [
        f"  line: {row.style} / {row.label} -> {row.blamed or 'none'} {row.line}"
        for row in rows
        if row.kind == "fault" and row.detected and row.line != "right"
    ]
    return "\n".join(lines)


def lines_in_words(faulty: list[Row]) -> str:
    """What share of the faults is blamed on the right line, on another that a repair changes, and on a wrong one."""
    of = [row for row in faulty if row.detected]
    counts = Counter(row.line for row in of)
    total = max(len(of), 1)
    return (
        f"the right line blamed {counts['right'] / total:.1%}, another that mends it {counts['mended'] / total:.1%}, "
        f"a wrong one {counts['other'] / total:.1%}"
    )


def table(rows: list[Row]) -> str:
    """A Markdown table: one line a style, and one a fault."""
    lines = ["| style | files | detected | named | right line | false alarms |", "| --- |" + " ---: |" * 5]
    for style in dict.fromkeys(row.style for row in rows):
        faulty = [row for row in rows if row.style == style and row.kind != "right"]
        alarms = sum(row.missed for row in rows if row.style == style and row.kind == "right")
        right = sum(row.style == style and row.kind == "right" for row in rows)
        detected, named = sum(row.detected for row in faulty), sum(not row.missed for row in faulty)
        line = _lines_of([row for row in faulty if row.kind == "fault"])
        lines.append(f"| {style} | {len(faulty)} | {detected} | {named} | {line} | {alarms} of {right} |")
    lines += ["", "| fault | files | detected | named | right line |", "| --- |" + " ---: |" * 4]
    counts = Counter(fault for row in rows if row.kind == "fault" for fault in row.planted)
    for fault, count in sorted(counts.items()):
        mine = [row for row in rows if row.kind == "fault" and fault in row.planted]
        detected, named = sum(r.detected for r in mine), sum(not r.missed for r in mine)
        lines.append(f"| {fault} | {count} | {detected} | {named} | {_lines_of(mine)} |")
    return "\n".join(lines)


def _lines_of(rows: list[Row]) -> str:
    detected = [row for row in rows if row.detected]
    return f"{sum(row.line in ('right', 'mended') for row in detected)} of {len(detected)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("styles", nargs="*")
    parser.add_argument("--by", choices=["flags", "spec"], default="flags")
    parser.add_argument("--only", default="", help="variants whose label has this in it")
    parser.add_argument("--write", action="store_true", help="write the table beside this file")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--seconds", type=float, default=SHOWN_SECONDS, help="how long a repair is looked for")
    parser.add_argument("--every", type=int, default=1, help="of so many variants one, for a quick look")
    chosen = parser.parse_args()
    # An edit may ask for any amount of memory, and here no child process has a limit of its own.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    rows: list[Row] = []
    for turn, style in enumerate(styles()):
        if not chosen.styles or style_name(style) in chosen.styles:
            rows += rows_of(style, chosen.by, chosen.seconds, chosen.only, turn, chosen.every)
            if chosen.verbose:
                print(style_name(style), summary(rows_of_style(rows, style)), sep="\n", file=sys.stderr, flush=True)
    print(summary(rows))
    seconds = sorted(row.seconds for row in rows)
    if not rows:
        raise SystemExit("no variant of a style has that in its label")
    print(f"seconds a file: median {seconds[len(seconds) // 2]:.2f}, most {seconds[-1]:.2f}")
    if chosen.write:
        TABLE.write_text(f"# Confusion table\n\n{table(rows)}\n\n```\n{summary(rows)}\n```\n")


if __name__ == "__main__":
    main()
