"""How an argument of each role is filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qkv.adapters.construction.request import Request, concatenates
from qkv.adapters.construction.sizes import Sizes
from qkv.adapters.messages import Argument
from qkv.adapters.names import bare
from qkv.masks import Causal, SlidingWindow, sides_of
from qkv.spec import AttentionSpec

DROPOUT = 0.2
"""High enough to show when it is left on in evaluation."""

WINDOW = 5
"""For classes that need a window where the spec names none: shorter than every probe."""

SOFTCAP = 5.0
"""For classes that need a softcap where the spec names none: low enough to bend ordinary scores."""


class LeftOut:
    """The argument is not given."""


LEFT_OUT = LeftOut()
"""What a rule gives for an argument whose default will do."""


@dataclass(frozen=True)
class Asked:
    """One argument that is to be filled."""

    request: Request
    sizes: Sizes
    argument: Argument
    implied: dict[str, Any]
    in_config: bool = False

    @property
    def spec(self) -> AttentionSpec:
        """What the attention is meant to do."""
        return self.request.spec

    @property
    def needed(self) -> bool:
        """Whether the argument has to be given."""
        return self.argument.required

    @property
    def is_switch(self) -> bool:
        """Whether the argument is a boolean, as far as the signature says."""
        if isinstance(self.argument.default, bool) or "bool" in self.argument.annotation:
            return True
        return self.needed and not self.argument.annotation

    @property
    def has_number(self) -> bool:
        """Whether the argument's default is a number."""
        default = self.argument.default
        return isinstance(default, int | float) and not isinstance(default, bool)

    def says(self, *fields: str) -> bool:
        """Whether the user stated one of these fields of the spec."""
        return bool(self.request.stated & set(fields))

    def imply(self, name: str, value: Any) -> Any:
        """The value, noted as something that the spec left open."""
        self.implied[name] = value
        return value


def _size(name: str, keep_none: bool = False) -> Callable[[Asked], Any]:
    """A rule: the size of that name. With ``keep_none`` an optional argument that has no number is left out."""

    def rule(asked: Asked) -> Any:
        if keep_none and not asked.needed and not asked.has_number:
            return LEFT_OUT
        return getattr(asked.sizes, name)

    return rule


def _out_dim(asked: Asked) -> Any:
    if not asked.needed and not asked.has_number:
        return LEFT_OUT
    return asked.sizes.head_dim if concatenates(asked.request) else asked.sizes.width


def _kv_heads(asked: Asked) -> Any:
    turned = asked.request.groups_are_sizes and bare(asked.argument.name).endswith("groups")
    return asked.sizes.group_size if turned else asked.sizes.num_kv_heads


def _dropout(asked: Asked) -> Any:
    if asked.argument.default is None and not asked.needed:
        return LEFT_OUT
    if asked.is_switch and not asked.needed:
        return LEFT_OUT
    if asked.request.plain:
        return 0.0 if asked.needed else LEFT_OUT
    return asked.spec.dropout_p if asked.spec.dropout_p or asked.says("dropout_p") else DROPOUT


def _bias(asked: Asked) -> Any:
    if not asked.is_switch or (asked.request.plain and not asked.needed):
        return LEFT_OUT
    return asked.spec.projection_bias if asked.says("projection_bias") else True


def _switch(on: Callable[[AttentionSpec], bool], *fields: str) -> Callable[[Asked], Any]:
    """A rule: on where the spec says so; left at the class's own default where the spec says nothing."""

    def rule(asked: Asked) -> Any:
        value = on(asked.spec)
        if not asked.is_switch or not (value or asked.needed or asked.says(*fields)):
            return LEFT_OUT
        return value

    return rule


def _window(asked: Asked) -> Any:
    windows = [part.size for part in asked.spec.mask.parts() if isinstance(part, SlidingWindow)]
    if asked.is_switch and not asked.needed:
        return LEFT_OUT if not windows else True
    if isinstance(asked.argument.default, tuple):
        return _pair(asked, asked.argument.default)
    if windows:
        return windows[0]
    return asked.imply("window", WINDOW) if asked.needed or asked.has_number else LEFT_OUT


