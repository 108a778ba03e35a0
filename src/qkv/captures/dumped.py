"""Weights in a dump: as they stand in it, or made of its query and key; each layer that it holds is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qkv.adapters.dump import Contents, grouped, open_dump
from qkv.captures.assembling import assembled
from qkv.captures.query_key import QueryAndKey, query_and_key
from qkv.captures.weights import layers_of_weights
from qkv.dumps.identity import identify_dump
from qkv.dumps.judging import DumpRequest
from qkv.dumps.tensors import PREFIX, Dump, Tensor, read_tensor
from qkv.errors import CandidateError
from qkv.inference import Intention, intention_from
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView

BESIDE = ("value", "output", "mask", "padding", "documents", "bias", "sinks")
"""Roles that are read beside query and key."""

PLAIN = "Nothing says which attention it is: a plain one is assumed; --causal, --scale, … or --spec FILE say another"

Names = Mapping[str, str]
"""Names of the tensors of one layer by role."""


def view_of_dump(request: DumpRequest, *, sequence: int = 0, layer: int | None = None) -> AttentionView:
    """The weights in a dump, of all layers or of one.

    Where a layer has no weights they are computed from its query and key, under the spec that was given; where none
    was, under the one that its output is identified as.

    Raises:
        SpecError: the fields contradict themselves.
        CandidateError: the dump can't be read, or holds neither weights nor query and key.
    """
    path = Path(request.target)
    contents = open_dump(path, request.time_limit, request.memory_limit, alone=True)
    picked = _picked(request, contents, layer)
    _must_fit(request, contents, picked)
    reader = _Reader(request, contents, sequence)
    layers, share = [], 1 / len(picked)
    for place, names in picked.items():
        layers.append(reader.layer(place, names))
        request.advance(share)
    return assembled(layers, title=f"attention weights in {path.name}", notes=list(dict.fromkeys(reader.notes)))


# --- which tensors ----------------------------------------------------------------------------------------------------


def _picked(request: DumpRequest, contents: Contents, layer: int | None) -> dict[str, Names]:
    """The tensors to show by layer and role: the weights alone, or query and key and what goes with them."""
    own = {role: name for role, name in request.tensors.items() if role != PREFIX}
    for name in own.values():
        if name not in contents:
            raise CandidateError(f"{request.target} holds no tensor {name!r}", hint=_listed(contents))
    groups = grouped(contents)
    if own:
        groups = {"": {role: [name] for role, name in own.items()}}
    elif len(contents) == 1:
        groups = {"": {"weights": list(contents)}}  # whatever it is called
    prefix = request.tensors.get(PREFIX, "").strip("._-/: ")
    found = {place: names for place, roles in groups.items() if place.startswith(prefix)
             if (names := _shown(request.target, roles, contents))}  # fmt: skip
    if not found:
        raise _none(request.target, contents, prefix)
    places = sorted(found, key=_in_order)
    if layer is not None:
        places = _of_layer(request.target, places, layer)
    return {place: found[place] for place in places}


def _shown(target: str, roles: Mapping[str, list[str]], contents: Contents) -> Names:
    """The names of a layer's weights, or of its query, key and so on; empty where it has neither."""
    for role in ("weights", "attn"):
        names = [name for name in roles.get(role, []) if role == "weights" or _like_weights(name, contents)]
        if names:
            return {"weights": _single(target, "weights", names)}
    if not {"query", "key"} <= roles.keys():
        return {}
    wanted = {role: roles[role] for role in ("query", "key", *BESIDE) if role in roles}
    for stand_in in ("context", "attn"):
        if stand_in in roles:
            wanted.setdefault("output", roles[stand_in])
    return {role: _single(target, role, names) for role, names in wanted.items()}


def _like_weights(name: str, contents: Contents) -> bool:
    """Whether a tensor that may be an output as well holds shares: its rows sum to one."""
    if len(contents[name].shape) < 2:
        return False
    rows = contents[name].read().astype(np.float64)
    return bool((rows >= 0).all() and np.abs(rows.sum(axis=-1) - 1).max(initial=0.0) < 0.1)


def _single(target: str, role: str, names: list[str]) -> str:
    if len(names) > 1:
        message = f"{target} holds several tensors that could be the {role}: {', '.join(names[:6])}"
        raise CandidateError(message, hint=f"pick one: --tensor {role}={names[0]}")
    return names[0]


def _in_order(place: str) -> list[tuple[bool, int, str]]:
    """Layers by their numbers: 2 before 10."""
    parts = re.split(r"(\d+)", place)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _of_layer(target: str, places: list[str], layer: int) -> list[str]:
    numbered = [place for place in places if str(layer) in re.findall(r"\d+", place)[:1]]
    if not numbered:
        known = ", ".join(repr(place) for place in places[:12])
        raise CandidateError(f"{target} holds no layer {layer}", hint=f"it holds: {known}")
    return numbered


def _none(target: str, contents: Contents, prefix: str) -> CandidateError:
    message = f"{target} holds no attention weights, and no query and key to make them of"
    message += f", under {prefix!r}" if prefix else ""
    return CandidateError(f"{message}; {_listed(contents)}", hint="say what they are called: --tensor weights=NAME, or "
                          "--tensor query=NAME --tensor key=NAME")  # fmt: skip


def _listed(contents: Contents) -> str:
    held = [f"{name} {tuple(stored.shape)}" for name, stored in list(contents.items())[:8]]
    return f"it holds {', '.join(held)}" + (f" and {len(contents) - 8} more" if len(contents) > 8 else "")


def _must_fit(request: DumpRequest, contents: Contents, picked: Mapping[str, Names]) -> None:
    total = sum(contents[name].nbytes for names in picked.values() for name in names.values())
    if request.memory_limit and total > request.memory_limit:
        raise CandidateError(
            f"what is to be shown takes {total / 2**30:.1f} GiB, more than the memory limit",
            hint="show one layer: --layer 0; or raise it: --memory-limit 16G",
        )


# --- the layers -------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Reads layer after layer; what an earlier one was found to compute, a later one may compute as well."""

    request: DumpRequest
    contents: Contents
    sequence: int

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self.said = intention_from(self.request.given, self.request.whole_spec)
        self._identified: Intention | None = None

    def layer(self, place: str, names: Names) -> LayerWeights:
        """One layer."""
        shown = place or "attention"
        if "weights" in names:
            array = self.contents[names["weights"]].read()
            layers, notes = layers_of_weights({names["weights"]: array}, sequence=self.sequence)
            self.notes += notes
            return replace(layers[0], name=shown)
        dump = Dump(self.request.target, place, dict(self._tensors(names)))
        read = self._read(dump, names)
        layer, notes = read.layer(shown, self.sequence)
        self.notes += notes
        return layer

    def _tensors(self, names: Names) -> Iterator[tuple[str, Tensor]]:
        for role, name in names.items():
            yield role, read_tensor(role, name, self.contents)

    def _read(self, dump: Dump, names: Names) -> QueryAndKey:
        """Query and key under what was given, or under what the output is found to be of."""
        request = self.request
        read = query_and_key(dump, self._identified or self.said, request.layout, request.mask_meaning)
        if request.given or not {"value", "output"} <= names.keys() or read.agrees:
            if not request.given and read.agrees is None:
                self.notes.append(PLAIN)
            return read
        identity = identify_dump(replace(request, tensors=names, advance=lambda share: None))
        if identity.spec is None:
            self.notes.append(f"Which attention it is could not be read from its output: {identity.why}")
            return read
        self._identified = Intention(identity.spec)
        return query_and_key(dump, self._identified, request.layout, request.mask_meaning)
