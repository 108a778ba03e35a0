"""From an exception that the candidate raised to a `CandidateError` that shows the candidate's own lines only."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from qkv.errors import CandidateError

MOST_LINES = 15
"""How much of a traceback is kept: its end says where it broke."""

ELSEWHERE = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[1])}
)
"""Folders whose files are not the user's."""


def raised(doing: str, error: BaseException, file: str = "") -> CandidateError:
    """The error to raise when the candidate raised one itself.

    Args:
        doing: what was going on, as the start of a sentence: ``"calling Attention"``.
        error: what the candidate raised.
        file: the candidate's file; its frames are the ones worth showing.
    """
    if isinstance(error, CandidateError):
        return error
    if ran_out_of_memory(error):
        limit = memory_limit()
        return CandidateError(
            f"{doing} ran out of memory" + (f" (the limit is {limit / 2**30:.3g} GiB)" if limit else ""),
            hint="raise the memory limit, or give smaller sizes",
            detail=own_lines(error.__traceback__, file),
        )
    if isinstance(error, SystemExit):
        message = f"{doing} ended the program: sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        message = f"{doing} raised {one_line(error)}"
    hint = "take out input(), or put it under `if __name__ == '__main__':`" if isinstance(error, EOFError) else ""
    return CandidateError(message, hint=hint, detail=own_lines(error.__traceback__, file))


def one_line(error: BaseException, most: int = 500) -> str:
    """The type and text of an exception in one line: ``ValueError: 7 is odd``."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the text of an exception is the candidate's code too
        text = "(its message can't be printed)"
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_lines(trace: TracebackType | None, file: str = "") -> str:
    """The end of a traceback, only the frames in the candidate's own files; of all frames where none is its own."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if is_own(frame.filename, file)]
    lines = [f'File "{f.filename}", line {f.lineno}, in {f.name}\n    {f.line}' for f in own or frames[-3:]]
    return "\n".join("\n".join(lines).splitlines()[-MOST_LINES:])


def is_own(path: str, file: str) -> bool:
    """Whether a frame's file is the user's: the candidate's file itself, or none of Python's, a package's or qkv's."""
    if file and path == file:
        return True
    return not path.startswith("<") and "site-packages" not in path and not path.startswith(ELSEWHERE)


def code_at(path: str, line: int) -> str:
    """The source text of one line without its indentation; empty where it can't be read."""
    return linecache.getline(path, line).strip()


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
