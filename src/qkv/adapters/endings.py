"""The end of a long text, which begins with a whole line."""

from __future__ import annotations

LEFT_OUT = "…"
"""Stands for what came before."""


def end_of(text: str, most: int) -> str:
    """The last lines of a text, so many characters at most; of a longer line its end. What is left out is marked."""
    if len(text) <= most:
        return text
    start = len(text) - most + len(f"{LEFT_OUT}\n")
    end = text[start:]
    lines = end if text[start - 1] == "\n" else end.partition("\n")[2]
    return f"{LEFT_OUT}\n{lines}" if lines.strip() else f"{LEFT_OUT}{end}"
