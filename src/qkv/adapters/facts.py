"""What a candidate says of itself: its signature, its scalars, its arrays. Nothing is changed or called."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qkv.adapters.frameworks import framework_of
from qkv.adapters.messages import ArrayFacts, Facts, Scalar
from qkv.adapters.parts import is_array, is_learned, is_module, is_module_class, own_attributes, parts, slots
from qkv.adapters.signatures import arguments_of, as_scalar, calling_method, is_plain_function, is_scalar, original
from qkv.adapters.values import dtype_name, is_tensor

_MOST = 2000
"""Attributes kept; a candidate with more is no attention."""
_DEEPEST = 3
_LONGEST = 200_000
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
    foreign = bool(file) and not _stands_in(told_by, file)
    source, line = _source_and_line(told_by)
    return Facts(
        name=name,
        what="class" if is_class else "function" if plain else "object",
        framework=framework_of(value),
        is_module=is_module_class(cls),
        class_name=getattr(value, "__name__", name) if is_class or plain else cls.__name__,
        file=file,
        line=0 if foreign else line,
        foreign=foreign,
        doc=_documentation(told_by) or ("" if members or foreign else _documentation(inspect.getmodule(told_by))),
        source=source,
        init=arguments_of(value) if is_class else (),
        call=arguments_of(calling_method(value)),
        attributes=_capped(_attributes(value)),
        arrays={} if is_class or plain else array_facts(value),
        submodules={} if is_class or plain else _submodules(value),
        config={} if is_class or plain else _huggingface_config(value),
        members=tuple(members),
    )


# --- where it is written ----------------------------------------------------------------------------------------------


def _documentation(value: Any) -> str:
    """Its docstring. A file's own speaks of the only candidate in it."""
    told = getattr(value, "__doc__", None)
    return inspect.cleandoc(told) if isinstance(told, str) else ""


def _source_and_line(value: Any) -> tuple[str, int]:
    try:
        lines, line = inspect.getsourcelines(inspect.unwrap(original(value)))
        return "".join(lines)[:_LONGEST], line
    except Exception:  # noqa: BLE001 - inspect reads what a file may have changed: its name, its module, its lines
        return "", 0


def _stands_in(value: Any, file: str) -> bool:
    """Whether it is defined in that file; True where nobody can tell."""
    try:
        found = inspect.getsourcefile(inspect.unwrap(original(value)))
        return found is None or os.path.realpath(found) == os.path.realpath(file)
    except (OSError, TypeError, ValueError):
        return True


def _huggingface_config(value: Any) -> Mapping[str, Any]:
    """The first Hugging Face config that the object or one of its parts holds, as JSON holds it."""
    parts = value.modules() if is_module(value) else [value]
    for part in parts:
        config = getattr(part, "config", None)
        if config is not None and hasattr(config, "to_dict") and getattr(config, "model_type", None):
            return json.loads(json.dumps(config.to_dict(), default=str))
    return {}


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
    return facts | _shapeless(value)


def _shapeless(value: Any) -> dict[str, ArrayFacts]:
    """The parameters of lazy layers, which have no shape before the first call."""
    return {
        f"{name}.{key}" if name else key: ArrayFacts((), _class_name(part), learned=True, dtype=dtype_name(one))
        for name, part in parts(value)
        if is_module(part)
        for key, one in part._parameters.items()
        if one is not None and not is_array(one)
    }


def _class_name(value: Any) -> str:
    name = type(value).__name__
    return _OWNERS.get(name, name)


def _submodules(value: Any) -> dict[str, str]:
    return {name: _class_name(part) for name, part in parts(value) if name}
