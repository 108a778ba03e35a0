"""Caches made and emptied by the candidate's own means: functions and classes of its file, methods of its object."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from qkv.adapters.messages import DType, Fresh
from qkv.adapters.names import bare, call_role_of, role_of
from qkv.adapters.parts import is_module, own_attributes, parts
from qkv.adapters.signatures import arguments_of
from qkv.errors import CandidateError

MAKERS = re.compile(
    r"^_?(make|init|create|new|empty|allocate|alloc|build|get|setup|initiali[sz]e)_?\w*caches?$", re.IGNORECASE
)
"""Names of what makes a cache, or sets a candidate's own up."""

EMPTIERS = re.compile(
    r"^_?(reset|clear|empty|flush|drop|free)(_?\w*(caches?|state|kv|past|memory|history|buffers?))?$", re.IGNORECASE
)
"""Names of what empties one."""


def fresh(wanted: Fresh, candidate: Any, module: ModuleType | None, dtype: DType) -> Any:
    """A new cache from the first of the candidate's own means that gives one.

    Raises:
        CandidateError: there are none, or none that qkv knows what to give to.
    """
    for make in _means(wanted.annotation, candidate, module):
        arguments = _filled(make, wanted.sizes, candidate, dtype)
        if arguments is None:
            continue
        made = make(**arguments)
        if made is not None:
            return made.to(getattr(sys.modules["torch"], dtype)) if is_module(made) else made
    raise CandidateError("nothing in its file makes a cache", hint="a class with 'cache' in its name is looked for")


def _means(annotation: str, candidate: Any, module: ModuleType | None) -> Iterator[Callable[..., Any]]:
    for name in dir(type(candidate)):
        if MAKERS.match(name):
            yield getattr(candidate, name)
    space = vars(module) if module is not None else {}
    yield from (
        one for name, one in space.items() if MAKERS.match(name) and not isinstance(one, type) and callable(one)
    )
    yield from _classes(annotation, space)


def _classes(annotation: str, space: Mapping[str, Any]) -> Iterator[type]:
    said = [space[word] for word in re.findall(r"\w+", annotation) if isinstance(space.get(word), type)]
    called_so = [one for name, one in space.items() if isinstance(one, type) and "cache" in name.lower()]
    for one in dict.fromkeys([*(one for one in said if "cache" in one.__name__.lower()), *called_so]):
        library = sys.modules.get("transformers.cache_utils")
        yield library.DynamicCache if library is not None and one is library.Cache else one


_MORE_ROLES = {
    "layers": "n_layers num_layers n_layer layers num_hidden_layers n_blocks",
    "context_length": "capacity max_cache_len cache_len max_size cache_size max_cache_length length size",
    "max_batch": "batch b bs max_batch_size",
    "num_kv_heads": "num_heads n_heads n_head heads h nh n_kv kv_heads",
    "head_dim": "dim d head_size",
}
_ROLE_OF = {name: role for role, names in _MORE_ROLES.items() for name in names.split()}


def _filled(make: Callable[..., Any], sizes: Mapping[str, int], candidate: Any, dtype: DType) -> dict[str, Any] | None:
    """Arguments for what makes a cache, by their names; None where one that it needs is not known."""
    given: dict[str, Any] = {}
    for argument in arguments_of(make):
        if argument.kind in ("args", "kwargs"):
            continue
        name = bare(argument.name)
        role = _ROLE_OF.get(name) or role_of(name) or call_role_of(name)
        if "dtype" in name:
            given[argument.name] = getattr(sys.modules["torch"], dtype) if "torch" in sys.modules else dtype
        elif role is not None and role in sizes:
            given[argument.name] = sizes[role]
        elif name == "config" and hasattr(candidate, "config"):
            given[argument.name] = candidate.config
        elif argument.required and name != "device":
            return None
        elif argument.required:
            given[argument.name] = "cpu"
    return given


def set_up(candidate: Any, module: ModuleType | None, sizes: Mapping[str, int], dtype: DType) -> None:
    """Nothing; calls the candidate's own method that makes room for a cache, or puts one where its place is."""
    if not sizes:
        return
    for name in dir(type(candidate)):
        if MAKERS.match(name):
            arguments = _filled(getattr(candidate, name), sizes, candidate, dtype)
            if arguments is not None:
                getattr(candidate, name)(**arguments)
            return
    for name, value in own_attributes(candidate).items():
        made_by = next(_classes("", vars(module) if module is not None else {}), None)
        if value is None and made_by is not None and bare(name) in ("kv_cache", "cache", "kvcache"):
            setattr(candidate, name, fresh(Fresh(sizes=sizes), candidate, module, dtype))


def emptied(candidate: Any, sizes: Mapping[str, int], dtype: DType) -> bool:
    """Whether the candidate, or a part of it, has a method that empties its cache; it has been called then."""
    done = False
    for _, part in [*parts(candidate), *((name, one) for name, one in own_attributes(candidate).items())]:
        for name in dir(type(part)):
            if EMPTIERS.match(name) and not isinstance(part, list | dict | set):
                arguments = _filled(getattr(part, name), sizes, candidate, dtype)
                if arguments is not None:
                    getattr(part, name)(**arguments)
                    done = True
        if done:
            return True
    return False
