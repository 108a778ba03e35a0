"""Which arrays of a candidate's state are which projection, and how they are laid out.

Names settle most of it, the class that an array belongs to the rest: a ``Linear`` is always (out, in), a ``Conv1D``
always (in, out), ``GPTNeoX`` keeps q, k and v of one head together. Where the field has several conventions for one
name, every one of them is a reading, the commonest first; the candidate's own numbers tell which it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qkv.adapters.messages import ArrayFacts, Facts
from qkv.adapters.names import (
    LISTS,
    LOOSE_OUTPUTS,
    SINKS,
    bare,
    bias_role,
    norm_role,
    projection_role,
    role_of,
)
from qkv.errors import CandidateError, nearest
from qkv.oracle.inputs import Linear, Norm, Parameters
from qkv.spec import AttentionSpec

State = Mapping[str, NDArray[Any]]


# --- what a reading is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Piece:
    """One projection, as it stands in the state.

    Attributes:
        weights: names of the weights; several are single heads that are set side by side.
        biases: names of their biases; empty where there are none.
        axes: a letter for each axis of a stored weight: ``e`` channels that go in, ``o`` channels that come out, ``h``
            head, ``d`` channel of a head, ``c`` which of q, k, v, ``1`` an axis of size one. ``oe`` is torch's own.
        shape: shape of one stored weight, after the slice.
        rows: which rows of the (out, in) matrix belong to the projection, in order; None means all.
        bias_rows: the same for the bias, which can be shared where the weight is not, and the other way round.
        cut: the part of the stored array that was named by the user.
        bias_cut: the same for the bias.
        output: whether it is the output's projection, whose columns, not rows, are the heads.
    """

    weights: tuple[str, ...]
    axes: str
    shape: tuple[int, ...]
    biases: tuple[str, ...] = ()
    rows: NDArray[np.intp] | None = None
    bias_rows: NDArray[np.intp] | None = None
    cut: tuple[slice, ...] = ()
    bias_cut: tuple[slice, ...] = ()
    output: bool = False

    def linear(self, state: State) -> Linear:
        """The projection as (out, in), with its bias."""
        weight = np.concatenate([self._matrix(state[name]) for name in self.weights])
        bias = np.concatenate([self._vector(state[name]) for name in self.biases]) if self.biases else None
        return Linear(_picked(weight, self.rows), None if bias is None else _picked(bias, self.bias_rows))

    @property
    def size(self) -> tuple[int, int]:
        """Channels that come out and channels that go in."""
        rows, columns = self._matrix(np.broadcast_to(0.0, self.shape), cut=False).shape
        return (rows * len(self.weights) if self.rows is None else len(self.rows)), columns

    def _matrix(self, array: NDArray[Any], cut: bool = True) -> NDArray[Any]:
        array = array[self.cut] if self.cut and cut else array
        rows = "o" if self.output else "chdo"
        ordered = _ordered(array, self.axes, "chdoe" if not self.output else "ohde")
        out = int(np.prod([size for letter, size in zip(self.axes, array.shape, strict=True) if letter in rows]))
        return ordered.reshape(out, -1)

    def _vector(self, array: NDArray[Any]) -> NDArray[Any]:
        array = array[self.bias_cut] if self.bias_cut else array
        axes = "".join(letter for letter in self.axes if letter in ("o" if self.output else "chdo"))
        if array.ndim == len(axes) and array.ndim > 1:
            array = _ordered(array, axes, "chdo")
        return array.reshape(-1)


def _picked(array: NDArray[Any], rows: NDArray[np.intp] | None) -> NDArray[Any]:
    return array if rows is None else array[rows]


def _ordered(array: NDArray[Any], axes: str, wanted: str) -> NDArray[Any]:
    """The array with its axes in the wanted order; axes of size one go last."""
    return array.transpose(sorted(range(array.ndim), key=lambda axis: f"{wanted}1".index(axes[axis])))


@dataclass(frozen=True)
class NormPiece:
    """A normalisation of query or key, as it stands in the state.

    Attributes:
        kind: see :class:`qkv.oracle.inputs.Norm`.
        weight: name of its weight; None where it has none.
        bias: name of its bias.
        eps: added to the mean square.
        plus_one: whether ``1 + weight`` multiplies.
        shape: shape of its weight; empty where it has none.
    """

    kind: Literal["rms", "layer", "l2"]
    weight: str | None = None
    bias: str | None = None
    eps: float = 1e-6
    plus_one: bool = False
    shape: tuple[int, ...] = ()

    def norm(self, state: State) -> Norm:
        """The normalisation. A weight for each head and channel broadcasts over the tokens."""
        weight, bias = (None if name is None else _per_channel(state[name]) for name in (self.weight, self.bias))
        return Norm(kind=self.kind, weight=weight, bias=bias, eps=self.eps, plus_one=self.plus_one)


def _per_channel(array: NDArray[Any]) -> NDArray[Any]:
    array = array.reshape([size for size in array.shape if size != 1] or [1])
    return array[:, None, :] if array.ndim == 2 else array


@dataclass(frozen=True, eq=False)
class ProjectionReading:
    """One way to read the state: which arrays are which projection.

    Attributes:
        words: the reading in words, for the report.
        certain: False where another convention of equal standing reads the same arrays otherwise.
        q: the query's projection.
        k: the key's.
        v: the value's.
        out: the output's; None where there is none.
        q_norm: normalisation of the query.
        k_norm: normalisation of the key.
        fused: the array that holds q, k and v in one; None where they are apart.
        sink: name of the sinks' scores.
        num_heads: number of heads, where the layout itself tells.
    """

    words: str
    certain: bool
    q: Piece
    k: Piece
    v: Piece
    out: Piece | None = None
    q_norm: NormPiece | None = None
    k_norm: NormPiece | None = None
    fused: Piece | None = None
    sink: str | None = None
    num_heads: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every array that is used, by its name in the state."""
        pieces = [piece for piece in (self.q, self.k, self.v, self.out) if piece]
        norms = [norm for norm in (self.q_norm, self.k_norm) if norm]
        names = [name for piece in pieces for name in (*piece.weights, *piece.biases)]
        names += [name for norm in norms for name in (norm.weight, norm.bias) if name]
        return tuple(dict.fromkeys([*names, *([self.sink] if self.sink else [])]))

    @property
    def embed_dim(self) -> int:
        """Channels of one token of ``x``."""
        return self.q.size[1]

    @property
    def source_dim(self) -> int:
        """Channels of one token that key and value come from."""
        return self.k.size[1]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Channels of all heads' query, key and value."""
        return self.q.size[0], self.k.size[0], self.v.size[0]

    @property
    def qk_norm(self) -> Literal["head", "width"] | None:
        """Over what the query is normalised; None where nothing is, or where the norm has no weight that tells."""
        if self.q_norm is None or not self.q_norm.shape:
            return None
        return "width" if np.prod(self.q_norm.shape) == self.q.size[0] and len(self.q_norm.shape) == 1 else "head"

    def parameters(self, state: State) -> Parameters:
        """The arrays as the oracle takes them."""
        return Parameters(
            q_proj=self.q.linear(state),
            k_proj=self.k.linear(state),
            v_proj=self.v.linear(state),
            out_proj=self.out.linear(state) if self.out else None,
            q_norm=self.q_norm.norm(state) if self.q_norm else None,
            k_norm=self.k_norm.norm(state) if self.k_norm else None,
            fused=self.fused.linear(state) if self.fused else None,
        )

    def sinks(self, state: State) -> NDArray[Any] | None:
        """Each head's score of the sink, ``(num_heads,)``; None where there are none."""
        return None if self.sink is None else np.asarray(state[self.sink]).reshape(-1)