def _pair(asked: Asked, default: tuple[int, int]) -> Any:
    """How many keys a query sees before and after its own, -1 for no bound; the class's own where the spec has none."""
    sides = sides_of(asked.spec.mask)
    if sides != (None, None):
        return tuple(-1 if side is None else side for side in sides)
    for role, number in zip(("left_window", "right_window"), default, strict=True):
        asked.imply(role, number)
    return LEFT_OUT


def _softcap(asked: Asked) -> Any:
    if asked.spec.softcap is not None:
        return asked.spec.softcap
    return asked.imply("softcap", SOFTCAP) if asked.needed else LEFT_OUT


def _scale(asked: Asked) -> Any:
    if isinstance(asked.argument.default, bool) or "bool" in asked.argument.annotation:
        return asked.spec.scale != 1.0
    if asked.spec.scale is not None:
        return asked.spec.scale
    return asked.sizes.head_dim**-0.5 if asked.needed else LEFT_OUT


def _query_scalar(asked: Asked) -> Any:
    if asked.spec.scale:
        return asked.spec.scale**-2
    return asked.sizes.head_dim if asked.needed else LEFT_OUT


def _rope_base(asked: Asked) -> Any:
    if asked.spec.rope is not None:
        return asked.spec.rope.base
    return 10000.0 if asked.needed else LEFT_OUT


def _temperature(asked: Asked) -> Any:
    if not asked.needed:
        return LEFT_OUT
    return 1 / asked.spec.scale if asked.spec.scale else asked.sizes.head_dim**0.5


def _rotary_dims(asked: Asked) -> Any:
    dims = _turned(asked)
    return LEFT_OUT if dims is None else dims


def _rotary_fraction(asked: Asked) -> Any:
    dims = _turned(asked)
    return LEFT_OUT if dims is None else dims / asked.sizes.head_dim


def _turned(asked: Asked) -> int | None:
    """How many channels of a head rope turns: where the class can leave some as they are, half of them."""
    head_dim = asked.sizes.head_dim
    rope = asked.spec.rope
    if rope is not None and (rope.dims or asked.in_config or asked.says("rope")):
        return rope.rotary_dims(head_dim)
    if asked.in_config or asked.says("rope"):
        return head_dim if asked.needed else None
    if not asked.needed and not asked.has_number:
        return None
    half = head_dim // 4 * 2
    return int(asked.imply("rotary_dims", half)) if half else head_dim


def _constant(value: Any) -> Callable[[Asked], Any]:
    """A rule: that value where the argument must be given."""
    return lambda asked: value if asked.needed else LEFT_OUT


RULES: Mapping[str, Callable[[Asked], Any]] = {
    "embed_dim": _size("embed_dim"),
    "out_dim": _out_dim,
    "source_dim": _size("embed_dim", keep_none=True),
    "num_heads": _size("num_heads"),
    "num_kv_heads": _kv_heads,
    "group_size": _size("group_size"),
    "head_dim": _size("head_dim"),
    "value_dim": _size("value_dim"),
    "context_length": _size("context_length", keep_none=True),
    "max_batch": _constant(8),
    "dropout": _dropout,
    "bias": _bias,
    "causal": _switch(lambda spec: spec.masks(Causal), "mask", "causal"),
    "window": _window,
    "softcap": _softcap,
    "rope_base": _rope_base,
    "rotary_dims": _rotary_dims,
    "rotary_fraction": _rotary_fraction,
    "rope": _switch(lambda spec: spec.rope is not None, "rope"),
    "scale": _scale,
    "temperature": _temperature,
    "query_pre_attn_scalar": _query_scalar,
    "qk_norm": _switch(lambda spec: spec.qk_norm is not None, "qk_norm"),
    "sinks": _switch(lambda spec: spec.sinks, "sinks"),
    "alibi": _switch(lambda spec: spec.alibi is not None, "alibi"),
    "out_proj": _switch(lambda spec: spec.out_proj, "out_proj"),
    "layer_idx": _constant(0),
    "device": _constant("cpu"),
    "batch_first": _constant(True),
    "eps": _constant(1e-6),
}
"""How an argument of each role is filled."""
