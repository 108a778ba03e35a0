"""A file's text as Python reads it, or why it can't, with the line and what to change."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
from pathlib import Path

from qkv.adapters.tracebacks import cut, one_line
from qkv.errors import CandidateError


def parsed_file(file: Path, shown: str, source: bytes | None = None) -> ast.Module:
    """The syntax tree of a file.

    Args:
        file: where it stands.
        shown: its name for messages.
        source: its text, where that is not what it holds.

    Raises:
        CandidateError: it holds no Python, or no code.
    """
    try:
        # Not by the file's name: Python would look the line up there, and count wrongly in a long one.
        tree = ast.parse(_text(file.read_bytes() if source is None else source, shown))
    except SyntaxError as error:
        raise syntax_error(error, shown) from None
    except (RecursionError, MemoryError):
        raise CandidateError(f"{shown} is too long, or nested too deeply, to be read as Python") from None
    except (ValueError, OSError) as error:
        raise CandidateError(f"{shown} can't be read as Python: {one_line(error)}") from None
    if not tree.body:
        raise CandidateError(f"{shown} holds no code", hint="save the file in your editor, or name another one")
    return tree


def _text(source: bytes, shown: str) -> str:
    """The file as Python decodes it before it is run; the parser alone overlooks bytes in comments."""
    if source.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CandidateError(f"{shown} is text in UTF-16, which Python doesn't read", hint="save the file as UTF-8")
    if b"\0" in source:
        line = source.count(b"\n", 0, source.index(b"\0")) + 1
        raise CandidateError(
            f"{shown}:{line} is not Python: there is a null byte", hint="save the file as text in UTF-8"
        )
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except SyntaxError as error:
        if "unknown encoding" in str(error):
            raise
        encoding = "utf-8"
    try:
        return source.decode(encoding)
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        code = source.splitlines()[line - 1].decode(encoding, "replace")
        byte = source[error.start : error.start + 1]
        raise CandidateError(
            f"{shown}:{line} is not Python: {byte!r} is no character in {encoding.upper()}",
            hint="save the file as UTF-8, or declare its encoding in the first line: # -*- coding: latin-1 -*-",
            detail=cut(code.strip()),
        ) from None


def syntax_error(error: SyntaxError, shown: str) -> CandidateError:
    """The error for code that Python can't read, with its line and a mark below the place."""
    place = f"{shown}:{error.lineno}" if error.lineno else shown
    code = (error.text or "").rstrip("\n")
    column = min(max((error.offset or 1) - 1, 0), len(code))
    # Of a long line, the part around the place.
    start = max(column - 100, 0) if len(code) > 200 else 0
    notebook = code.lstrip().startswith(("%", "!"))
    return CandidateError(
        f"{place} is not Python: {error.msg}",
        hint="take out the notebook's lines that start with % or !" if notebook else "",
        detail=f"{cut(code[start:])}\n{' ' * (column - start)}^" if code.strip() else "",
    )