# --- reading ----------------------------------------------------------------------------------------------------------


def readings_of(facts: Facts, spec: AttentionSpec, given: Mapping[str, str] | None = None) -> list[ProjectionReading]:
    """Every way to read the candidate's arrays, the likeliest first. Empty where it has learned nothing.

    Args:
        facts: what the candidate says of itself.
        spec: what it is meant to do; its sizes tell layouts apart.
        given: arrays named by the user: ``{"q_proj": "W_query.weight", "v_proj": "qkv.weight[96:144]"}``.

    Raises:
        CandidateError: a given name is not there, no projection is recognised, or there are two attentions.
    """
    arrays = {name: one for name, one in facts.arrays.items() if one.learned} or dict(facts.arrays)
    if not arrays and not given:
        return []
    found = _Found.among(arrays)
    scope = _with_given(_scope(found, facts, given or {}), found, facts, given or {})
    sizes = _Known.of(facts, spec, scope.at)
    readings = [reading for axes in _axes_choices(scope, sizes) for reading in _rows_choices(scope, axes, sizes, facts)]
    readings = _distinct(readings)
    certain = len(readings) == 1
    q_norm, k_norm = _norms(found, scope, facts)
    return [
        replace(
            reading,
            certain=certain and reading.v is not reading.k,
            q_norm=q_norm,
            k_norm=k_norm,
            sink=found.sinks.get(scope.at),
        )
        for reading in readings
    ]


@dataclass(frozen=True)
class _Unit:
    """One weight with a role.

    Attributes:
        role: ``q``, ``k``, ``v``, ``out``, letters in the order of a fused array, or ``loose``: perhaps the output's.
        weight: its name.
        facts: its shape and owner; the shape is that of the part that was named.
        bias: name of its bias.
        scope: the names of the modules around it.
        place: where it stands in a list of heads.
        raw: whether it's a parameter of its own rather than a layer's weight.
        cut: the part of it that the user named.
        bias_cut: the part of its bias that goes with it.
        turned: whether the user says that it's stored (in, out).
    """

    role: str
    weight: str
    facts: ArrayFacts
    bias: str | None = None
    scope: tuple[str, ...] = ()
    place: int | None = None
    raw: bool = False
    cut: tuple[slice, ...] = ()
    bias_cut: tuple[slice, ...] = ()
    turned: bool = False


_LAYER_LISTS = ("layers", "blocks", "layer", "block", "encoder", "decoder", "h", "transformer", "encoders", "decoders")


