"""A candidate that is given tokens and projects them itself: a module, or a function of x and weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from qkv.adapters.abilities import Abilities, Extra
from qkv.adapters.binding import LEAVE, Signature
from qkv.adapters.caches.handing import NOTHING, ROOM, Caching, as_chunk, observed
from qkv.adapters.caches.ways import Room
from qkv.adapters.calling import Array, Caller, Outcome, found, outcome
from qkv.adapters.doubts import Doubt
from qkv.adapters.function import documented, padding_forms, source_meaning
from qkv.adapters.givers import extras
from qkv.adapters.messages import Facts
from qkv.adapters.projections import ProjectionReading, randomised, readings_of
from qkv.adapters.pullback import Gradients, Learned, Memory, gradients, named_arrays, numbered
from qkv.adapters.shaping.sizes import axes_of
from qkv.adapters.written_masks import MaskForm, mask_forms
from qkv.errors import CandidateError
from qkv.oracle import Inputs, Linear, Parameters
from qkv.oracle.chunks import newest
from qkv.spec import AttentionSpec
from qkv.vocabulary import MaskMeaning

TokenLayout = Literal["BTE", "TBE", "TE"]
"""Order of the axes batch, token, embedding in a module's input and output."""


HANDED = ("x", "source", "value_source", "bias")
"""Inputs of a call that are none of the candidate's own arrays."""


