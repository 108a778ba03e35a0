"""What a candidate says of itself: its signature, its scalars, its arrays. Nothing is changed or called."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qkv.adapters.messages import Argument, ArrayFacts, Facts, Framework, Scalar
from qkv.adapters.parts import is_learned, is_module, is_module_class, own_attributes, parts, slots
from qkv.adapters.values import dtype_name, is_tensor

_MOST = 2000
"""Attributes kept; a candidate with more is no attention."""
_DEEPEST = 3
_LONGEST = 200_000
_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "args",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}
_OWNERS = {"NonDynamicallyQuantizableLinear": "Linear"}


def facts_of(value: Any, name: str, file: str = "", members: Sequence[str] = ()) -> Facts:
    """What a class, an instance, a module or a function says of itself.

    Args:
        value: the candidate.
        name: the name it was found under.
        file: its file, as the user gave it.
        members: the other candidates in that file.
    """
    is_class = isinstance(value, type)
    plain = is_plain_function(value)
    cls = value if is_class else type(value)
    told_by = value if is_class or plain else cls
    return Facts(
        name=name,
        what="class" if is_class else "function" if plain else "object",
        framework=framework_of(value),
        is_module=is_module_class(cls),
        class_name=getattr(value, "__name__", name) if is_class or plain else cls.__name__,
        file=file,
        line=_line(told_by),
        doc=inspect.cleandoc(told_by.__doc__ or "") if isinstance(told_by.__doc__, str) else "",
        source=_source(told_by),
        init=arguments_of(value) if is_class else (),
        call=arguments_of(calling_method(value)),
        attributes=_capped(_attributes(value)),
        arrays={} if is_class or plain else array_facts(value),
        submodules={} if is_class or plain else _submodules(value),
        members=tuple(members),
    )


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
        parameters = inspect.signature(_original(value)).parameters.values()
    except (TypeError, ValueError):
        return _documented(value)
    return tuple(_argument(one) for one in parameters)


def _original(value: Any) -> Any:
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
            default=as_scalar(default.value)
            if isinstance(default, ast.Constant) and is_scalar(default.value)
            else None,
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
        default=as_scalar(one.default) if one.default is not one.empty and is_scalar(one.default) else None,
        annotation=_annotation(one.annotation),
    )


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


# --- where it is written ----------------------------------------------------------------------------------------------


def _source(value: Any) -> str:
    try:
        return inspect.getsource(inspect.unwrap(_original(value)))[:_LONGEST]
    except (OSError, TypeError, ValueError, SyntaxError, IndexError):
        return ""


def _line(value: Any) -> int:
    try:
        return inspect.getsourcelines(inspect.unwrap(_original(value)))[1]
    except (OSError, TypeError, ValueError, SyntaxError, IndexError):
        return 0


# --- scalars ----------------------------------------------------------------------------------------------------------


def _capped(pairs: Iterator[tuple[str, Scalar]]) -> dict[str, Scalar]:
    kept: dict[str, Scalar] = {}
    for name, value in pairs:
        kept.setdefault(name, value)
        if len(kept) == _MOST:
            break
    return kept


def _attributes(value: Any) -> Iterator[tuple[str, Scalar]]:
    """Every scalar that a candidate carries, by dotted name; its own before those of its class."""
    if isinstance(value, type):
        yield from _of_class(value)
    elif is_plain_function(value):
        yield from _constants(value)
    else:
        for name, part in parts(value):
            yield from _of_object(part, f"{name}." if name else "")


def _of_object(value: Any, prefix: str) -> Iterator[tuple[str, Scalar]]:
    yield from _of_mapping(own_attributes(value), prefix, _DEEPEST, {id(value)})
    for name, scalar in _of_class(type(value)):
        yield prefix + name, scalar


def _of_class(cls: type) -> Iterator[tuple[str, Scalar]]:
    for base in cls.__mro__:
        if base.__module__.startswith("torch.nn.modules.module") or base is object:
            break
        for name, value in vars(base).items():
            if not name.startswith("__") and is_scalar(value):
                yield name, as_scalar(value)


def _of_mapping(mapping: Mapping[Any, Any], prefix: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Scalar]]:
    for name, value in mapping.items():
        if not isinstance(name, str) or name.startswith("__"):
            continue
        if is_scalar(value):
            yield prefix + name, as_scalar(value)
        elif is_tensor(value) and value.numel() == 1 and value.dim() <= 1 and not value.requires_grad:
            yield prefix + name, as_scalar(value.item())
        elif depth and id(value) not in seen:
            inner = config_values(value)
            if inner:
                yield from _of_mapping(inner, f"{prefix}{name}.", depth - 1, seen | {id(value)})


def config_values(value: Any) -> Mapping[Any, Any]:
    """The names and values of an object that carries settings (a dict, a dataclass, a config), of others none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type) or is_module(value) or callable(value):
        return {}
    if dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace):
        return own_attributes(value)
    named = type(value).__name__.lower().endswith(("config", "cfg", "args", "arguments", "params", "settings"))
    return own_attributes(value) if named or hasattr(value, "to_dict") else {}


