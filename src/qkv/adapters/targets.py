"""What the user has typed: which file, and which name in it."""

from __future__ import annotations

import contextlib
import re
import stat
from difflib import get_close_matches
from pathlib import Path

from qkv.adapters.tracebacks import cut
from qkv.errors import CandidateError

_MANY = 200
"""Files in a folder from which on none is likely to be what a name was meant for."""
_LISTED = 12
_FILE = re.compile(r"^(?P<path>.+\.(?:py|ipynb))(?::(?P<name>[^:\\/]*))?$", re.IGNORECASE | re.DOTALL)
_NAMED = re.compile(r"^(?P<path>.+?):(?P<name>[A-Za-z_][\w.]*)$", re.DOTALL)
_IMPORT_PATH = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def split_target(target: str) -> tuple[str, str]:
    """The file or module of a target, and the name in it (empty when left out).

    Raises:
        CandidateError: it is neither a Python file nor the import path of a module.
    """
    if target.startswith("~"):
        # No shell has read it, where it stands in quotes.
        with contextlib.suppress(RuntimeError):
            target = str(Path(target).expanduser())
    if match := _FILE.match(target):
        return match["path"], match["name"] or ""
    match = _NAMED.match(target)
    path, name = (match["path"], match["name"]) if match else (target, "")
    if _IMPORT_PATH.match(path) and not Path(path).exists():
        return path, name
    raise _not_python(path)


def absolute(file: str) -> str:
    """The absolute path of a file as it was named: by this a text stands in for what the file holds."""
    with contextlib.suppress(RuntimeError):
        file = str(Path(file).expanduser())
    return str(Path(file).absolute())


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two names are those of one file, by links too."""
    return Path(one).resolve() == Path(other).resolve()


def _not_python(path: str) -> CandidateError:
    place = Path(path)
    if not path.strip():
        return CandidateError("no file is named", hint="qkv check path/to/file.py")
    if place.is_dir():
        inside = sorted(file.name for file in place.glob("*.py"))[:_LISTED]
        hint = f"name one of its files: {', '.join(inside)}" if inside else "it holds no .py file"
        return CandidateError(f"{path} is a directory", hint=hint)
    if not place.exists():
        return _no_such_file(path)
    hint = "give a file whose name ends in .py, and the name in it after a colon: file.py:Attention"
    return CandidateError(f"{path} is not a Python file", hint=hint)


def _no_such_file(path: str) -> CandidateError:
    place = Path(path)
    message = f"no such file: {path if path == path.strip() else repr(path)}"
    if not place.parent.is_dir():
        return CandidateError(message, hint=f"there is no folder {place.parent}")
    names = {file.stem: file.name for file in place.parent.iterdir() if file.suffix == ".py"}
    hint = f"there is none in {place.parent.resolve()}"
    if 0 < len(names) <= _MANY:
        close = get_close_matches(place.stem, names, n=1)
        known = sorted(names.values())
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        hint = f"did you mean {names[close[0]]!r}?" if close else f"known: {', '.join(known[:_LISTED])}{more}"
    return CandidateError(message, hint=hint)


def existing_file(path: str) -> Path:
    """Where a file stands.

    Raises:
        CandidateError: there is none, or it is none that could be read.
    """
    file = Path(path)
    try:
        kind = file.stat().st_mode
    except FileNotFoundError:
        raise _no_such_file(path) from None
    except (OSError, ValueError) as error:
        # A link that leads to itself, a name that is too long, a folder that is closed.
        reason = getattr(error, "strerror", None) or str(error)
        raise CandidateError(f"{cut(path)} can't be read: {reason}") from None
    if stat.S_ISDIR(kind):
        raise _not_python(path)
    if not stat.S_ISREG(kind):
        raise CandidateError(f"{path} is no regular file", hint="save the code in a file whose name ends in .py")
    return file.absolute()
