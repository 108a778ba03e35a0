"""What a candidate has put in the place of Python's, NumPy's or torch's own functions, which qkv uses as well."""

from __future__ import annotations

import builtins
import copy
import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from qkv.errors import CandidateError

Result = TypeVar("Result")

_KEEP = "leave the names of Python, NumPy and torch as they are, and give your own functions names of their own"
_BUILTINS = dict(builtins.__dict__)
_BEFORE = [(module, dict(module.__dict__)) for module in (builtins, np, np.random, random, copy)]


def with_builtins(action: Callable[[], Result], shown: str) -> Result:
    """What the action gives. Builtins that it has made unusable are put back, whatever comes of it.

    Args:
        action: runs a candidate's file.
        shown: the file, for the message.

    Raises:
        CandidateError: it has made some unusable; no line of Python, ours included, can do without them.
    """
    broken: list[str] = []
    try:
        result = action()
    finally:
        # Nothing here may need a builtin.
        for name, own in _BUILTINS.items():
            now = builtins.__dict__.get(name)
            if now is None and own is not None:
                builtins.__dict__[name] = own
                broken.append(name)
        if broken:
            raise CandidateError(f"{shown} replaces Python's own {', '.join(broken)} by nothing", hint=_KEEP)
    return result


def replaced() -> list[str]:
    """The names of what is no longer what it was when qkv was loaded: ``numpy.exp``, ``random.seed``."""
    found = [
        f"{module.__name__}.{name}"
        for module, before in _BEFORE
        for name, own in before.items()
        if callable(own) and vars(module).get(name) is not own
    ]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        # What it was before cannot be known: it may be the candidate that has imported it.
        spaces = (("torch", torch), ("torch.Tensor", torch.Tensor))
        found += [f"{prefix}.{name}" for prefix, space in spaces for name, one in vars(space).items()
                  if one is None and name != "newaxis" and not name.startswith("_")]  # fmt: skip
    return found


def blamed(doing: str) -> CandidateError | None:
    """The error for a failure of qkv's own code that such a replacement explains; None where there is none."""
    names = replaced()
    if not names:
        return None
    some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return CandidateError(f"{doing} failed: the candidate has replaced {some}, which qkv needs itself", hint=_KEEP)
