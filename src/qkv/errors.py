"""The exceptions of qkv. Each says what was given, what was expected, where, why, and the next line to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class QkvError(Exception):
    """Base of all errors that qkv raises on purpose."""


class SpecError(QkvError, ValueError):
    """A spec that contradicts itself, or a field of it that can't be read."""


class ShapeError(QkvError, ValueError):
    """Two arrays, or an array and the spec, whose axes don't match."""


class CandidateError(QkvError):
    """The candidate could not be loaded, built or run. The verdict is then ``failed``."""

    def __init__(
        self, message: str, *, hint: str = "", detail: str = "", fatal: bool = False, crash: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What the user can type or change next."""
        self.detail = detail
        """The end of the candidate's own traceback or output, for reading; may be empty."""
        self.fatal = fatal
        """Whether the process that held the candidate is gone, so that no further call can be made."""
        self.crash = crash
        """Whether it ended that process itself, and broke no limit."""
        self.recording: Any = None
        """What the candidate did until it failed, where it was watched."""


def as_asked(hint: str, command: str) -> str:
    """The hint, with each command line in it that judges another target as the one that was typed, flags and all.

    Args:
        hint: may hold ``qkv check attention.py:Name``.
        command: what was typed: ``qkv explain attention.py --causal``; empty for nothing.
    """
    words = shlex.split(command)

    def asked(found: re.Match[str]) -> str:
        (target,) = shlex.split(found[1])
        file = target.rpartition(":")[0]
        places = [place for place, word in enumerate(words) if word in (file, target) or word.startswith(f"{file}:")]
        return shlex.join([*words[: places[0]], target, *words[places[0] + 1 :]]) if places else found[0]

    return re.sub(r"qkv check ('[^']*'|[^\s'\"]+)", asked, hint)


def nearest(word: str, known: Iterable[str]) -> str:
    """A clause that names the known word nearest to ``word``, or lists all of them when none is near."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
