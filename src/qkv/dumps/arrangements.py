"""Arrangements: the orders of axes that the shapes of query, key, value and output allow together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from qkv.adapters.dump import Array
from qkv.dumps.tensors import Dump
from qkv.errors import CandidateError
from qkv.spec import AttentionSpec

FORMS: Mapping[int, tuple[str, ...]] = {4: ("BHTD", "BTHD", "TBHD"), 3: ("BTE", "HTD", "THD", "TBE"), 2: ("TE",)}
"""Orders of axes by their number. E is all heads side by side."""

HEADLESS = {"BTD": "BTE", "TD": "TE"}
"""Layouts of one head, as those with E that has one."""

MOST_HEADS = 128
"""Heads that are thought of where nothing says how many lie side by side."""

Sizes = dict[str, int]


@dataclass(frozen=True)
class Arrangement:
    """One order of axes, and the sizes that follow.

    Attributes:
        layout: the order of query, key and value.
        out_layout: the order of the output.
        num_heads: query heads.
        kv_heads: key/value heads.
        sizes: ``batch``, ``queries``, ``keys``, ``head_dim``, ``value_dim``.
    """

    layout: str
    out_layout: str
    num_heads: int
    kv_heads: int
    sizes: Mapping[str, int]

    def query(self, array: Array) -> Array:
        """A tensor of the query's shape as ``(batch, head, query, dim)``."""
        return in_heads(array, self.layout, self.num_heads)

    def key(self, array: Array) -> Array:
        """A tensor of the key's or the value's shape as ``(batch, kv head, key, dim)``."""
        return in_heads(array, _of_key(self.layout, array.ndim), self.kv_heads)

    def output(self, array: Array) -> Array:
        """A tensor of the output's shape as ``(batch, head, query, dim)``."""
        return in_heads(array, self.out_layout, self.num_heads)

    def __str__(self) -> str:
        heads = f"{self.num_heads} heads" if self.num_heads > 1 else "one head"
        shared = f" over {self.kv_heads} of key and value" if self.kv_heads < self.num_heads else ""
        return f"{self.layout}, {heads}{shared}"


