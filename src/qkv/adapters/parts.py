"""The parts of an object and every array they hold, where Python keeps them: for reading, casting and assigning.

A module knows its registered children only. A list of heads that was never registered, a weight that is a plain tensor
and a class that is no module at all hold arrays too, and a learner's candidate has any of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from qkv.adapters.values import is_tensor

_LARGEST_LIST = 1000


@dataclass(frozen=True)
class Slot:
    """A place that holds one array.

    Attributes:
        name: dotted, as in a state dict.
        part: the object it belongs to.
        container: the dict or list it stands in; replacing it there is what `part` sees.
        key: its key in the container.
    """

    name: str
    part: Any
    container: Any
    key: Any

    @property
    def value(self) -> Any:
        """The tensor or array that stands here."""
        return self.container[self.key]


def is_module(value: Any) -> bool:
    """Whether a value is a ``torch.nn.Module``; torch is not imported to find out."""
    return is_module_class(type(value))


def is_module_class(cls: type) -> bool:
    """Whether a class is a ``torch.nn.Module``; torch is not imported to find out."""
    nn = getattr(sys.modules.get("torch"), "nn", None)
    return nn is not None and issubclass(cls, nn.Module)


def own_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object itself, without those that every module has."""
    own = getattr(value, "__dict__", {})
    if not is_module(value):
        return dict(own)
    common = _common()
    return {name: one for name, one in own.items() if name not in common}


@cache
def _common() -> frozenset[str]:
    """Names of the attributes that every module has."""
    return frozenset(vars(sys.modules["torch"].nn.Module()))


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """An object and every object in it that may hold arrays, with their dotted names, in the order of a state dict.

    These are modules, registered or in plain attributes, lists and dicts, and instances of classes that stand in the
    same Python module as the object's own. An object that stands in two places is given once, except in a list of
    modules: there it is one head that was meant to be several.
    """
    yield from _parts("", value, type(value).__module__, set(), frozenset())


def _parts(name: str, value: Any, home: str, seen: set[int], above: frozenset[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    above = above | {id(value)}
    listed = type(value).__name__ == "ModuleList"
    yield name, value
    prefix = f"{name}." if name else ""
    inner: dict[str, Any] = dict(getattr(value, "_modules", {})) if is_module(value) else {}
    for key, one in inner.items():
        if one is not None:
            repeated = listed and id(one) in seen
            yield from _parts(prefix + key, one, home, set(above) if repeated else seen, above)
    for key, one in own_attributes(value).items():
        for path, item in _items(key, one):
            if is_module(item) or (type(item).__module__ == home and _holds_arrays(item)):
                yield from _parts(prefix + path, item, home, seen, above)


def _holds_arrays(value: Any) -> bool:
    """Whether an instance of some class is a part with weights of its own, rather than settings."""
    own = getattr(value, "__dict__", {}) if not isinstance(value, type) else {}
    return any(is_array(one) or is_module(one) for key, item in own.items() for _, one in _items(key, item))


def _items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value itself, or the items of a list, tuple or dict."""
    if isinstance(value, list | tuple) and len(value) <= _LARGEST_LIST:
        yield from ((f"{name}.{place}", item) for place, item in enumerate(value))
    elif isinstance(value, dict) and len(value) <= _LARGEST_LIST:
        yield from ((f"{name}.{key}", item) for key, item in value.items())
    else:
        yield name, value


def slots(value: Any) -> Iterator[Slot]:
    """Every place in an object that holds an array: parameters, buffers, then plain attributes, part by part."""
    for name, part in parts(value):
        prefix = f"{name}." if name else ""
        if is_module(part):
            yield from _in_mapping(prefix, part, part._parameters)
            yield from _in_mapping(prefix, part, part._buffers)
        for key, one in own_attributes(part).items():
            if is_array(one):
                yield Slot(prefix + key, part, part.__dict__, key)
            elif isinstance(one, dict) and len(one) <= _LARGEST_LIST:
                yield from _in_mapping(f"{prefix}{key}.", part, one)
            elif isinstance(one, list) and len(one) <= _LARGEST_LIST:
                found = [place for place, item in enumerate(one) if is_array(item)]
                yield from (Slot(f"{prefix}{key}.{place}", part, one, place) for place in found)


def _in_mapping(prefix: str, part: Any, mapping: MutableMapping[str, Any]) -> Iterator[Slot]:
    yield from (Slot(f"{prefix}{key}", part, mapping, key) for key, one in list(mapping.items()) if is_array(one))


def is_array(value: Any) -> bool:
    """Whether a value is an array of numbers that has a shape: those of a lazy layer get theirs at the first call."""
    if is_tensor(value):
        return not type(value).__name__.startswith("Uninitialized")
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def is_learned(slot: Slot) -> bool:
    """Whether an array is a weight: a parameter, a tensor with a gradient, or a floating array outside any module."""
    if is_module(slot.part):
        return slot.container is slot.part._parameters or bool(getattr(slot.value, "requires_grad", False))
    floating = slot.value.is_floating_point() if is_tensor(slot.value) else slot.value.dtype.kind == "f"
    return bool(floating)