@dataclass
class _Found:
    """Every array with a name of the field, sorted by what it is."""

    units: list[_Unit] = field(default_factory=list)
    biases: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict)
    norms: dict[tuple[tuple[str, ...], str], dict[str, str]] = field(default_factory=dict)
    sinks: dict[tuple[str, ...], str] = field(default_factory=dict)
    arrays: Mapping[str, ArrayFacts] = field(default_factory=dict)

    @classmethod
    def among(cls, arrays: Mapping[str, ArrayFacts]) -> _Found:
        """The arrays whose names say what they are."""
        found = cls(arrays=arrays)
        for name, one in arrays.items():
            found._sort_in(_Path.of(name), one)
        return found

    def _sort_in(self, path: _Path, one: ArrayFacts) -> None:
        role = norm_role(path.stem)
        if role:
            self.norms.setdefault((path.scope, role), {})[path.leaf or "weight"] = path.name
        elif bare(path.stem) in SINKS:
            self.sinks[path.scope] = path.name
        elif not path.leaf and bias_role(path.stem):
            self.biases[path.scope, str(bias_role(path.stem))] = path.name
        elif path.leaf != "bias" and len(one.shape) > 1:
            self._take(path, one)

    def _take(self, path: _Path, one: ArrayFacts) -> None:
        index, scope = path.index, path.scope
        listed = index is not None and bare(path.stem) in LISTS and index < 4
        role = _QKVO[index] if listed and index is not None else projection_role(path.stem)
        if role is None and bare(path.stem) in LOOSE_OUTPUTS:
            role = "loose"
        if role is None:
            return
        place = None if listed or role in ("out", "loose") else index
        if place is None and len(scope) > 1 and scope[-1].isdigit() and scope[-2].lower() not in _LAYER_LISTS:
            place, scope = int(scope[-1]), scope[:-2]
        self.units.append(_Unit(role, path.name, one, _sibling(path, self.arrays), scope, place, raw=not path.leaf))


_QKVO = ("q", "k", "v", "out")
_LEAVES = {
    "weight": ("weight", "w", "kernel", "scale", "gamma", "gain", "g"),
    "bias": ("bias", "b", "shift", "beta"),
}


@dataclass(frozen=True)
class _Path:
    """A name in the state, taken apart.

    Attributes:
        name: the whole.
        scope: the names of the modules around what it belongs to.
        stem: the name of what it belongs to: of the layer, or its own where it is a parameter by itself.
        index: the number after that name, as lists give.
        leaf: ``weight`` or ``bias`` of a layer; empty for a parameter by itself.
    """

    name: str
    scope: tuple[str, ...]
    stem: str
    index: int | None
    leaf: str

    @classmethod
    def of(cls, name: str) -> _Path:
        """The name taken apart."""
        parts = name.split(".")
        leaf = next((leaf for leaf, spellings in _LEAVES.items() if parts[-1].lower() in spellings), "")
        around = _without_index(parts[:-1])
        # A layer's weight is called that; other spellings count where the layer's name says what it is.
        known = around and (projection_role(around[-1]) or norm_role(around[-1]))
        is_layer = bool(leaf and around and (parts[-1] in _LEAVES or known))
        rest = parts[:-1] if is_layer else parts
        named = _without_index(rest)
        index = int(rest[-1]) if len(named) < len(rest) else None
        return cls(name, tuple(named[:-1]), named[-1], index, leaf if is_layer else "")


def _without_index(parts: list[str]) -> list[str]:
    return parts[:-1] if len(parts) > 1 and parts[-1].isdigit() else parts


def _sibling(path: _Path, arrays: Iterable[str]) -> str | None:
    """The bias of the layer that a weight belongs to."""
    before = path.name.rpartition(".")[0]
    spelled = [f"{before}.{leaf}" for leaf in _LEAVES["bias"]] if path.leaf else []
    return next((name for name in spelled if name in arrays), None)


@dataclass(frozen=True)
class _Scope:
    """The arrays of one attention.

    Attributes:
        at: the names of the modules around it.
        units: the weights of each role; several are single heads.
        biases: biases that are parameters of their own, by role.
    """

    at: tuple[str, ...]
    units: Mapping[str, tuple[_Unit, ...]]
    biases: Mapping[str, str]

    @property
    def fused(self) -> str | None:
        """The letters of the fused array; None where q, k and v are apart."""
        return next((role for role in self.units if len(role) == 3 and role != "out"), None)


def _scope(found: _Found, facts: Facts, given: Mapping[str, str]) -> _Scope:
    """The one attention among the arrays, or where the user says that it is."""
    named = [projection_role(name) for name in given]
    if {"q", "k"} <= set("".join(role for role in named if role and role != "out")):
        first = next(name for name, role in zip(given.values(), named, strict=True) if role and "q" in role)
        at = _Path.of(first.partition("[")[0].removesuffix(".T")).scope
        return _Scope(at, _output(found, at, given.values()), _biases(found, at))
    scopes: dict[tuple[str, ...], dict[str, list[_Unit]]] = {}
    for unit in found.units:
        scopes.setdefault(unit.scope, {}).setdefault(unit.role, []).append(unit)
    whole = [at for at, roles in scopes.items() if _whole(roles)]
    if not whole:
        raise CandidateError(_nothing_recognised(found, facts), hint=_HINT)
    if len(whole) > 1:
        raise CandidateError(
            f"{facts.class_name} holds {len(whole)} attentions: {', '.join('.'.join(at) or 'its own' for at in whole)}",
            hint="check one of them: hand it over by itself, or name its arrays: "
            f"--weights q_proj={_first_name(scopes[whole[0]])} and so on",
        )
    at = whole[0]
    units = {role: _one_or_heads(listed) for role, listed in scopes[at].items() if role not in ("out", "loose")}
    return _Scope(at, _settled(units) | _output(found, at), _biases(found, at))


def _biases(found: _Found, at: tuple[str, ...]) -> dict[str, str]:
    return {role: name for (scope, role), name in found.biases.items() if scope == at}