def _constants(function: Any) -> Iterator[tuple[str, Scalar]]:
    """The scalars of its file that a function reads, such as ``NUM_HEADS = 4`` above it."""
    function = inspect.unwrap(getattr(function, "func", function))
    code, space = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    for name in code.co_names if code else ():
        if name in space and is_scalar(space[name]) and not name.startswith("__"):
            yield name, as_scalar(space[name])


# --- arrays -----------------------------------------------------------------------------------------------------------


def array_facts(value: Any) -> dict[str, ArrayFacts]:
    """Shape, owner and dtype of every array that an object holds."""
    facts = {}
    for slot in slots(value):
        facts[slot.name] = ArrayFacts(
            shape=tuple(int(size) for size in slot.value.shape),
            owner=_class_name(slot.part),
            learned=is_learned(slot),
            dtype=dtype_name(slot.value),
        )
    return facts


def _class_name(value: Any) -> str:
    name = type(value).__name__
    return _OWNERS.get(name, name)


def _submodules(value: Any) -> dict[str, str]:
    return {name: _class_name(part) for name, part in parts(value) if name}


# --- framework --------------------------------------------------------------------------------------------------------


def framework_of(value: Any) -> Framework:
    """The framework whose arrays a candidate works on. Torch is never imported to find out."""
    cls = value if isinstance(value, type) else type(value)
    if sys.modules.get("torch") is None:
        return "numpy"
    if is_module_class(cls):
        return "torch"
    if not isinstance(value, type) and not is_plain_function(value):
        held = [slot.value for slot in slots(value)]
        if any(is_module(part) for _, part in parts(value)):
            return "torch"
        if held:
            return "torch" if any(map(is_tensor, held)) else "numpy"
    method = calling_method(value)
    told = " ".join(one.annotation for one in arguments_of(method))
    if "Tensor" in told or "torch" in told:
        return "torch"
    if "ndarray" in told or "NDArray" in told or "np." in told:
        return "numpy"
    return _used_by(value, method)


def _used_by(value: Any, method: Any) -> Framework:
    """The framework that its code, or code of the same file which that calls, mentions; else what the file imports."""
    functions = (
        [one for one in vars(value).values() if inspect.isfunction(one)] if isinstance(value, type) else [method]
    )
    if not isinstance(value, type) and not is_plain_function(value):
        functions = [one for one in vars(type(value)).values() if inspect.isfunction(one)]
    used: set[str] = set()
    space: Mapping[str, Any] = {}
    seen: set[int] = set()
    while functions:
        function = inspect.unwrap(_bare(functions.pop()))
        code = getattr(function, "__code__", None)
        if code is None:
            # A compiled kernel, or a function of torch's own.
            used.add(type(function).__module__.partition(".")[0])
            used.add(str(getattr(function, "__module__", None)).partition(".")[0])
            continue
        if id(code) in seen:
            continue
        seen.add(id(code))
        space = getattr(function, "__globals__", {})
        for one in _mentioned(code, space):
            home = (
                one.__name__ if inspect.ismodule(one) else str(getattr(one, "__module__", None) or type(one).__module__)
            )
            used.add(home.partition(".")[0])
            if inspect.isfunction(one) and one.__globals__ is space:
                functions.append(one)
    if "torch" not in used and "numpy" not in used:
        used = {one.__name__.partition(".")[0] for one in space.values() if inspect.ismodule(one)}
    return "torch" if used & {"torch", "triton", "transformers"} else "numpy"


def _mentioned(code: types.CodeType, space: Mapping[str, Any]) -> Iterator[Any]:
    for name in code.co_names:
        if name in space:
            yield space[name]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _mentioned(constant, space)


def _bare(function: Any) -> Any:
    """The function inside a partial or a bound method."""
    return getattr(function, "func", None) or getattr(function, "__func__", function)
