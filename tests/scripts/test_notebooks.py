"""Notebooks: cells in one source, IPython's own lines left out, places by cell and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.adapters.notebooks import cell_of, source_of_notebook
from qkv.adapters.texts import text_of
from qkv.errors import CandidateError


def notebook(*cells: str | tuple[str, str]) -> str:
    told = [cell if isinstance(cell, tuple) else ("code", cell) for cell in cells]
    made = [{"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)} for kind, source in told]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_cells_stand_one_below_the_other() -> None:
    source, written, starts = source_of_notebook(
        notebook("a = 1\nb = 2", ("markdown", "# x"), "", "c = 3\n"), "n.ipynb"
    )
    assert source == written == "a = 1\nb = 2\n\nc = 3\n"
    assert starts == [1, 3, 4]
    assert [cell_of(starts, line) for line in (1, 2, 4)] == [(1, 1), (1, 2), (3, 1)]


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install torch\nx = 1", "pass\nx = 1"),
        ("files = !ls\nif files:\n    %time x = 1", "files = None\nif files:\n    pass"),
        ("torch.softmax?\nhelp??\nx = 1", "pass\npass\nx = 1"),
        ("?torch\nx = 1", "pass\nx = 1"),
        ("%%time\nx = 1", "\nx = 1"),
        ("%%bash\nls\nrm x", "\n\n"),
        ('s = """\n%d tokens\n"""', 's = """\n%d tokens\n"""'),
    ],
)
def test_what_only_ipython_reads_is_left_out(cell: str, python: str) -> None:
    source, written, _ = source_of_notebook(notebook(cell, "y = 2"), "n.ipynb")
    assert source == f"{python}\ny = 2\n"
    assert written.startswith(cell)


def test_an_older_notebook_is_read_too() -> None:
    cells = [{"cell_type": "code", "input": ["x = 1\n", "y = 2"], "outputs": []}]
    assert source_of_notebook(json.dumps({"worksheets": [{"cells": cells}]}), "n.ipynb")[0] == "x = 1\ny = 2\n"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"cells": [{}]}', notebook(("markdown", "# only"))])
def test_what_is_no_notebook_is_refused(text: str) -> None:
    with pytest.raises(CandidateError, match=r"n\.ipynb (is no notebook|has no cell with code)"):
        source_of_notebook(text, "n.ipynb")


def test_a_mistake_in_a_cell_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "n.ipynb"
    file.write_text(notebook("x = 1", "y = (2"), encoding="utf-8")
    with pytest.raises(CandidateError, match=r"n\.ipynb:2 is not Python"):
        text_of(str(file))
