"""Opening: from a candidate's name or object to all the ways it can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, get_args

from qkv.adapters.binding import Signature
from qkv.adapters.calling import Caller
from qkv.adapters.construction import Construction, Sizes, alternatives, arguments_for, default_sizes, fitted_to
from qkv.adapters.doubts import Doubt
from qkv.adapters.function import FunctionReading, function_readings
from qkv.adapters.layouts import HEADLESS
from qkv.adapters.messages import Config, Facts, Hosting, Scalar
from qkv.adapters.module import TokensReading, module_readings, weights_function_readings
from qkv.adapters.names import role_of
from qkv.adapters.projections import possible_heads
from qkv.errors import CandidateError, nearest
from qkv.oracle import Parameters
from qkv.spec import AttentionSpec
from qkv.vocabulary import Layout, MaskMeaning


@dataclass(frozen=True)
class Conventions:
    """What the user said of the candidate itself, beside the spec.

    Attributes:
        layout: order of its axes.
        mask_meaning: what its mask argument means.
        init: arguments of its constructor.
        weights: its projections' names.
        call: values for further arguments of its call.
        seed: seed of its new parameters.
        short: whether its new parameters are short numbers, for an example to be checked by hand.
    """

    layout: str | None = None
    mask_meaning: MaskMeaning | None = None
    init: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    short: bool = False


TOKEN_LAYOUTS = ("BTE", "TBE", "TE")


OF_TOKENS = frozenset({"module", "function of x and weights"})
"""Kinds of candidates that are given tokens, and no query, key and value."""


def kind_of(facts: Facts) -> str:
    """``module``, ``function of query, key and value``, ``function of x and weights``, or any other ``function``."""
    signature = Signature.of(facts.call)
    named = signature.has("query", "key", "value")
    if facts.what != "function" and not (facts.what == "object" and named and not facts.arrays):
        return "module"
    if signature.has("w_q") or signature.has("w_qkv"):
        return "function of x and weights"
    return "function of query, key and value" if named else "function"


def constructions(
    facts: Facts, spec: AttentionSpec, said: Conventions, stated: frozenset[str], sizes: Sizes | None = None
) -> Iterator[Construction | None]:
    """Every set of arguments a class may be built with, the one that hides least first; None for what is built already.

    Raises:
        CandidateError: an argument that must be given has a name of no known role.
    """
    if facts.what != "class":
        yield None
        return
    sizes = sizes or default_sizes(spec, stated)
    choices: dict[str, Any] = {"given": said.init, "stated": stated, "class_name": facts.class_name}
    first = arguments_for(facts.init, spec, sizes, **choices)
    yield first
    optional = {argument.name for argument in facts.init if not argument.required}
    own = {name: value for name, value in first.kwargs.items() if not (isinstance(value, Config) and name in optional)}
    if len(own) < len(first.kwargs):
        yield replace(first, kwargs=own, assumptions=["built with its own default config"], implied={})
    yield from alternatives(facts.init, spec, sizes, **choices)


def fitting_constructions(
    host: Hosting, facts: Facts, spec: AttentionSpec, said: Conventions, stated: frozenset[str]
) -> Iterator[Construction | None]:
    """What to build a class with, until it can be called; after each, what the sizes it turned out to have suggest.

    Raises:
        CandidateError: see `constructions`; or building it ended its process.
    """
    for construction in constructions(facts, spec, said, stated):
        yield construction
        if construction is not None:
            fitted = _fitted(host, construction)
            if fitted is not None:
                yield fitted


def _fitted(host: Hosting, construction: Construction) -> Construction | None:
    try:
        return fitted_to(construction, host.build(construction.kwargs))
    except CandidateError as error:
        if error.fatal:
            raise
        return None


def readings(
    caller: Caller, facts: Facts, construction: Construction | None, spec: AttentionSpec, said: Conventions,
    stated: frozenset[str],
) -> Iterator[FunctionReading | TokensReading]:  # fmt: skip
    """Every way of reading a candidate that is ready to be called, under one spec; the likeliest first."""
    kind = kind_of(facts)
    _check_conventions(kind, facts, said)
    extra = dict(said.call)
    if kind not in OF_TOKENS:
        yield from _functions(caller, facts, spec, said, stated)
    elif kind == "function of x and weights":
        for square in (False, True):
            yield from weights_function_readings(
                caller, facts, sized_for_weights(facts, spec, stated, square), layout=said.layout,  # type: ignore[arg-type]
                mask_meaning=said.mask_meaning, extra=extra, seed=said.seed,
            )  # fmt: skip
    else:
        yield from module_readings(
            caller, facts, spec, layout=said.layout, mask_meaning=said.mask_meaning, given=said.weights, extra=extra,  # type: ignore[arg-type]
            seed=said.seed, short=said.short, max_tokens=construction.sizes.context_length if construction else None,
            specify=lambda spec, parameters, shown: sized_by(facts, spec, parameters, stated, shown),
        )  # fmt: skip


WIDTHS = (8, 64, 128, 16)
"""Channels of a head to try where nobody said how many: kernels may be made for some widths only."""

STEPS = (1, 32, 64, 128)
"""What lengths may have to be a multiple of."""


def _functions(
    caller: Caller, facts: Facts, spec: AttentionSpec, said: Conventions, stated: frozenset[str]
) -> Iterator[FunctionReading]:
    """A function in the usual sizes; where it can be called with none of these, in those that kernels are made for."""
    widths = (spec.head_dim or WIDTHS[0],) if "head_dim" in stated else WIDTHS
    for step, width in product(STEPS, widths):
        if caller.fits not in (None, (width, step)):
            continue
        yield from function_readings(
            caller,
            facts,
            sized_for_function(spec.but(head_dim=width), stated, said.layout),
            layout=said.layout,  # type: ignore[arg-type]  # the command line offers the layouts only
            mask_meaning=said.mask_meaning,
            extra=dict(said.call),
            heads_said="num_heads" in stated,
            width_said="head_dim" in stated or (step, width) != (STEPS[0], widths[0]),
            step=step,
        )


def sized_for_function(spec: AttentionSpec, stated: frozenset[str], layout: str | None) -> AttentionSpec:
    """The spec with a size for every axis that it leaves open."""
    known = "num_heads" in stated or spec.num_heads > 1 or layout in HEADLESS
    heads = spec.num_heads if known else 6
    head_dim = spec.head_dim or 8
    return spec.but(num_heads=heads, head_dim=head_dim)


def sized_for_weights(facts: Facts, spec: AttentionSpec, stated: frozenset[str], square: bool) -> AttentionSpec:
    """The same for functions of x and weights: heads only where the function takes their number.

    Weights that aren't square show which way round they are used; square ones run even when that is the wrong one.
    """
    takes_heads = Signature.of(facts.call).has("num_heads")
    heads = spec.num_heads if "num_heads" in stated or spec.num_heads > 1 else (6 if takes_heads else 1)
    head_dim = spec.head_dim or 8
    embed = spec.embed_dim or (heads * head_dim if square else heads * head_dim + 8)
    out = Signature.of(facts.call).has("w_o")
    return spec.but(num_heads=heads, head_dim=head_dim, embed_dim=embed, out_proj=out)


def sized_by(
    facts: Facts, spec: AttentionSpec, parameters: Parameters, stated: frozenset[str], shown: int | None = None
) -> Iterator[tuple[AttentionSpec, Sequence[Doubt]]]:
    """The spec with the sizes that a candidate's own parameters show; several where its number of heads isn't said.

    Args:
        facts: what the candidate says of itself.
        spec: what it is meant to do.
        parameters: its projections.
        stated: the fields of the spec that the user settled.
        shown: the heads that its arrays are cut into: a list of single heads, or an axis of heads; None where none are.

    Raises:
        CandidateError: the spec's heads don't fit the parameters.
    """
    width, kv_width = parameters.q_proj.weight.shape[0], parameters.k_proj.weight.shape[0]
    told = "num_heads" in stated or any(role_of(name.rpartition(".")[2]) == "num_heads" for name in facts.attributes)
    if "num_kv_heads" in stated and not told and not width * spec.kv_heads % kv_width:
        yield _sized(spec, parameters, stated, width * spec.kv_heads // kv_width), ()
        return
    if "num_heads" in stated or spec.num_heads > 1:
        yield _sized(spec, parameters, stated, spec.num_heads), ()
        return
    if shown:
        yield _sized(spec, parameters, stated, shown), ()
        return
    possible = possible_heads(facts, width)
    doubt = Doubt("nothing it says of itself is known to be its number of heads", "say it: --heads N")
    for _, number in possible:
        yield _sized(spec, parameters, stated, number), (doubt,)
    yield _sized(spec, parameters, stated, 1), ((doubt,) if possible else ())


def _sized(spec: AttentionSpec, parameters: Parameters, stated: frozenset[str], num_heads: int) -> AttentionSpec:
    width, kv_width = parameters.q_proj.weight.shape[0], parameters.k_proj.weight.shape[0]
    if "num_kv_heads" in stated and kv_width % spec.kv_heads:
        raise CandidateError(
            f"k_proj gives {kv_width} channels, which {spec.kv_heads} heads can't share evenly",
            hint=f"--kv-heads with a number that divides {kv_width}",
        )
    if width % num_heads:
        raise CandidateError(
            f"q_proj gives {width} channels, which {num_heads} heads can't share evenly",
            hint=f"--heads with a number that divides {width}",
        )
    head_dim = width // num_heads
    kv_heads = kv_width // head_dim
    if kv_heads < 1 or kv_width % head_dim or num_heads % kv_heads:
        raise CandidateError(
            f"k_proj gives {kv_width} channels, no number of heads of {head_dim} for {num_heads} query heads to share",
            hint="say which arrays are the projections: --weights k_proj=NAME",
        )
    if "num_kv_heads" in stated and spec.kv_heads != kv_heads:
        raise CandidateError(
            f"k_proj gives {kv_width} channels, {kv_heads} key/value heads of {head_dim}, and the spec says "
            f"num_kv_heads {spec.kv_heads}",
            hint="say how it is built with that many: --init JSON, with its own name for them",
        )
    value_dim = parameters.v_proj.weight.shape[0] // kv_heads
    return spec.but(
        num_heads=num_heads,
        num_kv_heads=None if kv_heads == num_heads else kv_heads,
        head_dim=head_dim,
        value_dim=None if value_dim == head_dim else value_dim,
        embed_dim=parameters.q_proj.weight.shape[1],
        out_proj=parameters.out_proj is not None and (spec.out_proj or "out_proj" not in stated),
        projection_bias=any(p.bias is not None for p in (parameters.q_proj, parameters.k_proj, parameters.v_proj)),
    )


def as_built(facts: Facts, construction: Construction) -> Facts:
    """What a built candidate says of itself, with what its constructor was told: that is as good as an attribute."""
    told: dict[str, Scalar] = {
        name: value for name, value in construction.implied.items() if isinstance(value, int | float | bool | str)
    }
    if construction.sizes.num_heads > 1:
        told["num_heads"] = construction.sizes.num_heads
    return replace(facts, attributes={**told, **facts.attributes})


def _check_conventions(kind: str, facts: Facts, said: Conventions) -> None:
    """What the user said must have a place in this kind of candidate.

    Raises:
        CandidateError: it has none.
    """
    of_tokens = kind in OF_TOKENS
    if said.layout and (said.layout in TOKEN_LAYOUTS) != of_tokens:
        known = TOKEN_LAYOUTS if of_tokens else get_args(Layout)
        raise CandidateError(
            f"--layout {said.layout} is no layout of a {kind}", hint=f"--layout with one of: {', '.join(known)}"
        )
    if said.weights and kind != "module":
        raise CandidateError(f"--weights names arrays of a module, and {facts.name} is a {kind}", hint="leave it out")
    if said.init and facts.what == "function":
        raise CandidateError(f"--init is for a constructor, and {facts.name} is a function", hint="--call for its call")
    signature = Signature.of(facts.call)
    if said.mask_meaning and not (signature.has("mask") or signature.has("padding")):
        raise CandidateError(
            f"--mask-argument says what a mask argument means, and {facts.name} takes none that is known by its name",
            hint="leave it out, or name the argument mask or key_padding_mask",
        )
    names = [argument.name for argument in facts.call]
    strange = [name for name in said.call if name not in names]
    if strange and not any(argument.kind == "kwargs" for argument in facts.call):
        raise CandidateError(
            f"--call gives {strange[0]!r}, which {facts.name} does not take; {nearest(strange[0], names)}",
            hint=f"its arguments: {', '.join(names)}",
        )
