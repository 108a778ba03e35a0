"""Page files: a page is written whole or not at all, and over nothing that is no page of qkv unless it is asked for."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

OURS = b'<meta name="generator" content="qkv">'
"""What a page of qkv begins with."""


def is_page(file: Path) -> bool:
    """Whether a file that is there is a page of qkv; of no file more is read than its beginning."""
    with file.open("rb") as opened:
        return OURS in opened.read(1000)


def is_plain(file: Path) -> bool:
    """Whether a path leads to an ordinary file, or to nothing yet: no folder, device, or pipe."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        return True


def write_whole(file: Path, text: str) -> None:
    """Nothing; writes a new file beside it, and puts that into its place in one step. A link is followed.

    Raises:
        OSError: it can't be written, or is no ordinary file.
    """
    target = file.resolve()
    if not is_plain(target):
        raise OSError(f"{file} is no ordinary file")
    handle, new = tempfile.mkstemp(prefix=".qkv-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(text.encode("utf-8"))
        Path(new).chmod(target.stat().st_mode if target.exists() else 0o666 & ~_umask())
        Path(new).replace(target)
    finally:
        Path(new).unlink(missing_ok=True)


def _umask() -> int:
    """What new files of this process are not allowed; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