_HINT = "--weights q_proj=NAME --weights k_proj=NAME --weights v_proj=NAME --weights out_proj=NAME"


def _whole(roles: Mapping[str, Any]) -> bool:
    letters = set("".join(role for role in roles if role not in ("out", "loose")))
    return {"q", "k"} <= letters


def _first_name(roles: Mapping[str, Sequence[_Unit]]) -> str:
    return next(iter(roles.values()))[0].weight


def _one_or_heads(units: Sequence[_Unit]) -> tuple[_Unit, ...]:
    """The units of one role: the heads of a list in order, or the first of several spellings."""
    heads = sorted((unit for unit in units if unit.place is not None), key=lambda unit: unit.place or 0)
    return tuple(heads) or (units[0],)


def _settled(units: dict[str, tuple[_Unit, ...]]) -> dict[str, tuple[_Unit, ...]]:
    """The units, each letter once. Beside a query of its own, an array for q, k and v is one for k and v (GPT-2)."""
    fused = next((role for role in units if len(role) == 3), None)
    if fused and "q" in units:
        kept = {role: listed for role, listed in units.items() if role != fused}
        return kept if {"k", "v"} <= set(units) else kept | {"kv": units[fused]}
    if fused:
        return {fused: units[fused]}
    return units


def _output(found: _Found, at: tuple[str, ...], taken: Iterable[str] = ()) -> dict[str, tuple[_Unit, ...]]:
    """The output's projection: beside q, k and v, or in a module around them; empty where there is none."""
    taken = set(taken)
    exact = [unit for unit in found.units if unit.role == "out" and unit.weight not in taken]
    loose = [unit for unit in found.units if unit.role == "loose" and unit.weight not in taken]
    for unit in [*exact, *loose]:
        if unit.scope == at:
            return {"out": (unit,)}
    for depth in range(len(at) - 1, -1, -1):
        for unit in [*exact, *loose]:
            inside = [bare(name) for name in unit.scope[depth:]]
            if unit.scope[:depth] == at[:depth] and (inside in (["output"], ["out"]) or (unit in exact and not inside)):
                return {"out": (unit,)}
    return {}


def _nothing_recognised(found: _Found, facts: Facts) -> str:
    listed = ", ".join(f"{name} {tuple(one.shape)}" for name, one in list(found.arrays.items())[:24])
    more = ", ..." if len(found.arrays) > 24 else ""
    return f"no projections of query and key are recognised among the arrays of {facts.class_name}: {listed}{more}"


# --- arrays named by the user -----------------------------------------------------------------------------------------

_EXPRESSION = re.compile(r"(?P<name>.+?)(?P<cut>\[[^\]]*\])?(?P<turned>\.T)?")


def _with_given(scope: _Scope, found: _Found, facts: Facts, given: Mapping[str, str]) -> _Scope:
    """The scope, with the arrays that the user named in place of those found."""
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


def _note_given(found: _Found, scope: _Scope, stem: str, name: str) -> None:
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


def _named_unit(role: str, expression: str, facts: Facts) -> _Unit:
    match = None if expression in facts.arrays else _EXPRESSION.fullmatch(expression)
    name = _existing(match["name"] if match else expression, facts)
    cut = _cut(match["cut"], expression) if match and match["cut"] else ()
    turned = bool(match and match["turned"])
    one = facts.arrays[name]
    shape = np.broadcast_to(0.0, one.shape)[cut].shape if cut else tuple(one.shape)
    path = _Path.of(name)
    raw, bias = not path.leaf, _sibling(path, facts.arrays)
    stored_in_out = one.owner == "Conv1D" or turned
    along_out = cut[1:2] if stored_in_out else cut[:1]
    return _Unit(role, name, replace(one, shape=shape), bias, (), None, raw, cut, along_out, turned)


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


# --- axes of one array ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """The sizes that are known of the candidate; an empty set means any."""

    embed: frozenset[int]
    heads: frozenset[int]
    head_dim: frozenset[int]
    spec: AttentionSpec

    @classmethod
    def of(cls, facts: Facts, spec: AttentionSpec, at: tuple[str, ...]) -> _Known:
        """The spec's sizes; where it leaves them open, those that the attention or what is around it carries."""
        told: dict[str, set[int]] = {}
        inside = "".join(f"{name}." for name in at)
        for name, value in facts.attributes.items():
            role = role_of(name.removeprefix(inside))
            if role and isinstance(value, int) and not isinstance(value, bool):
                told.setdefault(role, set()).add(value)
        stated = {"embed_dim": spec.embed_dim, "head_dim": spec.head_dim}
        stated["num_heads"] = spec.num_heads if spec.num_heads > 1 else None
        sizes = {role: {size} if size else told.get(role, set()) for role, size in stated.items()}
        heads = sizes["num_heads"] | ({spec.kv_heads} if spec.num_heads > 1 else told.get("num_kv_heads", set()))
        return cls(frozenset(sizes["embed_dim"]), frozenset(heads), frozenset(sizes["head_dim"]), spec)

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.spec.num_heads if self.spec.num_heads > 1 else max(self.heads, default=1)

    def fits(self, axes: str, shape: Sequence[int]) -> bool:
        """Whether each axis can have the size it has."""
        known = {"e": self.embed, "h": self.heads, "d": self.head_dim, "c": frozenset({3}), "1": frozenset({1})}
        return all(size in known[letter] for letter, size in zip(axes, shape, strict=True) if known.get(letter))