@dataclass
class TokensReading:
    """One way of reading a candidate that takes tokens.

    Attributes:
        caller: calls it.
        facts: what it says of itself.
        spec: the intention.
        signature: its call's arguments by role.
        parameters: its projections.
        words: how the projections were read.
        sinks: its sinks.
        layout: order of the axes of tokens.
        weights: arrays to hand over with every call by role (``w_q``), for functions of x and weights.
        mask_form: how a mask is written for it.
        padding_form: how padding is written for it.
        max_tokens: longest sequence it takes.
        doubts: what may be read wrongly.
        caching: what is known of its cache.
        learned: its learned arrays, and what of them the parameters are; None where they are handed over.
    """

    caller: Caller
    facts: Facts
    spec: AttentionSpec
    signature: Signature
    parameters: Parameters
    words: str
    sinks: Array | None = None
    layout: TokenLayout = "BTE"
    weights: Mapping[str, Array] = field(default_factory=dict)
    mask_form: MaskForm = field(default_factory=MaskForm)
    padding_form: MaskForm = field(default_factory=MaskForm)
    max_tokens: int | None = None
    doubts: Sequence[Doubt] = ()
    caching: Caching = field(default_factory=Caching)
    learned: Learned | None = None

    @property
    def abilities(self) -> Abilities:
        """What it takes. Its sizes are those of its projections."""
        spec, parameters = self.spec, self.parameters
        takes: set[Extra] = set(self.signature.takes())
        if self.signature.has("source") or self.signature.has("query", "key"):
            takes.add("source")
        return Abilities(
            num_heads=spec.num_heads,
            num_kv_heads=spec.kv_heads,
            head_dim=parameters.q_proj.weight.shape[0] // spec.num_heads,
            value_dim=parameters.v_proj.weight.shape[0] // spec.kv_heads,
            embed_dim=parameters.q_proj.weight.shape[1],
            parameters=parameters,
            sinks=self.sinks,
            takes=frozenset(takes),
            max_tokens=self.max_tokens,
            batched=self.layout != "TE",
            free_lengths=False,
            cached=self.caching.how,
        )

    @property
    def assumptions(self) -> list[str]:
        """How it was read, in sentences."""
        said = [self.words] if self.words else []
        if self.layout != "BTE":
            said.append("x is time first, (token, batch, embed)" if self.layout == "TBE" else "x is (token, embed)")
        return said + self.signature.in_words(self.mask_form, self.padding_form)

    def observe(self, inputs: Inputs, *, seed: int = 0) -> Outcome:
        """What it gives for these inputs.

        Raises:
            CandidateError: it fails, or returns no array of the output's shape.
        """
        if inputs.steps or self.caching.required:
            return observed(self, inputs, seed)
        args, kwargs = self.bound(inputs)
        self.caller.axes = axes_of(self.abilities, inputs)
        reply, dtype = self.caller.call(args, kwargs, strided=inputs.strided, seed=seed)
        output = found(reply, *self.shaped(inputs))
        queries, keys = inputs.lengths
        weights = _weights(reply.returned, (inputs.batch, self.spec.num_heads, queries, keys))
        return outcome(reply, dtype, output, weights, self.signature.named(reply.changed))

    def bound(self, inputs: Inputs, handed: Mapping[str, Any] = NOTHING) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call with these inputs; ``handed`` has some of them by role."""
        spec = as_chunk(self.spec, inputs).but(head_dim=self.abilities.head_dim)
        give = extras(self.signature, spec, inputs, self.mask_form, self.padding_form)
        new = newest(inputs)
        source = new.x if new.source is None else new.source
        value_source = source if new.value_source is None else new.value_source
        tokens = {"x": inputs.x, "query": inputs.x, "key": source, "value": value_source, "source": source}

        def giver(role: str) -> Any:
            if role in handed:
                return handed[role]
            if role == "source" and inputs.steps and not self.signature.roles[role].required:
                return LEAVE
            if role in self.weights:
                return self.weights[role]
            return self._laid_out(tokens[role]) if role in tokens else give(role)

        return self.signature.bound(giver)

    def room(self, inputs: Inputs) -> Room:
        """How large its cache has to be for these inputs."""
        able = self.abilities
        tokens = able.max_tokens or ROOM
        return Room(inputs.batch, able.num_kv_heads, tokens, able.head_dim, able.value_dim, able.embed_dim)

    def shaped(self, inputs: Inputs) -> tuple[Callable[[Array], Array | None], str]:
        """What turns an array of the output's own shape into ``(batch, query, width)``, and that shape in words."""
        batch, queries, width = inputs.batch, inputs.lengths[0], self._width()
        given_by_heads = (batch, self.spec.num_heads, queries, width // self.spec.num_heads)

        def shaped(array: Array) -> Array | None:
            expected = {"BTE": (batch, queries, width), "TBE": (queries, batch, width), "TE": (queries, width)}
            if array.shape == expected[self.layout]:
                return self._laid_back(array)
            if array.shape == given_by_heads and not self.spec.out_proj and self.spec.num_heads > 1:
                return np.ascontiguousarray(np.transpose(array, (0, 2, 1, 3))).reshape(batch, queries, width)
            return array[None] if batch == 1 and array.shape == (queries, width) else None

        return shaped, f"{(batch, queries, width)} (batch, token, embed)"

    def gradients(self, inputs: Inputs, cotangent: Array, memory: Memory, *, seed: int = 0) -> Gradients:
        """What its backward pass gives for these inputs and this cotangent, ``(batch, query, width)``.

        Raises:
            CandidateError: its backward pass fails.
        """
        return gradients(self, inputs, cotangent, memory, self.learned, seed)

    def named(self, of: Mapping[str, Array]) -> Mapping[str, Array]:
        """The oracle's gradients as this candidate has them: of its own arrays, by their own names."""
        if self.learned is None:
            return of
        return {name: array for name, array in of.items() if name in HANDED} | self.learned.named(of)

    def _width(self) -> int:
        if self.spec.out_proj and self.parameters.out_proj is not None:
            return int(self.parameters.out_proj.weight.shape[0])
        return self.spec.num_heads * (self.parameters.v_proj.weight.shape[0] // self.spec.kv_heads)

    def _laid_out(self, tokens: Array | None) -> Array:
        assert tokens is not None
        if self.layout == "TBE":
            return np.ascontiguousarray(np.swapaxes(tokens, 0, 1))
        return tokens[0] if self.layout == "TE" else tokens

    def _laid_back(self, output: Array) -> Array:
        if self.layout == "TBE":
            return np.ascontiguousarray(np.swapaxes(output, 0, 1))
        return output[None] if self.layout == "TE" else output


def _weights(returned: Sequence[Any], shape: tuple[int, ...]) -> Array | None:
    return next((item.array for item in returned if item.array.shape == shape), None)


def module_readings(
    caller: Caller,
    facts: Facts,
    spec: AttentionSpec,
    *,
    layout: TokenLayout | None,
    mask_meaning: MaskMeaning | None,
    given: Mapping[str, str],
    extra: dict[str, Any],
    seed: int,
    short: bool,
    max_tokens: int | None,
    specify: Callable[[AttentionSpec, Parameters, int | None], Iterator[tuple[AttentionSpec, Sequence[Doubt]]]],
) -> Iterator[TokensReading]:
    """Every way of reading a built module, the likeliest first. Its parameters get new values, so that none hides.

    Args:
        caller: calls the module.
        facts: what is known of it.
        spec: the intention.
        layout: the order of the axes of its tokens, where it is given.
        mask_meaning: what its mask means, where that is given.
        given: names of the arrays that are the projections, by role, as the user gave them.
        extra: values for arguments of the call by name, as the user gave them.
        seed: seed of the new values.
        short: whether the new parameters are short numbers.
        max_tokens: longest sequence it takes.
        specify: the spec with the sizes that the parameters, and the heads that they are cut into, show, and what is
            not sure of them.
    """
    signature = Signature.of(facts.call, extra)
    if not (signature.has("x") or signature.has("query")):
        signature = _first_as_x(signature, facts)
    caching = Caching.of(signature, facts)
    projections = readings_of(facts, spec, given)
    if not projections:
        raise CandidateError(
            f"{facts.name} has no learned arrays, and takes no query, key and value either",
            hint="a function or a module that only mixes takes query, key and value",
        )
    state = caller.host.state()
    names = sorted({name for reading in projections for name in reading.names})
    new = randomised(facts, names, state, np.random.default_rng([seed, 1]))
    new = (
        {name: short_numbers(array) for name, array in new.items()}
        if short
        else new | _well_conditioned(projections[0], {**state, **new}, names)
    )
    caller.host.assign(new)
    state = {**state, **new}
    for reading in projections:
        parameters, sinks = reading.parameters(state), reading.sinks(state)
        for read, doubts in specify(spec, parameters, reading.num_heads):
            one = TokensReading(caller, facts, read, signature, parameters, reading.words, sinks, max_tokens=max_tokens,
                                learned=learned(reading, state), caching=caching)  # fmt: skip
            yield from _with_forms(replace(one, doubts=[*doubts, *_unassigned(reading)]), layout, mask_meaning)


def learned(reading: ProjectionReading, state: Mapping[str, Array]) -> Learned:
    """The arrays that the reading uses, each entry of the oracle's parameters traced to its place in them."""
    shapes = {name: np.shape(state[name]) for name in reading.names}
    places = {**state, **numbered(shapes)}
    return Learned(
        shapes, dict(named_arrays(Inputs(parameters=reading.parameters(places), sinks=reading.sinks(places))))
    )


def _with_forms(
    reading: TokensReading, layout: TokenLayout | None, mask_meaning: MaskMeaning | None
) -> Iterator[TokensReading]:
    facts = reading.facts
    torch_own = facts.class_name == "MultiheadAttention" and (facts.foreign or not facts.file)
    hint: MaskMeaning | None = "hide" if torch_own else source_meaning(reading.facts.source, reading.signature)
    layouts = [layout] if layout else token_layouts(reading.facts)
    forms = mask_forms(reading.signature, mask_meaning or documented(facts, reading.signature, "mask"), hint)
    paddings = padding_forms(facts, reading.signature, mask_meaning)
    for form, padding, said, signature in product(forms, paddings, layouts, reading.signature.in_ways()):
        batch_taken = reading.caller.dtype is not None
        if said == "TE" and reading.facts.is_module and not layout and batch_taken:
            continue  # without a batch it is not meant
        yield replace(reading, layout=said, mask_form=form, padding_form=padding, signature=signature)


def token_layouts(facts: Facts) -> list[TokenLayout]:
    """Layouts that the candidate may mean: batch first, unless it says of itself that it isn't."""
    if facts.attributes.get("batch_first") is False:
        return ["TBE"]
    return ["BTE", "TBE", "TE"] if _TIME_FIRST.search(f"{facts.doc} {facts.source}") else ["BTE", "TE"]


_TIME_FIRST = re.compile(
    r"time\s*(x|\u00d7|,)\s*batch|seq\w*\s*,\s*batch|\b(T|L|S|N),\s*(B|N|bsz|batch)\b|"
    r"\w*(len|time|steps|tokens)\w*\s*,\s*(b|bs|bsz|batch\w*|n)\s*,\s*\w+\s*=\s*\w+\.(shape|size)",
    re.IGNORECASE,
)
"""What code and comments look like that keep the tokens on the first axis."""


def _unassigned(reading: ProjectionReading) -> list[Doubt]:
    names = getattr(reading, "unassigned", ())
    if not names:
        return []
    why = f"it learns arrays that were not recognised as projections: {', '.join(names)}"
    return [Doubt(why, f"say which they are: --weights out_proj={names[0]}")]


def _first_as_x(signature: Signature, facts: Facts) -> Signature:
    first = next((argument for argument in facts.call if argument.kind in ("positional", "either")), None)
    if first is None:
        raise CandidateError(
            f"{facts.name} takes no tokens: its call has no arguments", hint="give forward an argument x"
        )
    others = {role: argument for role, argument in signature.roles.items() if argument is not first}
    return replace(signature, roles={"x": first, **others})


def _well_conditioned(reading: ProjectionReading, state: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The output projection made orthogonal, so that the heads' contexts can be read back from the output exactly."""
    out_proj = reading.parameters(state).out_proj
    if out_proj is None:
        return {}
    for name in names:
        array = state[name]
        for turned in (False, True):
            matrix = array.T if turned and array.ndim == 2 else array
            if matrix.shape == out_proj.weight.shape and np.array_equal(matrix, out_proj.weight):
                even = orthogonal(matrix)
                return {name: np.ascontiguousarray(even.T) if turned else even}
    return {}


def short_numbers(array: Array) -> Array:
    """The array in halves, so that a person can do the sums."""
    return np.round(2 * array) / 2 + 0.0


def orthogonal(matrix: Array) -> Array:
    """The matrix with all its singular values set to one."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    even: Array = left @ right
    return even


def weights_function_readings(
    caller: Caller,
    facts: Facts,
    spec: AttentionSpec,
    *,
    layout: TokenLayout | None,
    mask_meaning: MaskMeaning | None,
    extra: dict[str, Any],
    seed: int,
) -> Iterator[TokensReading]:
    """Every way of reading a function of x and weights: ``(in, out)`` or ``(out, in)``, fused in thirds or per head."""
    signature = Signature.of(facts.call, extra)
    parameters = drawn_parameters(spec, signature, np.random.default_rng([seed, 2]))
    fused = signature.has("w_qkv") and 1 < spec.num_heads == spec.kv_heads
    ways = product([False, True] if fused else [False], [True, False])
    for per_head, turned in ways:
        words = "weights are (in, out): x @ w" if turned else "weights are (out, in): x @ w.T"
        if fused:
            words += f", {'q, k and v of one head together' if per_head else 'in thirds q, k, v'}"
        reading = TokensReading(
            caller,
            facts,
            spec,
            signature,
            parameters,
            words,
            weights=handed_weights(signature, parameters, turned, spec.num_heads if per_head else 1),
            caching=Caching.of(signature, facts),
        )
        yield from _with_forms(reading, layout, mask_meaning)


def drawn_parameters(spec: AttentionSpec, signature: Signature, rng: np.random.Generator) -> Parameters:
    """Random projections of the spec's sizes, with the biases and the output projection that the signature asks for."""
    head_dim = spec.head_dim or 8
    value_dim = spec.value_dim or head_dim
    embed = spec.embed_dim or spec.num_heads * head_dim

    def projection(out: int, into: int, bias: bool) -> Linear:
        weight = 1.5 * rng.normal(size=(out, into)) / into**0.5
        return Linear(weight, 0.5 * rng.normal(size=out) if bias else None)

    fused = signature.has("b_qkv")
    out_proj = projection(embed, spec.num_heads * value_dim, signature.has("b_o")) if signature.has("w_o") else None
    return Parameters(
        q_proj=projection(spec.num_heads * head_dim, embed, fused or signature.has("b_q")),
        k_proj=projection(spec.kv_heads * head_dim, embed, fused or signature.has("b_k")),
        v_proj=projection(spec.kv_heads * value_dim, embed, fused or signature.has("b_v")),
        out_proj=None if out_proj is None else replace(out_proj, weight=orthogonal(out_proj.weight)),
    )


def handed_weights(signature: Signature, parameters: Parameters, turned: bool, parts: int = 1) -> dict[str, Array]:
    """The arrays to hand over by role.

    Args:
        signature: says which there are.
        parameters: the projections.
        turned: whether they are handed over as ``(in, out)``.
        parts: into how many parts each of q, k and v is cut before they are stacked part by part: one for each head.
    """
    projections = {
        "q": parameters.q_proj,
        "k": parameters.k_proj,
        "v": parameters.v_proj,
        "o": parameters.out_proj,
        "qkv": _stacked([parameters.q_proj, parameters.k_proj, parameters.v_proj], parts),
        "kv": _stacked([parameters.k_proj, parameters.v_proj], parts),
    }
    handed: dict[str, Array] = {}
    for name, projection in projections.items():
        if projection is None:
            continue
        if signature.has(f"w_{name}"):
            handed[f"w_{name}"] = np.ascontiguousarray(projection.weight.T) if turned else projection.weight
        if signature.has(f"b_{name}") and projection.bias is not None:
            handed[f"b_{name}"] = projection.bias
    return handed


def _stacked(projections: Sequence[Linear], parts: int) -> Linear:
    """The projections in one: all of the first part of each, then all of the second, and so on."""

    def stacked(arrays: Sequence[Array]) -> Array:
        return np.concatenate([part for row in zip(*(np.split(a, parts) for a in arrays), strict=True) for part in row])

    biases = [projection.bias for projection in projections if projection.bias is not None]
    weight = stacked([projection.weight for projection in projections])
    return Linear(weight, stacked(biases) if len(biases) == len(projections) else None)