def in_heads(array: Array, layout: str, heads: int) -> Array:
    """``(batch, head, token, dim)`` of an array in any of the layouts."""
    if layout.endswith("E"):
        array = array.reshape(*array.shape[:-1], heads, array.shape[-1] // heads)
        layout = layout[:-1] + "HD"
    order = [axis for axis in "BHTD" if axis in layout]
    array = np.transpose(array, [layout.index(axis) for axis in order])
    return np.expand_dims(array, tuple(place for place, axis in enumerate("BHTD") if axis not in order))


def _of_key(layout: str, ndim: int) -> str:
    """The layout of a key that lacks the axis for heads, since all queries share one."""
    return layout.replace("H", "") if ndim == len(layout) - 1 else layout


def arrangements(dump: Dump, spec: AttentionSpec, stated: frozenset[str], layout: str | None) -> list[Arrangement]:
    """Every arrangement that fits the shapes and what was stated, the likeliest first of each order of axes in front.

    Where the dump holds weights or scores, an arrangement that they contradict is none, if there is another.

    Args:
        dump: the tensors.
        spec: what was said of the attention.
        stated: the fields of it that were said.
        layout: the layout that was said; None for any.

    Raises:
        CandidateError: none fits; the message is about the one that fits best.
    """
    shapes = {role: dump.tensors[role].array.shape for role in ("query", "key", "value", "output")}
    said = HEADLESS.get(layout or "", layout)
    forms = FORMS.get(len(shapes["query"]), ())
    if said is not None:
        forms = (said,) if len(said) == len(shapes["query"]) else ()
    if not forms:
        raise _no_form(dump, layout)
    wrong: list[list[str]] = []
    by_form: list[list[Arrangement]] = []
    for form in forms:
        counts = [1] if layout in HEADLESS else _head_counts(dump, form, spec, stated)
        tried = [_fitted(form, heads, shapes, spec, stated) for heads in counts]
        by_form.append([one for fitting, _ in tried for one in fitting])
        wrong += [errors for _, errors in tried]
    # Heads that the shapes show come before numbers of heads that are only thought of.
    found = [one for rank in zip_longest(*by_form) for one in rank if one is not None]
    if not found:
        listed = ", ".join(dict.fromkeys(f"{dump.tensors[role].name} {shape}" for role, shape in shapes.items()))
        errors = min(wrong, key=len)
        hint = "if another tensor is meant: --tensor output=NAME; the order of axes: --layout BTHD"
        raise CandidateError(f"the shapes don't go together ({listed}): {'; '.join(errors)}", hint=hint)
    return [one for one in found if _has_weights_of(dump, one)] or found


def _has_weights_of(dump: Dump, one: Arrangement) -> bool:
    """Whether the dump's weights and scores, of each head or averaged over heads, are as large as they would be."""
    arrays = [array for role in ("weights", "scores") if (array := dump.array(role)) is not None]
    rows = one.sizes["batch"] * one.sizes["queries"]
    return all(
        array.shape[-1] == one.sizes["keys"] and prod(array.shape[:-1]) in (rows * one.num_heads, rows)
        for array in arrays
    )


def _no_form(dump: Dump, layout: str | None) -> CandidateError:
    query = dump.tensors["query"]
    axes = "one axis" if query.array.ndim == 1 else f"{query.array.ndim} axes"
    wanted = f"{layout} has {len(layout)}" if layout else "2, 3 or 4 were expected, as in (batch, head, token, dim)"
    return CandidateError(f"{query.name} has {axes}, shape {query.array.shape}; {wanted}", hint="--layout BHTD")


def _head_counts(dump: Dump, form: str, spec: AttentionSpec, stated: frozenset[str]) -> list[int]:
    """How many query heads there may be."""
    shape = dump.tensors["query"].array.shape
    if not form.endswith("E"):
        return [shape[form.index("H")]]
    width = shape[-1]
    if "num_heads" in stated:
        return [spec.num_heads]
    if "head_dim" in stated and spec.head_dim:
        return [max(width // spec.head_dim, 1)]
    for role in ("weights", "scores"):
        array = dump.array(role)
        if array is not None and array.ndim == 4:
            return [array.shape[1]]
    key_width = dump.tensors["key"].array.shape[-1]
    fitting = [n for n in range(1, min(width, MOST_HEADS) + 1) if width % n == 0 and key_width % (width // n) == 0]
    # One head is the plain reading; of several, those of an ordinary size come first.
    return [1, *sorted(fitting[1:], key=lambda n: abs(np.log(width / n / 64)))]


def _fitted(
    form: str, heads: int, shapes: Mapping[str, tuple[int, ...]], spec: AttentionSpec, stated: frozenset[str]
) -> tuple[list[Arrangement], list[str]]:
    """The arrangements of one form, or what is wrong with it."""
    query = _sizes(shapes["query"], form, heads)
    if query is None:
        return [], [f"{shapes['query'][-1]} channels can't be shared out among {heads} heads"]
    key_forms = [_of_key(form, len(shapes[role])) for role in ("key", "value")]
    kv_heads = max(shapes["key"][-1] // query["D"], 1) if form.endswith("E") else 0
    key, value = (
        _sizes(shapes[role], at, kv_heads) if len(shapes[role]) == len(at) else None
        for role, at in zip(("key", "value"), key_forms, strict=True)
    )
    if key is None or value is None:
        return [], [f"key and value can't be {form} as the query is"]
    errors = [*_unequal(query, key, value), *_unlike_spec(query, key, value, spec, stated)]
    sizes = {"B": query["B"], "H": query["H"], "T": query["T"], "D": value["D"]}
    outs = [at for at in _out_forms(form, len(shapes["output"])) if _sizes(shapes["output"], at, query["H"]) == sizes]
    if not outs:
        errors.append(f"as {form} the output should be of {_words(sizes)}")
    if errors:
        return [], errors
    named = {
        "batch": query["B"],
        "queries": query["T"],
        "keys": key["T"],
        "head_dim": query["D"],
        "value_dim": value["D"],
    }
    return [Arrangement(form, outs[0], query["H"], key["H"], named)], []


def _sizes(shape: tuple[int, ...], form: str, heads: int) -> Sizes | None:
    """The size of each axis B, H, T and D; None where the channels can't be shared out."""
    if len(shape) != len(form):
        return None
    sizes = {"B": 1, "H": 1, **dict(zip(form, shape, strict=True))}
    if form.endswith("E"):
        width = sizes.pop("E")
        if heads < 1 or width % heads:
            return None
        sizes |= {"H": heads, "D": width // heads}
    return sizes


def _out_forms(form: str, ndim: int) -> Iterator[str]:
    if ndim == len(form):
        yield form
    yield from (other for other in ("BTE", "BTHD", "BHTD", "THD", "HTD", "TE", "TBHD", "TBE") if len(other) == ndim)


def _unequal(query: Sizes, key: Sizes, value: Sizes) -> list[str]:
    errors = [f"query holds {query['B']} sequences and {name} {other['B']}"
              for name, other in (("key", key), ("value", value)) if other["B"] != query["B"]]  # fmt: skip
    if key["T"] != value["T"]:
        errors.append(f"there are {key['T']} keys and {value['T']} values")
    if key["D"] != query["D"]:
        errors.append(f"a query has {query['D']} channels and a key {key['D']}")
    if key["H"] != value["H"]:
        errors.append(f"key has {key['H']} heads and value {value['H']}")
    elif query["H"] % key["H"]:
        errors.append(f"{query['H']} query heads can't share {key['H']} key/value heads evenly")
    return errors


def _unlike_spec(query: Sizes, key: Sizes, value: Sizes, spec: AttentionSpec, stated: frozenset[str]) -> Iterator[str]:
    pairs: list[tuple[str, Any, int]] = [
        ("num_heads", spec.num_heads, query["H"]),
        ("num_kv_heads", spec.kv_heads, key["H"]),
        ("head_dim", spec.head_dim, query["D"]),
        ("value_dim", spec.value_dim or spec.head_dim, value["D"]),
    ]
    for name, said, here in pairs:
        if name in stated and said is not None and said != here:
            yield f"{name} is {said} in the spec and {here} here"


def _words(sizes: Sizes) -> str:
    return f"{sizes['B']} sequences, {sizes['H']} heads, {sizes['T']} queries and {sizes['D']} channels"
