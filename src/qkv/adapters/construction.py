"""What to build a candidate's class with: its constructor's arguments, filled by their usual names.

The sizes are chosen so that nothing hides: every axis its own size, no two equal where the class allows it, biases on,
dropout on. Where the class does not allow it, ``alternatives`` gives up one wish after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qkv.adapters.messages import Argument, Config
from qkv.adapters.names import INCOMING, ROLES, bare, is_config, role_of
from qkv.errors import CandidateError, nearest
from qkv.masks import Causal, SlidingWindow
from qkv.spec import AttentionSpec

DROPOUT = 0.2
"""High enough to show when it is left on in evaluation."""

WINDOW = 5
"""For classes that need a window where the spec names none: shorter than every probe."""

SOFTCAP = 5.0
"""For classes that need a softcap where the spec names none: low enough to bend ordinary scores."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of an attention, every one of them known.

    Attributes:
        embed_dim: channels of one token of ``x``.
        num_heads: query heads.
        num_kv_heads: key/value heads, where the class lets them be chosen.
        head_dim: channels of one head's query and key.
        value_dim: channels of one head's value, where the class lets it be chosen.
        context_length: most tokens of a sequence.
    """

    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    context_length: int

    @property
    def width(self) -> int:
        """Channels of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def group_size(self) -> int:
        """How many query heads share one key/value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True)
class Construction:
    """The arguments to build a class with.

    Attributes:
        kwargs: keyword arguments; a :class:`Config` stands for a config object.
        assumptions: what was chosen, in sentences for the report.
        sizes: the sizes asked for. The candidate's own arrays have the last word: a class may read them otherwise.
        implied: fields of the spec that these arguments set and the spec left open, as at the command line:
            ``{"window": 5}``.
    """

    kwargs: Mapping[str, Any]
    assumptions: Sequence[str]
    sizes: Sizes
    implied: Mapping[str, Any] = field(default_factory=dict)


def default_sizes(spec: AttentionSpec, stated: Collection[str] = ()) -> Sizes:
    """Sizes for the spec's probes: the spec's own, and where it leaves one open a size that no other axis has.

    Args:
        spec: the spec.
        stated: fields of the spec that were given by the user, so that one head means one head.
    """
    open_heads = spec.num_heads == 1 and "num_heads" not in stated
    heads = 6 if open_heads else spec.num_heads
    kv_heads = spec.num_kv_heads or (heads if "num_kv_heads" in stated else _fewer(heads))
    head_dim = spec.head_dim or (spec.embed_dim // heads if spec.embed_dim and not spec.embed_dim % heads else 8)
    value_dim = spec.value_dim or (head_dim if "value_dim" in stated else head_dim + 2)
    return Sizes(
        embed_dim=spec.embed_dim or heads * head_dim + 8,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        context_length=40,
    )


def _fewer(heads: int) -> int:
    """The number of key/value heads that shows most: more than one, fewer than query heads."""
    return next((n for n in range(2, heads) if heads % n == 0), 1)


def arguments_for(
    init: Sequence[Argument],
    spec: AttentionSpec,
    sizes: Sizes,
    given: Mapping[str, Any] | None = None,
    *,
    stated: Collection[str] = (),
    class_name: str = "",
) -> Construction:
    """The constructor's arguments: those given, the rest by their names.

    Args:
        init: the constructor's signature.
        spec: what the attention is meant to do.
        sizes: the sizes wanted, see :func:`default_sizes`.
        given: what the user gave with ``--init``; names that the constructor lacks go into its config object.
        stated: fields of the spec that were given by the user.
        class_name: name of the class, for conventions that go with it.

    Raises:
        CandidateError: an argument that must be given has a name of no known role, or a given one has no place.
    """
    request = _Request(tuple(init), spec, frozenset(stated), class_name, dict(given or {}))
    return _construct(request, _fitted(request, sizes))


def alternatives(
    init: Sequence[Argument],
    spec: AttentionSpec,
    sizes: Sizes,
    given: Mapping[str, Any] | None = None,
    *,
    stated: Collection[str] = (),
    class_name: str = "",
) -> list[Construction]:
    """What else to try where the first choice can't be built, the smallest change first.

    Arguments and errors are those of :func:`arguments_for`.
    """
    request = _Request(tuple(init), spec, frozenset(stated), class_name, dict(given or {}))
    first = _construct(request, _fitted(request, sizes))
    seen, found = [first], []
    relaxed = request
    for relax in _RELAXATIONS:
        relaxed = relax(relaxed)
        for candidate in (relax(request), relaxed):
            construction = _construct(candidate, candidate.resize(_fitted(candidate, sizes)))
            if all(construction.kwargs != other.kwargs for other in seen):
                seen.append(construction)
                found.append(construction)
    return found


@dataclass(frozen=True)
class _Request:
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
        roles = {argument.name: role for argument in self.init if (role := role_of(argument.name))}
        incoming = [name for name, role in roles.items() if role == "embed_dim" and bare(name) in INCOMING]
        if incoming:
            roles |= {name: "out_dim" for name, role in roles.items() if role == "embed_dim" and name not in incoming}
        return roles

    def given_by_role(self) -> dict[str, Any]:
        """What the user gave, by role, config fields included."""
        flat = {**self.given}
        for name, value in self.given.items():
            if is_config(name) and isinstance(value, Mapping):
                flat |= value
        takes = self.takes()
        return {role: value for name, value in flat.items() if (role := takes.get(name) or role_of(name))}

    @property
    def configs(self) -> list[Argument]:
        """The arguments that are config objects."""
        return [argument for argument in self.init if is_config(argument.name, argument.annotation)]


# --- sizes ------------------------------------------------------------------------------------------------------------


def _fitted(request: _Request, sizes: Sizes) -> Sizes:
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


def _fit_heads(request: _Request, sizes: Sizes, takes: set[str], given: Mapping[str, int]) -> Sizes:
    heads = sizes.num_heads
    if "out_dim" in takes:
        width = given.get("out_dim")
        if width:
            per_head = width if _concatenates(request) else max(width // heads, 1)
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


def _fit_kv_heads(request: _Request, sizes: Sizes, takes: set[str], given: Mapping[str, int]) -> Sizes:
    heads = sizes.num_heads
    if "num_kv_heads" in given:
        return sizes
    if "group_size" in given:
        return replace(sizes, num_kv_heads=max(heads // given["group_size"], 1))
    if not takes & {"num_kv_heads", "group_size"}:
        return replace(sizes, num_kv_heads=request.spec.num_kv_heads or heads)
    return sizes if not heads % sizes.num_kv_heads else replace(sizes, num_kv_heads=_fewer(heads))


def _concatenates(request: _Request) -> bool:
    """Whether ``d_out`` is the width of one head: the article's wrapper sets whole heads side by side."""
    return "wrapper" in request.class_name.lower()