_LINEARS = ("Linear", "Dense")
_TORCH_NAMES = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
"""Parameters of torch's own attention, and of those that copy its names: (out, in)."""
_ORDERS_OF_HEADS = ("hed", "hde", "ehd", "edh", "deh", "dhe")
_ORDERS_OF_OUTPUT = ("hdo", "hod", "ohd", "odh", "dho", "doh")


def _fixed_axes(unit: _Unit) -> str | None:
    """The axes where the owner's class leaves no choice."""
    ndim, owner = len(unit.facts.shape), unit.facts.owner
    if unit.turned:
        return "eo"
    if unit.raw and unit.weight.rpartition(".")[2] in _TORCH_NAMES:
        return "oe"
    if owner == "Conv1D" and ndim == 2:
        return "eo"
    linear = ndim == 2 and owner.endswith(_LINEARS) and unit.weight.endswith("weight")
    if linear or (not unit.raw and ndim > 2 and set(unit.facts.shape[2:]) == {1}):
        return "oe" + "1" * (ndim - 2)
    return None


def _axes_choices(scope: _Scope, known: _Known) -> list[dict[str, str]]:
    """For each role the letters of its axes: one choice, or several where raw matrices can be read either way."""
    fixed = {role: _fixed_axes(units[0]) for role, units in scope.units.items()}
    free = [role for role, axes in fixed.items() if axes is None]
    settled = {role: axes for role, axes in fixed.items() if axes is not None}
    if not free:
        return [settled]
    flat = [role for role in free if len(scope.units[role][0].facts.shape) == 2]
    deep = [role for role in free if role not in flat]
    choices = [settled | {role: _deep_axes(scope.units[role][0], known) for role in deep}]
    if flat:
        choices = [choice | dict.fromkeys(flat, axes) for choice in choices for axes in _flat_order(scope, flat)]
        fitting = [choice for choice in choices if _consistent(scope, choice, flat, known)]
        choices = fitting or choices
    return choices


def _flat_order(scope: _Scope, flat: Sequence[str]) -> tuple[str, str]:
    """Raw matrices are mostly used as ``x @ W``; those called ``..._weight`` as ``F.linear(x, weight)``."""
    as_linear = all(scope.units[role][0].weight.endswith(("weight", "kernel")) for role in flat)
    return ("oe", "eo") if as_linear else ("eo", "oe")


def _consistent(scope: _Scope, choice: Mapping[str, str], flat: Sequence[str], known: _Known) -> bool:
    """Whether the sizes agree: token channels with what is known and with each other, the output with the value."""
    sizes = {role: _piece(scope, role, choice[role]).size for role in scope.units}
    inner = [sizes[role][1] for role in flat if role != "out"]
    if known.embed and any(size not in known.embed for size in inner[:1]):
        return False
    if len(set(inner)) > 1:
        return False
    fused = next((role for role in flat if len(role) == 3 and role != "out"), None)
    if fused and sizes[fused][0] <= sizes[fused][1]:
        return False
    value = next((sizes[role][0] for role in ("v", "k", "q") if role in sizes), None)
    return "out" not in flat or value is None or sizes["out"][1] in (value, *_grouped(value, known))


