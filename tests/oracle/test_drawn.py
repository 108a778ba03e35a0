"""The drawn specs and calls leave out no option. What the options are is read off the fields' own types."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import given, settings

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Mask
from qkv.oracle import Inputs
from qkv.spec import AttentionSpec

NEVER_DRAWN = {"Parameters.fused is given", "Inputs.strided is True", "Inputs.earlier is given"}
"""Only faults of layout, and of caches, look at them."""

ONLY_IN_CODE = ("Rule", "PerHead", "Shifted", "Documents.ids", "Padding.lengths", "Padding.queries")
"""Masks that no spec can write down. tests/masks holds them to their tables."""


def test_every_option_is_drawn() -> None:
    seen: Counter[str] = Counter()

    # The same examples every time: an option may be seldom, and yet this test never fails by chance.
    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(drawn_specs(), drawn_calls())
    def count(spec: AttentionSpec, call: Call) -> None:
        seen.update({*chosen(spec), *chosen(call.inputs(spec))})

    count()
    required = {*options(AttentionSpec), *options(Inputs)} - NEVER_DRAWN
    required = {option for option in required if not option.startswith(ONLY_IN_CODE)}
    assert {option for option in required if not seen[option]} == set()
    assert {"Causal.ahead is another number", "RopeScaling.kind is 'yarn'", "Not.of is given"} <= required


def options(kind: type[Any]) -> set[str]:
    """Every choice that a dataclass offers, and the dataclasses in it, as ``Class.field is choice``."""
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        kind = waiting.pop()
        if kind is Mask:
            waiting.extend(every_mask())
        elif kind.__name__ not in found:
            found.add(kind.__name__)
            hints = get_type_hints(kind)
            for field in dataclasses.fields(kind):
                for choice in alternatives(hints[field.name]):
                    found |= {f"{kind.__name__}.{field.name} is {word}" for word in words(choice, field)}
                    if dataclasses.is_dataclass(choice) or choice is Mask:
                        waiting.append(choice)
    return found


def alternatives(hint: Any) -> Iterator[Any]:
    """The members of a union, or the type itself."""
    return iter(get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])


def words(choice: Any, field: dataclasses.Field[Any]) -> list[str]:
    """How :func:`chosen` names the values of this type."""
    if choice is NoneType:
        return ["None"]
    if choice is bool:
        return ["True", "False"]
    if get_origin(choice) is Literal:
        return [repr(value) for value in get_args(choice)]
    if choice in (int, float):
        return ["its default", "another number"] if isinstance(field.default, int | float) else ["another number"]
    return ["given"]


def chosen(node: Any) -> Iterator[str]:
    """Every choice that was made in a spec or in inputs."""
    kind = type(node)
    yield kind.__name__
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if value is None or isinstance(value, bool | str):
            word = repr(value)
        elif isinstance(value, int | float):
            word = "its default" if value == field.default else "another number"
        else:
            word = "given"
        yield f"{kind.__name__}.{field.name} is {word}"
        if dataclasses.is_dataclass(value):
            yield from chosen(value)


def every_mask() -> list[type[Mask]]:
    """Every mask that there is."""
    return [kind for kind in Mask.__subclasses__() if kind.__module__.startswith("qkv.masks.")]
