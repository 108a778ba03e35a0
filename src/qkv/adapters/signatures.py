"""What a class or function takes, as data: from its signature, its source or its docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from qkv.adapters.messages import Argument, Scalar
from qkv.adapters.parts import is_module, is_module_class

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "args",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}


def is_plain_function(value: Any) -> bool:
    """Whether a candidate is a function or stands for one (a partial, a compiled one), not an object with state."""
    if isinstance(value, type) or is_module(value) or hasattr(type(value), "forward"):
        return False
    return inspect.isroutine(value) or type(value).__module__.partition(".")[0] in ("functools", "torch", "triton")


def calling_method(value: Any) -> Callable[..., Any] | None:
    """What runs when the candidate is called: the forward of a module, ``__call__`` or ``forward``, or itself."""
    if is_plain_function(value):
        return value
    cls = value if isinstance(value, type) else type(value)
    order = ("forward", "__call__") if is_module_class(cls) else ("__call__", "forward")
    found = next((name for name in order if any(name in vars(base) for base in cls.__mro__[:-1])), None)
    if found is None:
        return None
    method = getattr(value, found)
    return _without_self(method) if isinstance(value, type) else method


def _without_self(function: Any) -> Any:
    try:
        return function.__get__(object())
    except Exception:  # noqa: BLE001 - any descriptor may stand here
        return function


def arguments_of(value: Any) -> tuple[Argument, ...]:
    """The arguments in the signature of a class or function; none where it has no readable signature."""
    try:
        parameters = inspect.signature(original(value)).parameters.values()
    except (TypeError, ValueError):
        return _documented(value)
    return tuple(_argument(one) for one in parameters)


def original(value: Any) -> Any:
    """The Python function that a compiled one was made of."""
    for name in ("_torchdynamo_inline", "py_func"):
        value = getattr(value, name, value)
    return value


def _documented(value: Any) -> tuple[Argument, ...]:
    """The arguments that the first line of a docstring gives, as those of functions written in C do."""
    match = re.search(r"^\s*\w+(\(.*?\))\s*(->|$)", str(getattr(value, "__doc__", "")), re.DOTALL)
    try:
        (node,) = ast.parse(f"def f{match[1] if match else None}: ...").body
    except (SyntaxError, ValueError):
        return ()
    if not isinstance(node, ast.FunctionDef):
        return ()
    given = node.args.posonlyargs + node.args.args
    defaults = [None] * (len(given) - len(node.args.defaults)) + node.args.defaults
    pairs = [("either", *pair) for pair in zip(given, defaults, strict=True)]
    pairs += [("keyword", *pair) for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
    return tuple(
        Argument(
            name=one.arg,
            kind=kind,  # type: ignore[arg-type]
            required=default is None,
            default=_default(default.value) if isinstance(default, ast.Constant) else None,
            annotation=ast.unparse(one.annotation) if one.annotation else "",
        )
        for kind, one, default in pairs
    )


def _argument(one: inspect.Parameter) -> Argument:
    starred = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    return Argument(
        name=one.name,
        kind=_KINDS[one.kind],  # type: ignore[arg-type]
        required=one.default is one.empty and not starred,
        default=_default(one.default),
        annotation=_annotation(one.annotation),
    )


def _default(value: Any) -> Scalar | tuple[int, int]:
    """A default as far as it can be passed on: a scalar, or the two numbers of a window; None for any other."""
    if isinstance(value, tuple | list) and len(value) == 2 and all(type(one) is int for one in value):
        return value[0], value[1]
    return as_scalar(value) if is_scalar(value) else None


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    text = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    return text[:500]


def is_scalar(value: Any) -> bool:
    """Whether a value is a plain scalar, a NumPy one included."""
    return value is None or isinstance(value, bool | int | float | str | np.bool_ | np.integer | np.floating)


def as_scalar(value: Any) -> Scalar:
    """The plain Python scalar of a value for which `is_scalar` holds; long text is cut."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return str(value)[:1000]
    # A subclass, such as an enum's member, becomes the plain number.
    return value if value is None or isinstance(value, bool) else (int if isinstance(value, int) else float)(value)
