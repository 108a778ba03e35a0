"""Lines of code as Python counts them: a form feed or a separator of another alphabet is no end of a line."""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def code_lines(code: str, *, keepends: bool = False) -> list[str]:
    """The lines of some code, with or without what ends each."""
    lines = _LINE.findall(code)
    return lines if keepends else [line.rstrip("\r\n") for line in lines]
