"""Identification of black boxes: of each option that was drawn, how often is it read rightly?

Run: ``python -m benchmarks.identification [N] [--seed S] [--style numpy|torch|fused] [--write]``. Each box is a
function of query, key and value built from a drawn description, once in float64 and once in float32; what
``qkv.identify`` says of it is held against the description. Constants count as right with four digits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import qkv
from benchmarks.black_boxes import Drawn, builders_for, drawn_from
from benchmarks.black_boxes.truths import OPTIONS, Answer, answers

TABLE = Path(__file__).parent / "identification.md"


@dataclass(frozen=True)
class Row:
    """One box identified.

    Attributes:
        drawn: what it computes.
        style: who built it.
        dtype: what it answers in.
        answers: what was said of each option.
        why: why nothing could be read.
        known: whether the answer's own numbers were found to be the box's.
        seconds: how long it took.
    """

    drawn: Drawn
    style: str
    dtype: str
    answers: tuple[Answer, ...]
    why: str
    known: bool
    seconds: float

    @property
    def right(self) -> bool:
        """Whether every option was read rightly."""
        return all(answer.verdict == "right" for answer in self.answers)

    @property
    def misled(self) -> bool:
        """Whether anything was said that is not so."""
        return any(answer.verdict == "wrong" for answer in self.answers)


def identified(drawn: Drawn, style: str, dtype: str) -> Row:
    """What is said of one box."""
    box = builders_for(drawn)[style](drawn, dtype)
    started = time.perf_counter()
    identity = qkv.identify(box, drawn.given, layout=drawn.layout)
    seconds = time.perf_counter() - started
    return Row(drawn, style, dtype, tuple(answers(drawn, identity)), identity.why, identity.known, seconds)


def rows_of(seeds: Iterable[int], only: str = "") -> Iterator[Row]:
    """Every box of these seeds in both precisions; the styles take turns, or one of them builds all that it can."""
    for seed in seeds:
        drawn = drawn_from(seed)
        styles = list(builders_for(drawn))
        style = only or styles[seed % len(styles)]
        for dtype in ("float64", "float32") if style in styles else ():
            yield identified(drawn, style, dtype)


def table(rows: list[Row]) -> str:
    """A Markdown table with a line an option, for each precision."""
    lines = []
    for dtype in ("float64", "float32"):
        told = [answer for row in rows if row.dtype == dtype for answer in row.answers]
        lines += [f"| {dtype} | drawn | right | wrong | undecided | claimed where there is none |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
        for option in OPTIONS:
            there = [answer.verdict for answer in told if answer.option == option and answer.drawn]
            claims = sum(a.option == option and not a.drawn and a.verdict == "wrong" for a in told)
            counts = (there.count(verdict) for verdict in ("right", "wrong", "undecided"))
            lines.append(f"| {option} | {len(there)} | {' | '.join(str(count) for count in counts)} | {claims} |")
        lines.append("")
    return "\n".join(lines)


def summary(rows: list[Row]) -> str:
    """Shares and times, and every failure by its seed."""
    lines = []
    for dtype in ("float64", "float32"):
        those = [row for row in rows if row.dtype == dtype]
        seconds = [row.seconds for row in those]
        lines.append(
            f"{dtype}: {len(those)} boxes, all right {sum(row.right for row in those)}, "
            f"something wrong {sum(row.misled for row in those)}, of these held to be known "
            f"{sum(row.misled and row.known for row in those)}; "
            f"seconds: median {statistics.median(seconds):.2f}, most {max(seconds):.2f}"
        )
    return "\n".join([*lines, *(line for row in rows if not row.right for line in failure(row))])


def failure(row: Row) -> Iterator[str]:
    """A box that was not read rightly, and what was said of it."""
    yield f"{row.style} {row.dtype} {row.drawn}{' (held to be known)' if row.known else ''}"
    if row.why:
        yield f"    nothing read: {row.why.splitlines()[0]}"
        return
    for answer in row.answers:
        if answer.verdict != "right":
            yield f"    {answer.option} {answer.verdict}: expected {short(answer.expected)}, got {short(answer.got)}"


def short(value: object) -> str:
    """A value on one line."""
    text = " ".join(str(value).split())
    return text if len(text) < 90 else f"{text[:87]}..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first box")
    parser.add_argument("--style", default="", help="numpy, torch or fused; else they take turns")
    parser.add_argument("--write", action="store_true", help="write the table beside this file")
    chosen = parser.parse_args()
    rows = list(rows_of(range(chosen.seed, chosen.seed + chosen.count), chosen.style))
    print(table(rows), summary(rows), sep="\n")
    if chosen.write:
        TABLE.write_text(f"# Identification of black boxes\n\n{table(rows)}\n```\n{summary(rows)}\n```\n")


if __name__ == "__main__":
    main()
