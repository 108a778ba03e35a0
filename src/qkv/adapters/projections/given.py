"""Arrays that the user names: ``q_proj=W_query.weight``, ``v_proj=qkv.weight[96:144]``, ``out_proj=W.T``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qkv.adapters.messages import Facts
from qkv.adapters.names import SINKS, bare, norm_role, projection_role
from qkv.adapters.projections.found import Found, Unit
from qkv.adapters.projections.paths import ArrayPath, bias_of
from qkv.adapters.projections.scope import Scope
from qkv.errors import CandidateError, nearest

_EXPRESSION = re.compile(r"(?P<name>.+?)(?P<cut>\[[^\]]*\])?(?P<turned>\.T)?")


def array_named(expression: str) -> str:
    """The array's name in what the user wrote, without a slice and ``.T``."""
    match = _EXPRESSION.fullmatch(expression)
    return match["name"] if match else expression


def with_given(scope: Scope, found: Found, facts: Facts, given: Mapping[str, str]) -> Scope:
    """The scope, with the arrays that the user named in place of those found.

    Raises:
        CandidateError: a name is that of no array or of no projection.
    """
    units = dict(scope.units)
    biases = dict(scope.biases)
    for key, expression in given.items():
        stem = key.removesuffix(".weight")
        if projection_role(stem) == "out" and expression.lower() == "none":
            units.pop("out", None)
            continue
        if stem.endswith(".bias") and projection_role(stem.removesuffix(".bias")):
            biases[str(projection_role(stem.removesuffix(".bias")))] = _existing(expression, facts)
            continue
        role = projection_role(stem)
        if role is None:
            if norm_role(stem) or bare(stem) in SINKS:
                _note_given(found, scope, stem, _existing(expression, facts))
                continue
            raise CandidateError(
                f"--weights names {key!r}, which is no projection; {nearest(key, _GIVEN)}",
                hint=f"--weights q_proj={expression}",
            )
        for other in [other for other in units if set(other) & set(role) and "out" not in (other, role)]:
            del units[other]
        units[role] = (_named_unit(role, expression, facts),)
    return replace(scope, units=units, biases=biases)


_GIVEN = ("q_proj", "k_proj", "v_proj", "out_proj", "qkv_proj", "kv_proj", "q_norm", "k_norm", "sinks")


def _note_given(found: Found, scope: Scope, stem: str, name: str) -> None:
    if bare(stem) in SINKS:
        found.sinks[scope.at] = name
    else:
        found.norms[scope.at, str(norm_role(stem))] = {"weight": name}


def _existing(name: str, facts: Facts) -> str:
    if name not in facts.arrays:
        raise CandidateError(
            f"--weights names {name!r}, and {facts.class_name} has no such array; {nearest(name, facts.arrays)}",
            hint=f"--weights q_proj={next(iter(facts.arrays), 'NAME')}",
        )
    return name


def _named_unit(role: str, expression: str, facts: Facts) -> Unit:
    match = None if expression in facts.arrays else _EXPRESSION.fullmatch(expression)
    name = _existing(match["name"] if match else expression, facts)
    cut = _cut(match["cut"], expression) if match and match["cut"] else ()
    turned = bool(match and match["turned"])
    one = facts.arrays[name]
    shape = np.broadcast_to(0.0, one.shape)[cut].shape if cut else tuple(one.shape)
    path = ArrayPath.of(name)
    raw, bias = not path.leaf, bias_of(path, facts.arrays)
    stored_in_out = one.owner == "Conv1D" or turned
    along_out = cut[1:2] if stored_in_out else cut[:1]
    return Unit(role, name, replace(one, shape=shape), bias, (), None, raw, cut, along_out, turned)


def _cut(text: str, expression: str) -> tuple[slice, ...]:
    slices = []
    for part in text[1:-1].split(","):
        bounds = [bound.strip() for bound in part.split(":")]
        if len(bounds) > 3 or not all(re.fullmatch(r"-?\d*", bound) for bound in bounds):
            raise CandidateError(
                f"--weights: {part.strip()!r} in {expression!r} is no slice", hint="--weights 'q_proj=qkv.weight[0:48]'"
            )
        numbers = [int(bound) if bound else None for bound in bounds]
        slices.append(slice(*numbers) if len(numbers) > 1 else slice(numbers[0], (numbers[0] or 0) + 1))
    return tuple(slices)
