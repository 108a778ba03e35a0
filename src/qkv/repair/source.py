"""Source: the code of a file that is to be mended, and how an edited one goes back into it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import AnyStr

from qkv.adapters.code_lines import code_lines
from qkv.adapters.notebook_text import notebook_with
from qkv.adapters.notebooks import cell_of
from qkv.adapters.texts import is_notebook, text_of
from qkv.repair.code import Code
from qkv.report import Patch
from qkv.report.changes import NO_END


@dataclass(frozen=True)
class Source:
    """The code of a file.

    Attributes:
        file: the file as given.
        data: what it holds.
        code: its code; of a notebook all code cells one below the other.
        cells: the line that each cell of a notebook begins at; empty for other files.
    """

    file: str
    data: bytes
    code: Code
    cells: Sequence[int] = ()

    @classmethod
    def of(cls, file: str, known: Sequence[float] = ()) -> Source:
        """The code of a file.

        Args:
            file: its name.
            known: numbers that it is meant to have somewhere.

        Raises:
            OSError, SyntaxError, ValueError, CandidateError: there is none, or it can't be read.
        """
        data = Path(file).read_bytes()
        if not is_notebook(file):
            return cls(file, data, Code(data, known))
        text = text_of(file, data)
        return cls(file, data, Code(text.source.encode(), known), text.cells)

    def whole(self, edited: bytes) -> bytes | None:
        """What the file holds with its code edited; None where a notebook can't hold it."""
        if not self.cells:
            return edited
        whole = notebook_with(self.data.decode(), edited.decode())
        return None if whole is None else whole.encode()

    def told(self, passes: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        """The same question, asked of edited code and not of a whole file."""

        def of_code(edited: bytes) -> bool:
            whole = self.whole(edited)
            return whole is not None and passes(whole)

        return of_code

    def patch(self, edited: bytes, mends: str) -> Patch:
        """The patch that edits its code.

        Args:
            edited: the code as it is to be.
            mends: what was wrong, in words.
        """
        file, before, after = self._in_one_cell(edited) if self.cells else (self.file, self.code.data, edited)
        whole = self.whole(edited) or self.data
        patch = patch_between(file, before, after)
        return replace(patch, mends=mends, original=self.data, edited=whole, path=self.file)

    def _in_one_cell(self, edited: bytes) -> tuple[str, bytes, bytes]:
        """The cell that changes, as it is and as it is to be; the notebook and all of its code where several do."""
        old, new = (data.splitlines(keepends=True) for data in (self.code.data, edited))
        blocks = changed(old, new)
        cell, _ = cell_of(self.cells, blocks[0][1] + 1)
        start = self.cells[cell - 1] - 1
        end = self.cells[cell] - 1 if cell < len(self.cells) else len(old)
        if blocks[-1][2] > end:
            return self.file, self.code.data, edited
        behind = len(old) - end
        return f"{self.file} cell {cell}", b"".join(old[start:end]), b"".join(new[start : len(new) - behind])


def patch_between(file: str, before: bytes, after: bytes) -> Patch:
    """The patch that makes one text of a file of another."""
    old, new = (code_lines(data.decode("utf-8", "surrogateescape"), keepends=True) for data in (before, after))
    _, start, end, to_start, to_end = changed(old, new)[0]
    diff = difflib.unified_diff(old, new, file, file)
    return Patch(
        file=file,
        line=start + 1,
        before="".join(old[start:end]).rstrip("\r\n"),
        after="".join(new[to_start:to_end]).rstrip("\r\n"),
        diff="".join(line if line.endswith(("\n", "\r")) else f"{line}\n{NO_END}\n" for line in diff),
        original=before,
        edited=after,
        path=file,
    )


def changed(old: Sequence[AnyStr], new: Sequence[AnyStr]) -> list[tuple[str, int, int, int, int]]:
    """Where two lists of lines differ: what happens, from and up to which line of the one and of the other."""
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [block for block in blocks if block[0] != "equal"]
