"""What can't be an attention, told by its form before it is called."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

from qkv.adapters.parts import is_module_class
from qkv.adapters.signatures import calling_method
from qkv.errors import CandidateError


def refuse(value: Any, name: str) -> None:
    """Nothing, where a candidate gives its result when it is called.

    Args:
        value: the candidate.
        name: its name.

    Raises:
        CandidateError: it is a class without a method that could be called, or its result would come later.
    """
    method = calling_method(value)
    cls = value if isinstance(value, type) else type(value)
    if method is None or getattr(method, "__name__", "") == "_forward_unimplemented":
        raise CandidateError(f"{name} has no method that could be called: {_lacking(cls)}", hint=_method(cls))
    called = name if method is value else f"{method.__name__} of {name}"
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise CandidateError(f"{called} is an `async def`, which computes nothing when it is called",
                             hint="write `def` in place of `async def`")  # fmt: skip
    if inspect.isgeneratorfunction(method):
        raise CandidateError(f"{called} holds a `yield`, so that it computes nothing when it is called",
                             hint="write `return` in place of `yield`")  # fmt: skip


def _lacking(cls: type) -> str:
    return "no forward" if is_module_class(cls) else "no __call__ and no forward"


def _method(cls: type) -> str:
    own = [name for name, one in vars(cls).items() if callable(one) and not name.startswith("__")]
    close = get_close_matches("forward", own, n=1, cutoff=0.7)
    if close:
        return f"call it forward: it is named {close[0]}"
    return f"define forward(self, x) in it, or name another: it has {', '.join(own)}" if own else (
        "define forward(self, x) in it"
    )  # fmt: skip
