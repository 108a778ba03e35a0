"""Binding: which argument of a call gets what, by the names that the field gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from qkv.adapters.abilities import Extra
from qkv.adapters.messages import Argument
from qkv.adapters.names import WINDOW_IF_WHOLE, bare, call_role_of
from qkv.errors import CandidateError

LEAVE = object()
"""What a giver returns for an argument that is best left to its default."""


@dataclass(frozen=True)
class Signature:
    """The arguments of a call by the role they play.

    Attributes:
        arguments: as they stand.
        roles: role to argument; an argument without a role is in none.
        extra: values for arguments by name, given by the user.
        bias_axes: how many axes a bias is handed over with: 4 ``(batch, head, query, key)``, 3 for no batch.
    """

    arguments: Sequence[Argument]
    roles: Mapping[str, Argument]
    extra: Mapping[str, Any] = field(default_factory=dict)
    bias_axes: Literal[3, 4] = 4

    @classmethod
    def of(cls, arguments: Sequence[Argument], extra: Mapping[str, Any] | None = None) -> Signature:
        """The signature, each role going to the first argument that has it."""
        roles: dict[str, Argument] = {}
        for argument in arguments:
            role = call_role_of(argument.name)
            if role == "cache" and (isinstance(argument.default, bool) or "bool" in argument.annotation):
                role = "use_cache"
            if bare(argument.name) in WINDOW_IF_WHOLE and type(argument.default) is int:
                role = "window"
            if role is not None and argument.kind not in ("args", "kwargs"):
                roles.setdefault(role, argument)
        return cls(arguments, roles, extra or {})

    def has(self, *roles: str) -> bool:
        """Whether there is an argument for every one of these roles."""
        return all(role in self.roles for role in roles)

    def in_ways(self) -> Iterator[Signature]:
        """The signature in each way that a bias may be handed over."""
        yield self
        if self.has("bias"):
            yield replace(self, bias_axes=3)

    def role_of(self, argument: Argument) -> str | None:
        """The role that this argument plays here."""
        return next((role for role, other in self.roles.items() if other is argument), None)

    def takes(self) -> frozenset[Extra]:
        """What may come along with the tokens in a call."""
        found: set[Extra] = set()
        if self.has("mask"):
            found |= {"mask", "padding", "documents"}
        if self.has("padding") or self.has("lengths"):
            found.add("padding")
        if self.counts_keys:
            found.add("cache_lens")
        if self.has("cu_seqlens"):
            found.add("documents")
        for role in ("documents", "bias", "sinks"):
            if self.has(role):
                found.add(role)
        return frozenset(found)

    @property
    def counts_keys(self) -> bool:
        """Whether an argument says for each sequence how many of the keys count, which come from a cache already."""
        return self.has("cache_lens") and not self.has("k_cache") and self.roles["cache_lens"].annotation != "int"

    def bound(self, giver: Callable[[str], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a call.

        Args:
            giver: the value for a role, or LEAVE to leave it to the default.

        Raises:
            CandidateError: a required argument has no value.
        """
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_place = True
        for argument in self.arguments:
            if argument.kind in ("args", "kwargs"):
                by_place = False
                continue
            value = self._value(argument, giver)
            if value is LEAVE:
                if argument.required:
                    raise _unknown(argument)
                by_place = False
            elif argument.kind == "positional" or (by_place and argument.kind == "either"):
                args.append(value)
            else:
                kwargs[argument.name] = value
        return args, kwargs

    def in_words(self, mask_form: object, padding_form: object) -> list[str]:
        """What its mask and padding arguments were taken to mean, and what was never given, in sentences."""
        forms = {"mask": mask_form, "padding": padding_form}
        said = [
            f"in its {role} argument {self.roles[role].name!r}, {form}"
            for role, form in forms.items()
            if self.has(role)
        ]
        if self.has("bias") and self.bias_axes == 3:
            said.append(f"its bias argument {self.roles['bias'].name!r} is (heads, query, key)")
        never = [one.name for one in self.arguments if self._is_unknown_array(one)]
        return said + [
            f"its argument {name!r} was never given: nothing says what it is (--call gives it)" for name in never
        ]

    def _is_unknown_array(self, argument: Argument) -> bool:
        """Whether an argument for an array that may be left out has no role, and no value from the user."""
        known = argument.required or self.role_of(argument) or argument.name in self.extra
        if known or argument.default is not None or call_role_of(argument.name) or argument.kind in ("args", "kwargs"):
            return False
        return bool(_ARRAY.search(argument.annotation) or re.search(r"mask|bias|pad", argument.name))

    def named(self, paths: Sequence[str]) -> list[str]:
        """Arguments of a call by name, for those that are known by their place: ``0`` is ``query``."""
        names = [argument.name for argument in self.arguments]
        parts = [path.partition(".") for path in paths]
        return [
            f"{names[int(first)] if first.isdigit() and int(first) < len(names) else first}{dot}{rest}"
            for first, dot, rest in parts
        ]

    def _value(self, argument: Argument, giver: Callable[[str], Any]) -> Any:
        if argument.name in self.extra:
            value = self.extra[argument.name]
            return np.array(value) if isinstance(value, list) and _ARRAY.search(argument.annotation) else value
        role = self.role_of(argument)
        return LEAVE if role is None else giver(role)


_ARRAY = re.compile(r"Tensor|ndarray|Array")
"""What stands in the annotation of an argument that a list of numbers is given to as an array."""


def _unknown(argument: Argument) -> CandidateError:
    return CandidateError(
        f"the call needs an argument {argument.name!r}, and qkv doesn't know what to give for it",
        hint=f"give it with --call '{{\"{argument.name}\": …}}', or give it a default; a list is handed over as an "
        "array if the argument is annotated as one (torch.Tensor)",
    )
