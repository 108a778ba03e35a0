"""From an exception that the candidate raised to a `CandidateError` that shows the candidate's own lines only."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType

from qkv.adapters.shaping.failing import shape_clash
from qkv.errors import CandidateError

MOST_LINES = 15
"""How much of a traceback is kept: its end says where it broke."""

LONGEST_LINE = 200
"""Characters of a line of code or of a message that are kept."""

NO_AXES: Mapping[str, int] = MappingProxyType({})
"""Where nothing is known of the sizes of a call."""

_QKV = str(Path(__file__).parents[1]) + os.sep
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What moves the cursor, rings or changes colours in a terminal."""

ELSEWHERE = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_QKV})
"""Folders whose files are not the user's."""


def raised(doing: str, error: BaseException, file: str = "", axes: Mapping[str, int] = NO_AXES) -> CandidateError:
    """The error to raise when the candidate raised one itself.

    Args:
        doing: what was going on, as the start of a sentence: ``"calling Attention"``.
        error: what the candidate raised.
        file: the candidate's file; its frames are the ones worth showing.
        axes: size of each axis of the call by name, to explain shapes with.
    """
    if isinstance(error, CandidateError):
        return error
    detail = own_lines(error.__traceback__, file)
    if ran_out_of_memory(error):
        limit = memory_limit()
        message = f"{doing} ran out of memory" + (f" (the limit is {in_bytes(limit)})" if limit else "")
        return CandidateError(message, hint=more_memory(limit) if limit else "give smaller sizes", detail=detail)
    if isinstance(error, SystemExit):
        message = f"{doing} ended the program: sys.exit({'' if error.code is None else cut(repr(error.code))})"
    else:
        message = f"{doing} raised {one_line(error)}"
    hint = _advice(error) or shape_clash(error, partial(is_own, file=file), axes)
    return CandidateError(message, hint=hint, detail=detail)


def _advice(error: BaseException) -> str:
    """What to change, for the exceptions that come of asking a person who isn't there."""
    if isinstance(error, EOFError):
        return "take out input(), or put it under `if __name__ == '__main__':`"
    return "take out breakpoint()" if type(error).__name__ == "BdbQuit" else ""


def one_line(error: BaseException, most: int = 500) -> str:
    """The type and text of an exception in one line: ``ValueError: 7 is odd``."""
    try:
        text = cut(" ".join(str(error)[: 4 * most].split()), most)
    except BaseException:  # noqa: BLE001 - the text of an exception is the candidate's code too
        text = "(its message can't be printed)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cut(text: str, most: int = LONGEST_LINE) -> str:
    """The text without what a terminal would act on, and not longer than that."""
    text = _UNSEEN.sub("", text)
    return text if len(text) <= most else text[: most - 1] + "…"


def own_lines(trace: TracebackType | None, file: str = "") -> str:
    """The end of a traceback, only the frames in the candidate's own files; where none is its own, those of libraries.

    Frames of qkv itself are never among them: they say nothing to the candidate's author.
    """
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if is_own(frame.filename, file)]
    others = [frame for frame in frames if not frame.filename.startswith((_QKV, "<"))]
    lines = [f'File "{f.filename}", line {f.lineno}, in {f.name}\n    {cut(f.line or "")}' for f in own or others[-3:]]
    return "\n".join("\n".join(lines).splitlines()[-MOST_LINES:])


def is_of_qkv(trace: TracebackType | None) -> bool:
    """Whether an exception was raised by qkv's own code, no frame of the candidate's being above it."""
    frames = traceback.extract_tb(trace)
    return bool(frames) and frames[-1].filename.startswith(_QKV)


def frame_of_qkv(trace: TracebackType | None) -> str:
    """Where in qkv an exception of its own was raised: ``debugger.py:120``. Empty where no frame is qkv's."""
    own = [frame for frame in traceback.extract_tb(trace) if frame.filename.startswith(_QKV)]
    return f"{Path(own[-1].filename).relative_to(_QKV).as_posix()}:{own[-1].lineno}" if own else ""


def is_own(path: str, file: str = "") -> bool:
    """Whether a frame's file is the user's: the candidate's file itself, or none of Python's, a package's or qkv's."""
    if file and path == file:
        return True
    return not path.startswith("<") and "site-packages" not in path and not path.startswith(ELSEWHERE)


def code_at(path: str, line: int) -> str:
    """The source text of one line without its indentation; empty where it can't be read."""
    return cut(linecache.getline(path, line).strip())


def shown(path: str) -> str:
    """A file's name as a person would give it: relative where it stands below the working directory."""
    with contextlib.suppress(OSError, ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def in_bytes(number: int) -> str:
    """A number of bytes in words: ``4 GiB``, ``512 MiB``."""
    size, unit = (number / 2**30, "GiB") if number >= 2**30 else (number / 2**20, "MiB")
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"


def more_memory(limit: int) -> str:
    """The line to type for twice the memory."""
    return f"if it only needs more memory: --memory-limit {in_bytes(2 * limit).replace(' ', '').removesuffix('iB')}"


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory could not be had, in Python's, NumPy's or torch's words."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def memory_limit() -> int:
    """How much data this process may have, in bytes; 0 where there is no limit or no way to ask."""
    try:
        import resource
    except ImportError:
        return 0
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft
