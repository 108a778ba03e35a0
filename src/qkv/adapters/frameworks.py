"""Which framework a candidate's arrays belong to. No framework is imported to find out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from qkv.adapters.messages import Framework
from qkv.adapters.parts import is_module, is_module_class, parts, slots
from qkv.adapters.signatures import arguments_of, calling_method, is_plain_function
from qkv.adapters.values import is_tensor

_TORCHES = {"torch", "triton", "transformers"}
_ARRAYS = {"numpy", "scipy", "jax", "jaxlib"}
_TENSOR_METHODS = {
    *("softmax", "log_softmax", "masked_fill", "masked_fill_", "permute", "unsqueeze", "contiguous", "triu", "tril"),
    *("repeat_interleave", "new_full", "new_ones", "new_zeros"),
}
"""Methods that tensors have and NumPy's arrays don't."""


def framework_of(value: Any) -> Framework:
    """The framework whose arrays a candidate works on, by what it is, holds, says of its arguments, and calls."""
    cls = value if isinstance(value, type) else type(value)
    if is_module_class(cls):
        return "torch"
    if not isinstance(value, type) and not is_plain_function(value):
        held = _held(value)
        if held is not None:
            return held
    told = " ".join(one.annotation for one in arguments_of(calling_method(value)))
    if "Tensor" in told or "torch" in told:
        return "torch"
    if "ndarray" in told or "NDArray" in told or "np." in told:
        return "numpy"
    return _used_by(_functions(value))


def _held(value: Any) -> Framework | None:
    """The framework of the arrays that an object holds; None where it holds none."""
    if any(is_module(part) for _, part in parts(value)):
        return "torch"
    arrays = [slot.value for slot in slots(value)]
    return None if not arrays else "torch" if any(map(is_tensor, arrays)) else "numpy"


def _functions(value: Any) -> list[Any]:
    """The functions that run when the candidate is called: itself, or the methods of its class."""
    if is_plain_function(value):
        return [value]
    cls = value if isinstance(value, type) else type(value)
    return [one for base in cls.__mro__[:-1] for one in vars(base).values() if inspect.isfunction(one)]


def _used_by(functions: list[Any]) -> Framework:
    """The framework that code mentions, code of the same file that it calls included; else what the file imports."""
    used: set[str] = set()
    attributes: set[str] = set()
    space: dict[str, Any] = {}
    seen: set[int] = set()
    while functions:
        function = inspect.unwrap(_bare(functions.pop()))
        code = getattr(function, "__code__", None)
        if code is None:
            # A compiled kernel, or a function of torch's own.
            used |= {_home(function), type(function).__module__.partition(".")[0]}
        elif id(code) not in seen:
            seen.add(id(code))
            space = getattr(function, "__globals__", {})
            names = set(_names(code))
            mentioned = [space[name] for name in names if name in space]
            used |= {_home(one) for one in mentioned}
            attributes |= names - set(space)
            # `import torch` inside the function leaves its name among those of the code.
            used |= names & {*_TORCHES, *_ARRAYS} - set(space)
            functions += [one for one in mentioned if inspect.isfunction(one) and one.__globals__ is space]
    imported = {_home(one) for one in space.values() if isinstance(one, ModuleType)}
    if not used & {*_TORCHES, *_ARRAYS}:
        # Operators and methods alone.
        used = {"torch"} if attributes & _TENSOR_METHODS else imported
    elif imported & _TORCHES and attributes & _TENSOR_METHODS:
        # `scores.softmax(-1) / np.sqrt(head_dim)`
        used |= {"torch"}
    return "torch" if used & _TORCHES else "numpy"


def _home(value: Any) -> str:
    """The top-level package that a value comes from."""
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None) or type(value).__module__
    return str(name).partition(".")[0]


def _names(code: CodeType) -> Iterator[str]:
    """Every global name and attribute that code mentions, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _bare(function: Any) -> Any:
    """The function inside a partial or a bound method."""
    return getattr(function, "func", None) or getattr(function, "__func__", function)
