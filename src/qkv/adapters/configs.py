"""A constructor's config argument, built from named values."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from qkv.adapters.messages import Config

_ENDINGS = ("config", "cfg", "args", "arguments", "params", "hparams", "settings", "options")


class Settings(dict[str, Any]):
    """A dict that answers to attributes too. A name it does not have is an AttributeError, so defaults work."""

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

    The class named in the annotation where it takes them, else the one config class of the file, else `Settings`.

    Args:
        config: the names and values.
        module: the candidate's module, in which annotations are looked up.
        owner: the class whose constructor gets the config; its own module is looked in first.
    """
    for cls in _classes(config, module, owner):
        try:
            made = _made_of(cls, config.values)
        except Exception:  # noqa: BLE001 - whatever the class objects to, the plain config still answers
            continue
        if made is not None:
            return made
    return Settings(config.values)


def _classes(config: Config, module: ModuleType | None, owner: type | None) -> list[type]:
    """The config classes that may be meant, the likeliest first."""
    spaces = [vars(one) for one in (sys.modules.get(getattr(owner, "__module__", "")), module) if one is not None]
    named = [space.get(word) for space in spaces for word in re.findall(r"\w+", config.annotation)]
    found = [one for one in named if isinstance(one, type) and one not in (dict, list, tuple, object, str, int)]
    if found or config.annotation:
        return found
    ours = [
        one
        for space in spaces
        for name, one in space.items()
        if isinstance(one, type) and name.lower().endswith(_ENDINGS) and one.__module__ == space.get("__name__")
    ]
    return ours if len(set(ours)) == 1 else []


def _made_of(cls: type, values: Mapping[str, Any]) -> Any:
    """An instance of the class that answers to all the values it knows; None where it lacks what it needs."""
    if hasattr(cls, "to_dict") and hasattr(cls, "model_type"):
        return _hugging_face(cls, values)
    parameters = inspect.signature(cls).parameters
    if dataclasses.is_dataclass(cls) or parameters:
        needed = {name for name, one in parameters.items() if one.default is one.empty and one.kind <= one.KEYWORD_ONLY}
        needed -= {name for name, one in parameters.items() if one.kind is one.VAR_POSITIONAL}
        open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        if not needed <= set(values):
            return None
        known = {name: value for name, value in values.items() if open_ended or name in parameters}
        return cls(**known)
    made = cls()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _hugging_face(cls: type, values: Mapping[str, Any]) -> Any:
    """A transformers config. It takes any keyword, so only what it has by default is handed to it."""
    default = cls()
    renamed: Mapping[str, str] = getattr(cls, "attribute_map", {})
    known = {name: value for name, value in values.items() if name not in renamed and hasattr(default, name)}
    known |= {name: value for name, value in values.items() if name in renamed and renamed[name] not in known}
    return cls(**known)
