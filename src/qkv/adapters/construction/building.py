"""Constructors filled by the names of their arguments, and what else to try where the first choice fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qkv.adapters.construction.configs import config_in_words, config_of
from qkv.adapters.construction.construction import Construction
from qkv.adapters.construction.request import Request, fitted
from qkv.adapters.construction.rules import LEFT_OUT, RULES, Asked
from qkv.adapters.construction.sizes import Sizes
from qkv.adapters.construction.telling import told_by
from qkv.adapters.messages import Argument, Config
from qkv.adapters.names import bare
from qkv.errors import CandidateError, nearest
from qkv.spec import AttentionSpec


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
    request = Request(tuple(init), spec, frozenset(stated), class_name, dict(given or {}))
    return construct(request, fitted(request, sizes))


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
    request = Request(tuple(init), spec, frozenset(stated), class_name, dict(given or {}))
    first = construct(request, fitted(request, sizes))
    seen, found = [first], []
    relaxed = request
    for relax in _RELAXATIONS:
        relaxed = relax(relaxed)
        for candidate in (relax(request), relaxed):
            construction = construct(candidate, candidate.resize(fitted(candidate, sizes)))
            if all(construction.kwargs != other.kwargs for other in seen):
                seen.append(construction)
                found.append(construction)
    return found


def construct(request: Request, sizes: Sizes) -> Construction:
    """Every argument, given or by its name."""
    chosen: dict[str, Any] = {}
    implied: dict[str, Any] = {}
    takes, given = request.takes(), dict(request.given)
    unknown: list[Argument] = []
    for argument in request.init:
        if argument.kind in ("args", "kwargs"):
            continue
        if argument in request.configs:
            chosen[argument.name] = config_of(request, sizes, argument, given.pop(argument.name, None), implied)
        elif argument.name in given:
            continue
        else:
            value = _value(request, sizes, takes.get(argument.name), argument, implied)
            if value is not LEFT_OUT:
                chosen[argument.name] = value
            elif argument.required:
                unknown.append(argument)
    if unknown:
        raise _unknown(request, unknown)
    placed = _placed(request, given, chosen)
    implied |= told_by(request, sizes)
    return Construction(
        chosen | placed, assumptions_of(request, chosen), sizes, implied, takes, frozenset(request.given)
    )


def _placed(request: Request, given: Mapping[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
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


def _example(request: Request) -> str:
    return ", ".join(f'"{argument.name}": ...' for argument in request.init if argument.required) or '"name": ...'


def _value(request: Request, sizes: Sizes, role: str | None, argument: Argument, implied: dict[str, Any]) -> Any:
    """The argument's value, or ``LEFT_OUT`` where its default will do."""
    rule = RULES.get(role or "")
    return LEFT_OUT if rule is None else rule(Asked(request, sizes, argument, implied))


def _unknown(request: Request, arguments: Sequence[Argument]) -> CandidateError:
    """That a constructor must be given what its names say nothing of."""
    several = len(arguments) > 1
    needed = " and ".join(map(_described, arguments))
    written = ", ".join(f'"{argument.name}": ...' for argument in arguments)
    return CandidateError(
        f"the constructor of {request.class_name or 'the class'} needs {needed}, "
        f"and {'their names do not say what they are' if several else 'its name does not say what it is'}",
        hint=f"--init '{{{written}}}'",
    )


def _described(argument: Argument) -> str:
    return f"{argument.name!r} ({argument.annotation})" if argument.annotation else repr(argument.name)


def assumptions_of(request: Request, chosen: Mapping[str, Any]) -> list[str]:
    """What was chosen for the constructor, in sentences."""
    if not chosen:
        return []
    sentences = []
    shown = [f"{name}={value!r}" for name, value in chosen.items() if not isinstance(value, Config)]
    if shown:
        sentences.append(f"built with {', '.join(shown)}, chosen by the arguments' names")
    for name, value in chosen.items():
        if isinstance(value, Config):
            sentences.append(f"{name} is {config_in_words(value)}")
    takes = request.takes()
    ambiguous = [name for name in chosen if takes.get(name) == "num_kv_heads" and bare(name).endswith("groups")]
    for name in ambiguous:
        reading = "query heads per key/value head" if request.groups_are_sizes else "key/value heads"
        sentences.append(f"{name} is taken as the number of {reading}")
    return sentences


def _resized(**changes: Callable[[Sizes], int]) -> Callable[[Request], Request]:
    def relax(request: Request) -> Request:
        before = request.resize

        def resize(sizes: Sizes) -> Sizes:
            sizes = before(sizes)
            return replace(sizes, **{name: change(sizes) for name, change in changes.items()})

        return replace(request, resize=resize)

    return relax


_RELAXATIONS: Sequence[Callable[[Request], Request]] = (
    lambda request: replace(request, groups_are_sizes=True),
    lambda request: replace(request, tied=True),
    _resized(value_dim=lambda sizes: sizes.head_dim),
    _resized(num_kv_heads=lambda sizes: sizes.num_heads),
    _resized(context_length=lambda sizes: max(512, sizes.context_length)),
    lambda request: replace(request, plain=True),
)
"""Wishes that are given up, one after the other; each is tried alone and together with those before it."""
