"""A constructor's config argument, built from named values."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from qkv.adapters.messages import Config
from qkv.adapters.names import ROLES, role_of

_ENDINGS = ("config", "cfg", "args", "arguments", "params", "hparams", "settings", "options")


_NUMBERS = (int, float, "int", "float")
"""Annotations of fields that are not to be None."""


_SECTIONS = {"model", "attention", "attn", "transformer", "architecture", "network"}
"""What a part of a config is called that holds sizes, as a whole one does."""


class Settings(dict[str, Any]):
    """A dict that answers to attributes too. A name it does not have is an AttributeError, so defaults work.

    The part of it that a class looks sizes up in is itself: ``config.model.attention.num_heads``.
    """

    def __missing__(self, name: str) -> Any:
        if name in _SECTIONS:
            return self
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"config has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of its values."""
        return dict(self)


def build_config(config: Config, module: ModuleType | None, owner: type | None = None) -> Any:
    """An object that answers to the config's names.

    The class named in the annotation where it takes them; else `Settings`, which has the defaults of the one config
    class of the file, where there is one.

    Args:
        config: the names and values.
        module: the candidate's module, in which annotations are looked up.
        owner: the class whose constructor gets the config; its own module is looked in first.
    """
    spaces = [vars(one) for one in (sys.modules.get(getattr(owner, "__module__", "")), module) if one is not None]
    for word in re.findall(r"\w+", config.annotation):
        made = _made_of(next((space[word] for space in spaces if word in space), None), config)
        if made is not None:
            return made
    beside = None if config.annotation else _made_of(_config_class(spaces), config)
    return Settings({**config.fallbacks, **_public(beside), **config.values})


def _public(beside: Any) -> dict[str, Any]:
    """What another config answers to, its methods aside."""
    known: dict[str, Any] = {}
    for name in dir(beside):
        # A property of a stranger's class may raise anything.
        with contextlib.suppress(Exception):
            if not name.startswith("_") and not inspect.isroutine(getattr(beside, name)):
                known[name] = getattr(beside, name)
    return known


def _config_class(spaces: list[dict[str, Any]]) -> type | None:
    """The one class of the file that is named like a config; none where there are several."""
    ours = {
        one
        for space in spaces
        for name, one in space.items()
        if isinstance(one, type) and name.lower().endswith(_ENDINGS) and one.__module__ == space.get("__name__")
    }
    return ours.pop() if len(ours) == 1 else None


def _made_of(cls: Any, config: Config) -> Any:
    """An instance of a config class with those of the values it knows; None where that can't be had."""
    if not isinstance(cls, type) or cls in (dict, list, tuple, set, object, str, int, float, bool, type):
        return None
    try:
        return _instance(cls, config)
    except Exception:  # noqa: BLE001 - whatever the class objects to, a plain config still answers
        return None


def _instance(cls: type, config: Config) -> Any:
    if hasattr(cls, "to_dict") and hasattr(cls, "model_type"):
        return _hugging_face(cls, config.values)
    parameters = inspect.signature(cls).parameters
    if dataclasses.is_dataclass(cls) or parameters:
        needed = {name for name, one in parameters.items() if one.default is one.empty and one.kind <= one.KEYWORD_ONLY}
        needed -= {name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL}
        open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        values = {name: value for name, value in config.fallbacks.items() if name in needed} | dict(config.values)
        never_none = {name for name, one in parameters.items() if one.annotation in _NUMBERS} - needed
        values = {name: value for name, value in values.items() if value is not None or name not in never_none}
        if not needed <= set(values):
            return None
        known = {name: value for name, value in values.items() if open_ended or name in parameters}
        return cls(**known | _meant_otherwise(parameters, values))
    made = cls()
    unknown = {name: value for name, value in config.fallbacks.items() if not hasattr(made, name)}
    for name, value in {**unknown, **config.values}.items():
        setattr(made, name, value)
    return made


def _meant_otherwise(fields: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields that have another role beside each other than alone."""
    roles = {name: role for name in fields if (role := role_of(name, fields)) and role != role_of(name)}
    return {name: values[ROLES[role][0]] for name, role in roles.items() if ROLES[role][0] in values}


def _hugging_face(cls: type, values: Mapping[str, Any]) -> Any:
    """A transformers config. It takes any keyword, so only what it has by default is handed to it."""
    default = cls()
    renamed: Mapping[str, str] = getattr(cls, "attribute_map", {})
    known = {name: value for name, value in values.items() if name not in renamed and hasattr(default, name)}
    known |= {name: value for name, value in values.items() if name in renamed and renamed[name] not in known}
    return cls(**known)