# --- arguments --------------------------------------------------------------------------------------------------------


def _construct(request: _Request, sizes: Sizes) -> Construction:
    chosen: dict[str, Any] = {}
    implied: dict[str, Any] = {}
    takes, given = request.takes(), dict(request.given)
    for argument in request.init:
        if argument.kind in ("args", "kwargs"):
            continue
        if argument in request.configs:
            chosen[argument.name] = _config(request, sizes, argument, given.pop(argument.name, None), implied)
        elif argument.name in given:
            continue
        else:
            value = _value(request, sizes, takes.get(argument.name), argument, implied)
            if value is not _LEFT_OUT:
                chosen[argument.name] = value
    placed = _placed(request, given, chosen)
    return Construction(chosen | placed, _assumptions(request, chosen), sizes, implied)


def _placed(request: _Request, given: Mapping[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """The given arguments; those that the constructor doesn't take are put into its config object."""
    names = {argument.name for argument in request.init}
    anything = any(argument.kind == "kwargs" for argument in request.init)
    strangers = {name: value for name, value in given.items() if name not in names}
    if strangers and request.configs:
        config = request.configs[0].name
        chosen[config] = replace(chosen[config], values={**chosen[config].values, **strangers})
    elif strangers and not anything:
        name = next(iter(strangers))
        raise CandidateError(
            f"--init gives {name!r}, which {request.class_name or 'the constructor'} does not take; "
            f"{nearest(name, names) if names else 'it takes no arguments'}",
            hint=f"--init '{{{_example(request)}}}'",
        )
    elif strangers:
        return dict(given)
    return {name: value for name, value in given.items() if name in names}


def _example(request: _Request) -> str:
    return ", ".join(f'"{argument.name}": ...' for argument in request.init if argument.required) or '"name": ...'


class _LeftOut:
    """The argument is not given."""


_LEFT_OUT = _LeftOut()


def _value(request: _Request, sizes: Sizes, role: str | None, argument: Argument, implied: dict[str, Any]) -> Any:
    """The argument's value, or ``_LEFT_OUT`` where its default will do."""
    rule = _RULES.get(role or "")
    value = _LEFT_OUT if rule is None else rule(_Asked(request, sizes, argument, implied))
    if value is _LEFT_OUT and argument.required:
        raise CandidateError(
            f"the constructor of {request.class_name or 'the class'} needs {_described(argument)}, "
            "and its name does not say what it is",
            hint=f"--init '{{\"{argument.name}\": ...}}'",
        )
    return value


def _described(argument: Argument) -> str:
    return f"{argument.name!r} ({argument.annotation})" if argument.annotation else repr(argument.name)


@dataclass(frozen=True)
class _Asked:
    """One argument that is to be filled."""

    request: _Request
    sizes: Sizes
    argument: Argument
    implied: dict[str, Any]

    @property
    def spec(self) -> AttentionSpec:
        return self.request.spec

    @property
    def needed(self) -> bool:
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


def _size(name: str, keep_none: bool = False) -> Callable[[_Asked], Any]:
    """A rule: the size of that name. With ``keep_none`` an optional argument that has no number is left out."""

    def rule(asked: _Asked) -> Any:
        if keep_none and not asked.needed and not asked.has_number:
            return _LEFT_OUT
        return getattr(asked.sizes, name)

    return rule


def _out_dim(asked: _Asked) -> Any:
    if not asked.needed and not asked.has_number:
        return _LEFT_OUT
    return asked.sizes.head_dim if _concatenates(asked.request) else asked.sizes.width


def _kv_heads(asked: _Asked) -> Any:
    turned = asked.request.groups_are_sizes and bare(asked.argument.name).endswith("groups")
    return asked.sizes.group_size if turned else asked.sizes.num_kv_heads


def _dropout(asked: _Asked) -> Any:
    if asked.argument.default is None and not asked.needed:
        return _LEFT_OUT
    if asked.is_switch and not asked.needed:
        return _LEFT_OUT
    if asked.request.plain:
        return 0.0 if asked.needed else _LEFT_OUT
    return asked.spec.dropout_p if asked.spec.dropout_p or asked.says("dropout_p") else DROPOUT


def _bias(asked: _Asked) -> Any:
    if not asked.is_switch or (asked.request.plain and not asked.needed):
        return _LEFT_OUT
    return asked.spec.projection_bias if asked.says("projection_bias") else True


def _switch(on: Callable[[AttentionSpec], bool], *fields: str) -> Callable[[_Asked], Any]:
    """A rule: on where the spec says so; left at the class's own default where the spec says nothing."""

    def rule(asked: _Asked) -> Any:
        value = on(asked.spec)
        if not asked.is_switch or not (value or asked.needed or asked.says(*fields)):
            return _LEFT_OUT
        return value

    return rule


def _window(asked: _Asked) -> Any:
    windows = [part.size for part in asked.spec.mask.parts() if isinstance(part, SlidingWindow)]
    if asked.is_switch and not asked.needed:
        return _LEFT_OUT if not windows else True
    if windows:
        return windows[0]
    return asked.imply("window", WINDOW) if asked.needed or asked.has_number else _LEFT_OUT


def _softcap(asked: _Asked) -> Any:
    if asked.spec.softcap is not None:
        return asked.spec.softcap
    return asked.imply("softcap", SOFTCAP) if asked.needed else _LEFT_OUT


def _scale(asked: _Asked) -> Any:
    if isinstance(asked.argument.default, bool) or "bool" in asked.argument.annotation:
        return asked.spec.scale != 1.0 if asked.needed or asked.says("scale") else _LEFT_OUT
    if asked.spec.scale is not None:
        return asked.spec.scale
    return asked.sizes.head_dim**-0.5 if asked.needed else _LEFT_OUT


def _query_scalar(asked: _Asked) -> Any:
    if asked.spec.scale:
        return asked.spec.scale**-2
    return asked.sizes.head_dim if asked.needed else _LEFT_OUT


def _rope_base(asked: _Asked) -> Any:
    if asked.spec.rope is not None:
        return asked.spec.rope.base
    return 10000.0 if asked.needed else _LEFT_OUT


def _rotary_dims(asked: _Asked) -> Any:
    if asked.spec.rope is not None:
        return asked.spec.rope.rotary_dims(asked.sizes.head_dim)
    return asked.sizes.head_dim if asked.needed else _LEFT_OUT


def _rotary_fraction(asked: _Asked) -> Any:
    if asked.spec.rope is not None:
        return asked.spec.rope.rotary_dims(asked.sizes.head_dim) / asked.sizes.head_dim
    return 1.0 if asked.needed else _LEFT_OUT


def _constant(value: Any) -> Callable[[_Asked], Any]:
    """A rule: that value where the argument must be given."""
    return lambda asked: value if asked.needed else _LEFT_OUT


_RULES: Mapping[str, Callable[[_Asked], Any]] = {
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


# --- config objects ---------------------------------------------------------------------------------------------------

_OPEN_IN_CONFIG = ("window", "softcap", "scale")
"""Roles that a config object answers with None where the spec names nothing."""

_OTHER_FIELDS: Mapping[str, Any] = {
    "vocab_size": 65,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "attn_implementation": "eager",
    "_attn_implementation": "eager",
    "flash": False,
    "use_flash": False,
    "use_flash_attention": False,
    "flash_attention": False,
    "use_cache": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "rope_scaling": None,
    "position_embedding_type": "absolute",
    "clip_qkv": None,
    "pretraining_tp": 1,
    "pad_token_id": 0,
}
"""What else attentions read from a config object."""


def _config(request: _Request, sizes: Sizes, argument: Argument, given: Any, implied: dict[str, Any]) -> Any:
    """The config object: it answers to every name of every role, all in agreement."""
    if given is not None and not isinstance(given, Mapping):
        return given
    values = dict(_OTHER_FIELDS)
    for role, names in ROLES.items():
        for name in names:
            value = _config_value(request, sizes, role, name, implied)
            if value is not _LEFT_OUT:
                values[name] = value
    return Config(values | dict(given or {}), argument.annotation)


def _config_value(request: _Request, sizes: Sizes, role: str, name: str, implied: dict[str, Any]) -> Any:
    rule = _RULES.get(role)
    if rule is None:
        return _LEFT_OUT
    required = role not in _OPEN_IN_CONFIG
    value = rule(_Asked(request, sizes, Argument(name, required=required), implied))
    return None if value is _LEFT_OUT and not required else value


# --- words ------------------------------------------------------------------------------------------------------------


def _assumptions(request: _Request, chosen: Mapping[str, Any]) -> list[str]:
    """What was chosen for the constructor, in sentences."""
    if not chosen:
        return []
    sentences = []
    shown = [f"{name}={value!r}" for name, value in chosen.items() if not isinstance(value, Config)]
    if shown:
        sentences.append(f"built with {', '.join(shown)}, chosen by the arguments' names")
    for name, value in chosen.items():
        if isinstance(value, Config):
            sentences.append(f"{name} is {_config_in_words(value)}")
    takes = request.takes()
    ambiguous = [name for name in chosen if takes.get(name) == "num_kv_heads" and bare(name).endswith("groups")]
    for name in ambiguous:
        reading = "query heads per key/value head" if request.groups_are_sizes else "key/value heads"
        sentences.append(f"{name} is taken as the number of {reading}")
    return sentences


def _config_in_words(config: Config) -> str:
    values = config.values
    shown = ("n_embd", "n_head", "num_kv_heads", "block_size", "dropout", "bias")
    numbers = ", ".join(f"{name}={values[name]!r}" for name in shown if name in values)
    return f"a config object with {numbers}, and the same under every other name that the field uses"


# --- alternatives -----------------------------------------------------------------------------------------------------


def _resized(**changes: Callable[[Sizes], int]) -> Callable[[_Request], _Request]:
    def relax(request: _Request) -> _Request:
        before = request.resize

        def resize(sizes: Sizes) -> Sizes:
            sizes = before(sizes)
            return replace(sizes, **{name: change(sizes) for name, change in changes.items()})

        return replace(request, resize=resize)

    return relax


_RELAXATIONS: Sequence[Callable[[_Request], _Request]] = (
    lambda request: replace(request, groups_are_sizes=True),
    lambda request: replace(request, tied=True),
    _resized(value_dim=lambda sizes: sizes.head_dim),
    _resized(num_kv_heads=lambda sizes: sizes.num_heads),
    _resized(context_length=lambda sizes: max(512, sizes.context_length)),
    lambda request: replace(request, plain=True),
)
"""Wishes that are given up, one after the other; each is tried alone and together with those before it."""