def _grouped(width: int, known: _Known) -> list[int]:
    heads = known.num_heads
    return [width // kv * heads for kv in known.heads if not width % kv]


def _deep_axes(unit: _Unit, known: _Known) -> str:
    """The letters of an array with an axis for the heads, or for q, k and v."""
    shape = unit.facts.shape
    if unit.role == "out":
        orders: Iterable[str] = _ORDERS_OF_OUTPUT if len(shape) == 3 else ()
        known = replace(known, embed=frozenset())
    elif len(unit.role) == 3 and 3 in shape:
        letters = "ceo" if len(shape) == 3 else "chde"
        orders = sorted(("".join(order) for order in permutations(letters)), key=lambda order: order.index("c"))
    else:
        orders = _ORDERS_OF_HEADS if len(shape) == 3 else ()
    orders = [order for order in orders if len(order) == len(shape)]
    fitting = [order for order in orders if known.fits(order, shape)]
    if not orders:
        raise CandidateError(
            f"{unit.weight} has the shape {tuple(shape)}, and it is not known which axis is which",
            hint=f"--weights 'q_proj={unit.weight}[...]', with a slice of two axes",
        )
    return (fitting or orders)[0]


# --- rows of a fused array --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Which rows of a fused array are q, k and v.

    Attributes:
        rows: the rows of each letter.
        words: the layout in words, after "q, k, v are".
    """

    rows: Mapping[str, NDArray[np.intp]]
    words: str


_ORDER_WORDS = {
    "chd": "{parts} of {name}, one after the other",
    "hcd": "kept head by head in {name} ([heads, {count}, head_dim])",
    "hdc": "kept channel by channel in {name} ([heads, head_dim, {count}])",
    "cdh": "{parts} of {name}, each with the heads as its last axis ([{count}, head_dim, heads])",
    "dch": "kept in {name} as [head_dim, {count}, heads]",
    "dhc": "kept in {name} as [head_dim, heads, {count}]",
}
_PARTS = {2: "halves", 3: "thirds"}

_FAMILIES: Sequence[tuple[str, str]] = (
    ("GPTNeoX", "hcd"),
    ("Bloom", "hcd"),
    ("Persimmon", "hcd"),
    ("GPTBigCode", "hcd"),
    ("CodeGen", "shards"),
    ("InternLM2", "groups"),
    ("Falcon", "falcon"),
    ("GPT2", "chd"),
    ("Phi3", "chd"),
    ("MultiheadAttention", "chd"),
    ("Mpt", "chd"),
    ("Dbrx", "chd"),
    ("ModernBert", "chd"),
    ("ChatGLM", "chd"),
    ("Glm", "chd"),
)
"""Layouts that the name of a class settles."""

_NAMES: Mapping[str, str] = {"c_attn": "chd", "in_proj_weight": "chd", "in_proj": "chd", "query_key_value": "hcd"}
"""Layouts that the name of an array settles."""


def _rows_choices(scope: _Scope, axes: Mapping[str, str], known: _Known, facts: Facts) -> Iterator[ProjectionReading]:
    """The readings of a scope whose axes are settled: several where a fused array can be cut in several ways."""
    pieces = {role: _piece(scope, role, axes[role]) for role in scope.units}
    fused = [role for role in pieces if len(role) > 1 and role != "out"]
    if not fused:
        yield _reading(scope, _with_shared_bias(scope, pieces), _apart_in_words(pieces))
        return
    role = fused[0]
    for layout in _layouts(role, pieces, known, facts):
        cut = {letter: _cut_out(scope, pieces[role], letter, rows) for letter, rows in layout.rows.items()}
        whole = pieces[role] if len(role) == 3 else None
        yield _reading(scope, cut | {r: p for r, p in pieces.items() if r != role}, layout.words, whole)


def _cut_out(scope: _Scope, piece: Piece, letter: str, rows: NDArray[np.intp]) -> Piece:
    """One projection's rows of a fused array; its bias is cut out likewise, or an array of its own (BEiT)."""
    own = scope.biases.get(letter)
    if own and not piece.biases:
        return replace(piece, rows=rows, biases=(own,))
    return replace(piece, rows=rows, bias_rows=rows)


def _with_shared_bias(scope: _Scope, pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    """The pieces, where one bias serves projections that stand apart (torch's with a ``kdim``)."""
    shared = scope.biases.get("qkv")
    letters = [letter for letter in "qkv" if letter in pieces]
    if shared is None or any(pieces[letter].biases for letter in letters):
        return dict(pieces)
    ends = np.cumsum([pieces[letter].size[0] for letter in letters])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    with_bias = {
        letter: replace(pieces[letter], biases=(shared,), bias_rows=part)
        for letter, part in zip(letters, parts, strict=True)
    }
    return {**pieces, **with_bias}


def _layouts(role: str, pieces: Mapping[str, Piece], known: _Known, facts: Facts) -> list[_Layout]:
    piece = pieces[role]
    name = piece.weights[0]
    rows = piece.size[0]
    if "c" in piece.axes:
        return [_blocks(role, [rows // 3] * 3, _words(role, "kept apart by an axis of {name}", name))]
    cut = _Sizes.of(role, pieces, known)
    settled = _settled_layout(name, facts)
    if len(piece.weights) > 1:
        # Heads of a list stand side by side, each with its own q, k and v.
        settled, cut = "hcd", replace(cut, heads=len(piece.weights), kv_heads=len(piece.weights))
    orders = [settled] if settled else ["chd", "hcd", "hdc", "cdh", "dch", "dhc"] if cut.equal else ["chd", "groups"]
    found = [layout for order in orders if (layout := _layout(order, role, name, rows, cut))]
    return found or [_blocks(role, cut.widths(role), _words(role, "{parts} of {name}", name))]


def _settled_layout(name: str, facts: Facts) -> str | None:
    stem = name.removesuffix(".weight").rpartition(".")[2]
    classes = [facts.class_name, *facts.submodules.values()]
    for prefix, layout in _FAMILIES:
        if any(one.startswith(prefix) for one in classes):
            return _falcon(facts) if layout == "falcon" else layout
    return _NAMES.get(stem)


def _falcon(facts: Facts) -> str:
    def says(name: str) -> bool:
        return any(bool(value) for key, value in facts.attributes.items() if key.rpartition(".")[2] == name)

    if says("new_decoder_architecture"):
        return "groups"
    return "chd" if says("multi_query") else "hcd"


@dataclass(frozen=True)
class _Sizes:
    """How many rows q, k and v have, and in how many heads."""

    heads: int
    kv_heads: int
    q: int
    k: int
    v: int

    @classmethod
    def of(cls, role: str, pieces: Mapping[str, Piece], known: _Known) -> _Sizes:
        """The sizes of a fused array from the spec, from the output's projection, or as equal parts."""
        rows, heads, spec = pieces[role].size[0], known.num_heads, known.spec
        if "q" not in role:
            kv_heads = spec.num_kv_heads or _kv_heads(pieces, rows // 2, heads)
            return cls(heads, kv_heads, 0, rows // 2, rows - rows // 2)
        if set(role) == {"q", "k"}:
            return cls(heads, heads, rows // 2, rows - rows // 2, 0)
        kv_heads = spec.kv_heads
        if spec.head_dim and (spec.num_kv_heads or rows == 3 * heads * spec.head_dim or spec.value_dim):
            q, k = heads * spec.head_dim, kv_heads * spec.head_dim
            if rows - q - k > 0:
                return cls(heads, kv_heads, q, k, rows - q - k)
        if spec.num_kv_heads and not rows % (heads + 2 * kv_heads):
            head_dim = rows // (heads + 2 * kv_heads)
            return cls(heads, kv_heads, heads * head_dim, kv_heads * head_dim, kv_heads * head_dim)
        width = pieces["out"].size[1] if "out" in pieces else rows // 3
        other = (rows - width) // 2
        if width % heads or other <= 0 or other % (width // heads) or width + 2 * other != rows:
            return cls(heads, heads, rows - 2 * (rows // 3), rows // 3, rows // 3)
        return cls(heads, other // (width // heads), width, other, other)

    @property
    def equal(self) -> bool:
        """Whether the parts that are there have the same size."""
        return len({size for size in (self.q, self.k, self.v) if size}) == 1

    def widths(self, role: str) -> list[int]:
        """The rows of each letter."""
        return [getattr(self, letter) for letter in role]


def _kv_heads(pieces: Mapping[str, Piece], width: int, heads: int) -> int:
    head_dim = max(pieces["q"].size[0] // heads, 1) if "q" in pieces else max(width // heads, 1)
    return max(width // head_dim, 1)


def _layout(order: str, role: str, name: str, rows: int, cut: _Sizes) -> _Layout | None:
    """The layout of that order; None where the array can't have it."""
    if order == "groups":
        return _groups(role, name, rows, cut)
    if order == "shards":
        return _shards(name, rows)
    if order == "chd":
        words = _ORDER_WORDS["chd"] if cut.equal else "the first {q}, next {k} and last {v} rows of {name}"
        return _blocks(role, cut.widths(role), _words(role, words, name, cut))
    heads = cut.heads if "q" in role else cut.kv_heads
    count = len(role)
    if not cut.equal or rows % (count * heads):
        return None
    sizes = {"c": count, "h": heads, "d": rows // (count * heads)}
    grid = np.arange(rows).reshape([sizes[letter] for letter in order])
    parts = grid.transpose([order.index(letter) for letter in "chd"]).reshape(count, -1)
    return _Layout(dict(zip(role, parts, strict=True)), _words(role, _ORDER_WORDS[order], name))


def _blocks(role: str, widths: Sequence[int], words: str) -> _Layout:
    ends = np.cumsum(widths)
    rows = {letter: np.arange(end - width, end) for letter, width, end in zip(role, widths, ends, strict=True)}
    return _Layout(rows, words)


def _groups(role: str, name: str, rows: int, cut: _Sizes) -> _Layout | None:
    """Each key/value head after the query heads that read it: ``[q .. q k v]``."""
    per_group = cut.heads // cut.kv_heads + 2
    if role != "qkv" or cut.k != cut.v or rows % (cut.kv_heads * per_group):
        return None
    grid = np.arange(rows).reshape(cut.kv_heads, per_group, -1)
    parts = {"q": grid[:, :-2].reshape(-1), "k": grid[:, -2].reshape(-1), "v": grid[:, -1].reshape(-1)}
    return _Layout(parts, f"q, k, v are kept group by group in {name}: the queries of a group, then its key and value")


def _shards(name: str, rows: int, shards: int = 4) -> _Layout | None:
    """CodeGen: four shards, in each q, v, k."""
    if rows % (3 * shards):
        return None
    grid = np.arange(rows).reshape(shards, 3, -1)
    parts = {"q": grid[:, 0].reshape(-1), "v": grid[:, 1].reshape(-1), "k": grid[:, 2].reshape(-1)}
    return _Layout(parts, f"q, v, k are kept in {shards} shards of {name}")


def _words(role: str, template: str, name: str, cut: _Sizes | None = None) -> str:
    numbers = {"q": cut.q, "k": cut.k, "v": cut.v} if cut else {}
    if "{q}" in template and len(role) == 2:
        template = "{parts} of {name}, one after the other"
    parts = _PARTS.get(len(role), "parts")
    return f"{', '.join(role)} are " + template.format(parts=parts, name=name, count=len(role), **numbers)


# --- putting a reading together ---------------------------------------------------------------------------------------


def _piece(scope: _Scope, role: str, axes: str) -> Piece:
    units = scope.units[role]
    first = units[0]
    own = scope.biases.get(role)
    biases = tuple(unit.bias for unit in units if unit.bias)
    return Piece(
        weights=tuple(unit.weight for unit in units),
        axes=axes,
        shape=tuple(first.facts.shape),
        biases=biases if len(biases) == len(units) else (own,) if own else (),
        cut=first.cut,
        bias_cut=first.bias_cut if biases else (),
        output=role == "out",
    )


def _reading(scope: _Scope, pieces: Mapping[str, Piece], words: str, fused: Piece | None = None) -> ProjectionReading:
    pieces = dict(pieces)
    if "v" not in pieces:
        pieces["v"] = pieces["k"]
        words += "; there is no projection of the value, so the key's is taken"
    if pieces.get("out"):
        words += f"; the output's is {_name_in_words(pieces['out'])}"
    heads = {len(scope.units[role]) for role in scope.units if role != "out"} - {1}
    return ProjectionReading(
        words=words,
        certain=False,
        q=pieces["q"],
        k=pieces["k"],
        v=pieces["v"],
        out=pieces.get("out"),
        fused=fused,
        num_heads=heads.pop() if len(heads) == 1 else None,
    )


def _apart_in_words(pieces: Mapping[str, Piece]) -> str:
    letters = [letter for letter in "qkv" if letter in pieces]
    heads = {len(pieces[letter].weights) for letter in letters}
    names = ", ".join(_name_in_words(pieces[letter]) for letter in letters)
    beside = f", {heads.pop()} heads side by side" if heads != {1} else ""
    return f"{', '.join(letters)} are {names}{beside}"


def _name_in_words(piece: Piece) -> str:
    name = piece.weights[0].removesuffix(".weight")
    if len(piece.weights) > 1:
        return re.sub(r"\.\d+(?=\.|$)", ".*", name, count=1)
    raw = not _Path.of(piece.weights[0]).leaf
    return f"{name} (used as {'x @ W' if piece.axes == 'eo' else 'x @ W.T'})" if raw and len(piece.axes) == 2 else name


def _distinct(readings: Sequence[ProjectionReading]) -> list[ProjectionReading]:
    """The readings without those that come to the same, as layouts do where there is one head."""
    kept: dict[Any, ProjectionReading] = {}
    for reading in readings:
        pieces = [reading.q, reading.k, reading.v, reading.out]
        key = tuple(
            piece and (piece.weights, piece.axes, None if piece.rows is None else piece.rows.tobytes())
            for piece in pieces
        )
        kept.setdefault(key, reading)
    return list(kept.values())


# --- norms and sinks --------------------------------------------------------------------------------------------------

_PLUS_ONE = (
    *("GemmaRMSNorm", "Gemma2RMSNorm", "Gemma3RMSNorm", "T5GemmaRMSNorm", "T5Gemma2RMSNorm", "VaultGemmaRMSNorm"),
    *("RecurrentGemmaRMSNorm", "Qwen3NextRMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm", "Qwen4ExpTextRMSNorm"),
    *("Step3p7RMSNorm", "MiniMaxM3VLRMSNorm", "MuseGlimmerTextCenteredRMSNorm", "MuseSparkTextCenteredRMSNorm"),
)
"""Classes whose weight is kept as its distance from one."""

_EPS_NAMES = ("eps", "variance_epsilon", "epsilon", "norm_eps")


def _norms(found: _Found, scope: _Scope, facts: Facts) -> tuple[NormPiece | None, NormPiece | None]:
    """The normalisations of query and key in this scope."""
    arrays = {role: names for (at, role), names in found.norms.items() if at == scope.at}
    modules = {}
    for dotted, owner in facts.submodules.items():
        *around, stem = dotted.split(".")
        if tuple(around) == scope.at and (role := norm_role(stem)):
            modules[role] = (dotted, owner)
    found_norms = {role: _norm(arrays.get(role, {}), modules.get(role), facts) for role in {*arrays, *modules}}
    both = found_norms.get("qk")
    return found_norms.get("q", both), found_norms.get("k", both)


def _norm(names: Mapping[str, str], module: tuple[str, str] | None, facts: Facts) -> NormPiece:
    dotted, owner = module or ("", "")
    weight, bias = names.get("weight"), names.get("bias")
    shape = tuple(facts.arrays[weight].shape) if weight else ()
    eps = next((facts.attributes[key] for name in _EPS_NAMES if (key := f"{dotted}.{name}") in facts.attributes), 1e-6)
    return NormPiece(
        kind=_norm_kind(owner, bias is not None),
        weight=weight,
        bias=bias,
        # torch's RMSNorm without an eps takes that of the dtype it computes in.
        eps=float(eps) if isinstance(eps, int | float) else float(np.finfo(np.float64).eps),
        plus_one=owner in _PLUS_ONE,
        shape=shape,
    )


def _norm_kind(owner: str, has_bias: bool) -> Literal["rms", "layer", "l2"]:
    lower = owner.lower()
    if "l2" in lower:
        return "l2"
    if "rms" in lower or "t5" in lower:
        return "rms"
    return "layer" if "layer" in lower or has_bias else "rms"


# --- new values -------------------------------------------------------------------------------------------------------


def randomised(facts: Facts, names: Iterable[str], state: State, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """New values for the named arrays, of their shape and dtype, such that zero biases and unit norms hide nothing.

    Args:
        facts: what the candidate says of itself.
        names: the arrays that a reading uses, see :attr:`ProjectionReading.names`; all others are left as they are.
        state: the arrays.
        rng: source of the numbers.
    """
    return {
        name: _drawn(name, facts.arrays[name], np.shape(state[name]), rng).astype(np.asarray(state[name]).dtype)
        for name in names
    }


def _drawn(name: str, one: ArrayFacts, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    path = _Path.of(name)
    noise = rng.standard_normal(shape)
    if bare(path.stem) in SINKS:
        return noise
    if norm_role(path.stem):
        centre = 0.0 if path.leaf == "bias" or one.owner in _PLUS_ONE else 1.0
        return centre + 0.3 * noise
    if path.leaf == "bias" or (not path.leaf and bias_role(path.stem)) or len(shape) < 2:
        return 0.5 * noise
    return noise * 1.5 / np.sqrt(_fan_in(one, shape))


def _fan_in(one: ArrayFacts, shape: tuple[int, ...]) -> int:
    """Channels that one result is summed over; for raw matrices the geometric mean of what it can be."""
    if one.owner == "Conv1D":
        return shape[0]
    if one.owner.endswith(_LINEARS) or len(shape) != 2:
        return shape[1]
    return max(1, round(float(np.sqrt(shape[0] * shape[1]))))
