"""Anatomy: somebody's code with, beside each line, what it makes. Every form of it is this document written out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qkv.report.document import Report
from qkv.report.json_form import plain, to_mapping

SCHEMA = 1

Mark = Literal["right", "wrong", ""]


@dataclass(frozen=True)
class Made:
    """One array that a line makes.

    Attributes:
        name: the field's name for it: ``attn_scores``; the code's own where it is nothing that is known.
        stage: the stage that makes it; empty for none.
        axes: names of its axes, empty for one that isn't known.
        shape: their sizes.
        note: what else is known of it: ``of token 1``, ``x 0.7071``.
        product: the matrix product that makes it, as ``(query key)(key dim) -> (query dim)``; empty for none.
        numbers: the same in numbers: ``(6 x 6)(6 x 3) = (6 x 3)``.
    """

    name: str
    stage: str
    axes: Sequence[str]
    shape: Sequence[int]
    note: str = ""
    product: str = ""
    numbers: str = ""

    def __str__(self) -> str:
        axes = ", ".join(f"{axis} {size}".strip() for axis, size in zip(self.axes, self.shape, strict=True))
        made = f"{self.name} ({axes})" if axes else self.name
        return f"{made} {self.note}".rstrip()


@dataclass(frozen=True)
class CodeLine:
    """One line of the code.

    Attributes:
        line: its number, from 1; in a notebook within its cell.
        code: the line as it is written.
        makes: what it makes, in the order in which it does.
        mark: whether that is right; empty where that isn't known.
        note: what is wrong there.
        cell: number of the notebook's cell, from 1; 0 in a script.
        file: its file, where lines of several are explained; empty otherwise.
    """

    line: int
    code: str
    makes: Sequence[Made] = ()
    mark: Mark = ""
    note: str = ""
    cell: int = 0
    file: str = ""

    @property
    def where(self) -> str:
        """What stands above its cell or file: ``cell 3``, ``model/rope.py``; empty where all lines stand in one."""
        return f"cell {self.cell}" if self.cell else self.file


@dataclass(frozen=True)
class Anatomy:
    """A file's code, explained.

    Attributes:
        report: the verdict with its grounds, as ``qkv check`` gives it.
        lines: the lines that were explained, and those between them.
    """

    report: Report
    lines: Sequence[CodeLine]


def anatomy_to_json(anatomy: Anatomy) -> str:
    """The anatomy as indented JSON."""
    return json.dumps(plain(anatomy_to_mapping(anatomy)), indent=2, ensure_ascii=False)


def anatomy_to_mapping(anatomy: Anatomy) -> Mapping[str, Any]:
    """The anatomy as plain dicts and lists; its field names are a promise that ``schema`` counts."""
    return {
        "schema": SCHEMA,
        "file": anatomy.report.candidate.file,
        "verdict": anatomy.report.verdict.value,
        "lines": [_line(line) for line in anatomy.lines],
        "report": to_mapping(anatomy.report),
    }


def _line(line: CodeLine) -> dict[str, Any]:
    makes = [
        {
            "name": made.name,
            "stage": made.stage or None,
            "axes": list(made.axes),
            "shape": list(made.shape),
            "product": made.product or None,
            "numbers": made.numbers or None,
            "note": made.note,
        }
        for made in line.makes
    ]
    return {
        "line": line.line,
        "cell": line.cell or None,
        "file": line.file or None,
        "code": line.code,
        "makes": makes,
        "mark": line.mark or None,
        "note": line.note,
    }
