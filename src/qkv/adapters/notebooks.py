"""A notebook as one Python source, and the cell that each of its lines comes from."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from qkv.errors import CandidateError

_MAGIC = re.compile(r"^(\s*)(?:(\w+)\s*=\s*)?(?:[%!?].*|[\w.]+\?{1,2}\s*)$")
"""A line that IPython reads and Python doesn't: ``%matplotlib inline``, ``files = !ls``, ``torch.softmax?``."""

_RUNS_THE_REST = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Magics of a whole cell under which its other lines are Python."""


def source_of_notebook(text: str, shown: str) -> tuple[str, str, list[int]]:
    """The code cells one below the other, as Python and as they are written, and the line that each of them begins at.

    Args:
        text: the ``.ipynb`` file.
        shown: its name for messages.

    Raises:
        CandidateError: it is no notebook, or one without code.
    """
    try:
        written = [_code(cell).rstrip("\n") for cell in code_cells(json.loads(text))]
    except (ValueError, KeyError, TypeError, IndexError):
        raise CandidateError(f"{shown} is no notebook", hint="save it again in Jupyter, as .ipynb or .py") from None
    sources = [_python(source) for source in written]
    if not any(source.strip() for source in sources):
        raise CandidateError(f"{shown} has no cell with code", hint="name another file")
    starts, line = [], 1
    for source in sources:
        starts.append(line)
        line += source.count("\n") + 1
    return "\n".join(sources) + "\n", "\n".join(written) + "\n", starts


def code_cells(notebook: Any) -> list[Any]:
    """The cells with code in a notebook's JSON value.

    Raises:
        KeyError, TypeError, IndexError: it is no notebook's.
    """
    cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]  # before 2015
    return [cell for cell in cells if cell["cell_type"] == "code"]


def cell_of(starts: Sequence[int], line: int) -> tuple[int, int]:
    """The number of the code cell, from 1, that a line of the joint source stands in, and its line there."""
    cell = sum(start <= line for start in starts)
    return cell, line - starts[cell - 1] + 1


def _code(cell: Any) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    return source if isinstance(source, str) else "".join(source)


def _python(source: str) -> str:
    """A cell's source with nothing where IPython's own lines stand; lines keep their numbers."""
    lines = source.split("\n")
    first = lines[0].strip()
    if first.startswith("%%"):
        if not first.startswith(_RUNS_THE_REST):
            return "\n" * (len(lines) - 1)
        lines[0] = ""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        lines = [_MAGIC.sub(lambda found: f"{found[1]}{found[2]} = None" if found[2] else f"{found[1]}pass", line)
                 for line in lines]  # fmt: skip
    return "\n".join(lines)
