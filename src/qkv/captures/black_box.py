"""The weights of a function or a module, read from outside on a small input, beside those that it is meant to have."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from qkv.adapters.abilities import Abilities
from qkv.adapters.messages import Facts, Hosting
from qkv.captures.assembling import assembled
from qkv.captures.beside import SAME, dense
from qkv.captures.reproduced import view_of_reproduced
from qkv.errors import CandidateError, QkvError
from qkv.identification import WeightReader, opened
from qkv.identification.box import Box, Floats, FunctionBox, Sizes
from qkv.identifier import sizes_known
from qkv.inference import Intention, intention_from, intentions
from qkv.masks import Documents
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import HeadWeights, computed_heads, given_heads
from qkv.probes import Setting
from qkv.request import Request
from qkv.spec import AttentionSpec, describe

SIZES = ("num_heads", "num_kv_heads", "head_dim", "value_dim")


def view_of_black_box(request: Request, *, length: int | None = None) -> AttentionView:
    """Its weights on random query and key, and the right ones as another layer where it says what it is meant to be.

    Where its output doesn't show them, they are those under the fault that gives its numbers.

    Args:
        request: the candidate, and what was said of it.
        length: tokens of the input; as many as it was found to take by default.

    Raises:
        SpecError: the fields contradict themselves.
        CandidateError: it can't be run, or its weights show in neither way.
    """
    request.check_sizes()
    said = intention_from(request.given, request.whole_spec)
    host = request.host()
    try:
        facts = host.open(request.to_open)
        try:
            return _view(host, facts, said, request, length)
        except CandidateError as error:
            if error.fatal:
                raise
            unread = error
    finally:
        host.close()
    return view_of_reproduced(request, unread)


def _view(host: Hosting, facts: Facts, said: Intention, request: Request, length: int | None) -> AttentionView:
    given = {name: size for name, size in request.given.items() if name in SIZES}
    rng = np.random.default_rng(request.seed)
    box, routing = opened(host, facts, partial(sizes_known, given=given), request.conventions, rng)
    sizes, tokens = box.sizes, length or box.sizes.tokens
    query, key = _drawn(sizes, tokens, request.seed)
    reader = WeightReader(box, routing)
    if routing.random:
        reader.find_dropout(query, key)
    weights = reader.weights(query, key)[0]
    name, layer = box.facts.name, given_heads(_masked(weights))
    called = (
        "those of the first probe of qkv check" if isinstance(box, FunctionBox) else "where qkv check gives it tokens"
    )
    notes = [f"Read from outside, on random query and key of {tokens} tokens, {called}"]
    layers = [LayerWeights(name, layer)]
    right, said_of_it = _right(box, said, query, key, weights)
    notes += [*said_of_it, *box.words]
    if right:
        layers = [LayerWeights(name, [head.but(against=f"1.{at}") for at, head in enumerate(layer)]),
                  LayerWeights("right", right)]  # fmt: skip
    where = f", {Path(request.file).name}" if request.file else ""
    return assembled(layers, title=f"attention weights of {name}{where}", notes=notes)


def _drawn(sizes: Sizes, tokens: int, seed: int) -> tuple[Floats, Floats]:
    """Query and key of one sequence: those of a check's first probe, so that both say the same of the same cell."""
    able = Abilities(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.value_dim)
    drawn = Setting(AttentionSpec(num_heads=sizes.num_heads), able, seed).inputs("ordinary", queries=tokens)
    assert drawn.query is not None
    assert drawn.key is not None
    return drawn.query[:1], drawn.key[:1]


def _masked(weights: Floats) -> Floats:
    """The weights with NaN where every head has none: read from one-hot values, what is hidden is exactly zero."""
    return np.where((weights == 0).all(axis=0), np.nan, weights)


def _right(
    box: Box, said: Intention, query: Floats, key: Floats, weights: Floats
) -> tuple[tuple[HeadWeights, ...], list[str]]:
    """The heads that it is meant to have, under the intention that comes nearest; and what is to be said of them."""
    found: tuple[HeadWeights, ...] = ()
    best, meant, sized = np.inf, said, said.spec
    for intention in intentions(box.facts, said):
        try:
            spec = _sized(intention.spec, box)
            heads = _under(spec, box, query, key)
        except QkvError:
            continue
        distance = float(np.abs(dense(heads) - np.nan_to_num(weights)).max())
        if not found or distance < best:
            found, best, meant, sized = heads, distance, intention, spec
    if not found:
        return (), ["What it is meant to compute is not known, so there are no right weights beside its own"]
    verdict = "these are the right weights" if best <= SAME else f"off by up to {best:.2g} from the right weights"
    return found, [f"Held to {describe(sized)}: {verdict}", *meant.assumptions]


def _sized(spec: AttentionSpec, box: Box) -> AttentionSpec:
    """The spec at the sizes that the candidate is called with here."""
    if spec.masks(Documents):
        raise CandidateError("documents are told by the call, and none are handed over here")
    sizes = box.sizes
    kv_heads = None if sizes.num_kv_heads == sizes.num_heads else sizes.num_kv_heads
    value_dim = None if sizes.value_dim == sizes.head_dim else sizes.value_dim
    return spec.but(num_heads=sizes.num_heads, num_kv_heads=kv_heads, head_dim=sizes.head_dim, value_dim=value_dim)


def _under(spec: AttentionSpec, box: Box, query: Floats, key: Floats) -> tuple[HeadWeights, ...]:
    value = np.zeros((*key.shape[:-1], box.sizes.value_dim))
    heads = computed_heads(spec.but(out_proj=False), Inputs(query=query, key=key, value=value, sinks=box.sinks))
    return tuple(head.but(value=None) for head in heads)
