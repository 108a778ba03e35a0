"""Writing a repair into the user's file: all of it or nothing, and only over what was judged."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import tempfile
from pathlib import Path

from qkv.errors import CandidateError
from qkv.report import Patch


def write(patch: Patch) -> None:
    """Nothing; puts the repaired text into its file, whose mode stays as it is. A link is followed.

    Raises:
        CandidateError: the file may not be written, or it is no longer as it was judged. It is left alone then.
    """
    name = patch.path
    try:
        file = Path(name).resolve(strict=True)
        if not file.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(file, os.W_OK):
            raise CandidateError(f"{name} is read-only, so it was left as it is", hint=f"chmod u+w {shlex.quote(name)}")
        if file.read_bytes() != patch.original:
            raise CandidateError(
                f"{name} has changed since it was judged, so it was left as it is", hint="check it again"
            )
        _replace(file, patch.edited)
    except OSError as error:
        raise CandidateError(f"{name} can't be written: {error.strerror or error}") from None


def _replace(file: Path, data: bytes) -> None:
    """Nothing; writes a new file beside it, and puts that into its place in one step."""
    handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        shutil.copymode(file, beside)
        Path(beside).replace(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(beside).unlink()
