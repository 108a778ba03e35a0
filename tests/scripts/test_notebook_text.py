"""A notebook's text with one line of code changed: every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qkv.adapters.notebook_text import notebook_with
from qkv.adapters.notebooks import source_of_notebook

CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "metadata": {}, "source": ["# é\n", "x = 1"]},
    {"cell_type": "code", "execution_count": 3, "metadata": {"b": 1, "a": [1.50, 2]}, "outputs": [{"text": ["x = 1"]}],
     "source": ["%time\n", "x = 1\n", "y = 'é'\n", "z = 3"]},
    {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": ["x = 1"]},
]  # fmt: skip


def notebook(*, indent: int | None = 1, ensure_ascii: bool = False, joined: bool = False) -> str:
    cells = [{**cell, "source": "".join(cell["source"]) if joined else cell["source"]} for cell in CELLS]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=indent, ensure_ascii=ensure_ascii) + "\n"


@pytest.mark.parametrize("indent", [1, 4, None])
@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = 1\ny = 'é'", "x = 'ü\"'\ny = 'é'"),  # a line
        ("z = 3\n", "z = 4\n"),  # a cell's last line, which ends without a line break
        ("z = 3\nx = 1\n", "z = 3\nx = [1,\n     2]\n"),  # a cell of one line becomes two
        ("y = 'é'\n", "w = 2\ny = 'é'\n"),  # one more
        ("x = 1\ny = 'é'\n", "y = 'é'\n"),  # one less
        ("z = 3\n", ""),  # the last one
    ],
)
def test_only_what_changes_is_written(indent: int | None, ensure_ascii: bool, joined: bool, old: str, new: str) -> None:
    text = notebook(indent=indent, ensure_ascii=ensure_ascii, joined=joined)
    source = source_of_notebook(text, "n.ipynb")[0]
    assert source.count(old) == 1
    changed = notebook_with(text, source.replace(old, new))
    assert changed is not None
    assert source_of_notebook(changed, "n.ipynb")[0] == source.replace(old, new)
    # Whatever is no code of these cells is as it was, to the letter.
    assert changed == json.dumps(json.loads(changed), indent=indent, ensure_ascii=ensure_ascii) + "\n"
    before, after = json.loads(text), json.loads(changed)
    for cell in (*before["cells"][1:], *after["cells"][1:]):
        cell["source"] = []
    assert before == after


def test_what_cannot_be_written_is_refused() -> None:
    text = notebook()
    source = source_of_notebook(text, "n.ipynb")[0]
    assert notebook_with(text, source.replace("pass\n", "print()\n")) is None  # %time stands there
    assert notebook_with(text, source.replace("z = 3\nx = 1\n", "a\n")) is None  # two cells at once
    assert notebook_with(text, source) == text
