"""What is known of a class and wanted of it, and the sizes that fit both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qkv.adapters.construction.sizes import Sizes, fewer
from qkv.adapters.messages import Argument
from qkv.adapters.names import HEADS_IF_WHOLE, INCOMING, SIZES_OF_HEADS, bare, is_config, role_of
from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Request:
    """All that is known of the class and what is wanted of it."""

    init: tuple[Argument, ...]
    spec: AttentionSpec
    stated: frozenset[str]
    class_name: str
    given: dict[str, Any]
    resize: Callable[[Sizes], Sizes] = lambda sizes: sizes
    tied: bool = False
    plain: bool = False
    groups_are_sizes: bool = False

    def takes(self) -> dict[str, str]:
        """The role of each argument that has one. Beside a name that says "what comes in", ``embed_dim`` goes out."""
        names = [argument.name for argument in self.init]
        roles = {name: role for name in names if (role := role_of(name, names))}
        incoming = [name for name, role in roles.items() if role == "embed_dim" and bare(name) in INCOMING]
        if incoming:
            roles |= {name: "out_dim" for name, role in roles.items() if role == "embed_dim" and name not in incoming}
        if "num_heads" not in roles.values():
            roles |= dict.fromkeys(self._whole_heads(roles), "num_heads")
        return roles | self._letters(roles)

    def _letters(self, roles: Mapping[str, str]) -> dict[str, str]:
        """``k`` and ``v`` in ``(d, h, k, v)``: the sizes of one head, where another argument is the embedding's."""
        if not any(role == "embed_dim" and bare(name) not in SIZES_OF_HEADS for name, role in roles.items()):
            return {}
        names = [argument.name for argument in self.init if argument.required]
        return {name: SIZES_OF_HEADS[bare(name)] for name in names if bare(name) in SIZES_OF_HEADS}

    def _whole_heads(self, roles: Mapping[str, str]) -> list[str]:
        """``n`` in ``(d: int, n: int)``: beside a width that has to be given too, it's the number of heads."""
        needed = [argument.name for argument in self.init if argument.required and "int" in argument.annotation]
        if not any(roles.get(name) == "embed_dim" for name in needed):
            return []
        return [name for name in needed if bare(name) in HEADS_IF_WHOLE]

    def given_by_role(self) -> dict[str, Any]:
        """What the user gave, by role, config fields included."""
        flat = {**self.given}
        for name, value in self.given.items():
            if is_config(name) and isinstance(value, Mapping):
                flat |= value
        takes = self.takes()
        return {role: value for name, value in flat.items() if (role := takes.get(name) or role_of(name, flat))}

    @property
    def configs(self) -> list[Argument]:
        """The arguments that are config objects."""
        return [argument for argument in self.init if is_config(argument.name, argument.annotation)]


def fitted(request: Request, sizes: Sizes) -> Sizes:
    """The wanted sizes, made to fit what the class takes and what the user gave."""
    given = {role: value for role, value in request.given_by_role().items() if isinstance(value, int)}
    sizes = replace(sizes, **{name: given[name] for name in vars(sizes) if name in given})
    takes = set(request.takes().values())
    if request.configs:
        takes |= {"embed_dim", "num_heads", "num_kv_heads"}
    if "num_heads" not in takes and "num_heads" not in request.stated:
        sizes = replace(sizes, num_heads=1)
    sizes = _fit_heads(request, sizes, takes, given)
    sizes = _fit_kv_heads(request, sizes, takes, given)
    if "value_dim" not in takes:
        sizes = replace(sizes, value_dim=request.spec.value_dim or sizes.head_dim)
    return sizes


def _fit_heads(request: Request, sizes: Sizes, takes: set[str], given: Mapping[str, int]) -> Sizes:
    heads = sizes.num_heads
    if "out_dim" in takes:
        width = given.get("out_dim")
        if width:
            per_head = width if concatenates(request) else max(width // heads, 1)
            sizes = replace(sizes, head_dim=per_head)
        return replace(sizes, embed_dim=sizes.width) if request.tied and "embed_dim" not in given else sizes
    independent = "head_dim" in takes and not request.tied
    if independent or "embed_dim" not in takes:
        return sizes
    if "embed_dim" in given or request.spec.embed_dim:
        return replace(sizes, head_dim=given.get("head_dim") or max(sizes.embed_dim // heads, 1))
    if "num_heads" not in takes and "head_dim" not in takes:
        return replace(sizes, head_dim=max(sizes.embed_dim // heads, 1))
    return replace(sizes, embed_dim=sizes.width)


def _fit_kv_heads(request: Request, sizes: Sizes, takes: set[str], given: Mapping[str, int]) -> Sizes:
    heads = sizes.num_heads
    if "num_kv_heads" in given:
        return sizes
    if "group_size" in given:
        return replace(sizes, num_kv_heads=max(heads // given["group_size"], 1))
    if not takes & {"num_kv_heads", "group_size"}:
        return replace(sizes, num_kv_heads=request.spec.num_kv_heads or heads)
    return sizes if not heads % sizes.num_kv_heads else replace(sizes, num_kv_heads=fewer(heads))


def concatenates(request: Request) -> bool:
    """Whether ``d_out`` is the width of one head: the article's wrapper sets whole heads side by side."""
    return "wrapper" in request.class_name.lower()
