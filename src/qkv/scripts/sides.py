"""What stands in the place of query, key and value, and what the scores are multiplied by."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known, close
from qkv.scripts.mixes import Mix
from qkv.scripts.possible import PRODUCTS
from qkv.scripts.reading import Reading, refs
from qkv.scripts.spare import spares, used_twice
from qkv.scripts.spots import Spot, Written, handed_over, spot_at
from qkv.scripts.writing import remade, turned

UNSCALED = ("unscaled", "no scal", "without scal", "not scale")
"""How a script says that it leaves the scale out on purpose."""


TEMPERATURE = "temperature"
"""What a script calls a factor of its own."""


def sides(mix: Mix, text: Text) -> Iterator[Finding]:
    """Query, key and value must each be what stands in its place."""
    found = list(_sides(mix, text))
    yield from found
    if not any(finding.fault == "projection-reused" for finding in found):
        yield from used_twice(mix, text)


def _sides(mix: Mix, text: Text) -> Iterator[Finding]:
    query, key, value = mix.query, mix.key, mix.value
    if query is None or key is None or mix.product is None or mix.product.slip:
        return
    for side in dict.fromkeys((query, key, value)):
        yield from _matrix(mix, side, text)
    yield from _matrix_unused(mix, query, key, value)
    yield from _of_scores(mix, mix.product, query, key)
    if _in_other_order(value, key) or _in_other_order(key, value):
        names = mix.name(value, "the values"), mix.name(key, "the keys")
        said = f"the rows of {names[0]} stand in another order than those of {names[1]}"
        spot = spot_at(mix.reading, mix.operation)
        code, _ = with_code(spot.code, spot.name(value, "values"), spot.name(key, "keys"))
        yield Finding.of("values-in-another-order", said, Written(spot, code), mix)
    roles = {known.role for known in mix.reading.knowns("tokens")}
    roles |= {naming.role_of(name) for name in _like(mix, value) if not naming.is_matrix(name)}
    spot = spot_at(mix.reading, mix.operation)
    instead = f"{spot.name(mix.weights, 'attn_weights')} @ {spot.of_role('value')}"
    if value.role in ("query", "key") and "value" in roles:
        said = f"the weights are applied to {mix.name(value, value.role)}; it is the values that are mixed"
        yield Finding("weights-times-key", mix.operation, said, instead, mix)
    elif not value.role and mix.projected and "value" in roles and value in (*query.chain(), *key.chain()):
        said = f"the weights are applied to {mix.name(value, 'the inputs')}, as they are before any projection"
        yield Finding("value-not-projected", mix.operation, said, instead, mix)


def _in_other_order(one: Known, other: Known) -> bool:
    """Whether one side has its tokens in an order of their own, and the other one those same tokens as they were."""
    order = one.first("order")
    return order is not None and other.first("order") is None and order.sources[0] in other.chain()


def _of_scores(mix: Mix, product: Known, query: Known, key: Known) -> Iterator[Finding]:
    """What is wrong with the two sides of the scores."""
    roles = {known.role for known in mix.reading.knowns("tokens")}
    left, right = mix.name(query, query.role), mix.name(key, key.role)
    spot = spot_at(mix.reading, mix.made(product))
    whole = Written(spot, f"{spot.of_role('query')} @ {turned(mix, spot.of_role('key'), key.array.ndim)}")
    if (query.role, key.role) == ("key", "query"):
        said = (
            f"the rows belong to {left} here, and the columns to {right}. A row must belong to a query: it holds "
            "what one token looks at"
        )
        outer = handed_over(mix.reading, spot.operation, query)
        code = _exchanged(outer, outer.variable(query), outer.variable(key))
        yield Finding.of("scores-transposed", said, Written(outer, code) if code else whole, mix)
    elif query is key and query.role == "query" and "key" in roles:
        said = f"{left} is multiplied with itself, and the keys are not used"
        yield Finding.of("key-is-query", said, whole, mix)
    elif query is key and query.role == "key" and "query" in roles:
        said = f"{left} is multiplied with itself, and the queries are not used"
        yield Finding.of("query-is-key", said, whole, mix)
    elif "value" in (query.role, key.role):
        said = f"{left} and {right} make the scores; values take no part in them"
        value = key if key.role == "value" else query
        outer = handed_over(mix.reading, spot.operation, value)
        code = _exchanged(outer, outer.variable(value), outer.of_role("query" if value is query else "key"))
        yield Finding.of("projection-reused", said, Written(outer, code) if code else whole, mix)


def crossed(reading: Reading) -> Iterator[Finding]:
    """Products of one head's weights with another head's values, or of one's queries with another's keys."""
    for number, operation in enumerate(reading.operations):
        given = [sight for value in refs(operation.arguments) if (sight := reading.sights.get(value)) is not None]
        if operation.name not in PRODUCTS or len(given) != 2 or operation.results[0] in reading.sights:
            continue
        left, right = given
        kinds = left.known.kind, right.known.kind
        heads = [sight.fixed.get("head", -1) for sight in given]
        counts = [_heads(sight.known) for sight in given]
        if kinds not in _PAIRS or -1 in heads or counts[0] % counts[1]:
            continue
        meant = heads[0] // (counts[0] // counts[1])
        if heads[1] == meant:
            continue
        what = _PAIRS[kinds]
        own = "each head has its own" if counts[0] == counts[1] else f"head {meant} is the one that it shares"
        said = f"the {what[0]} of head {heads[0]} meet the {what[1]} of head {heads[1]}: {own}"
        yield Finding("kv-head-divisor", number, said, f"{reading.code(number)}   # of head {meant}")


_PAIRS = {("weights", "tokens"): ("weights", "values"), ("tokens", "tokens"): ("queries", "keys")}


def _heads(known: Known) -> int:
    return known.array.shape[known.axes.index("head")] if "head" in known.axes else 0


def _exchanged(spot: Spot, one: str, other: str) -> str:
    """The code with two variables in each other's place; empty where one of them is none, or stands there twice."""
    code, times = spot.code, [0, 0, 0]
    for place, (old, new) in enumerate(((one, "both_"), (other, one), ("both_", other))):
        code, times[place] = with_code(code, old, new) if old else (code, 0)
    return code if times == [1, 1, 1] else ""


def _matrix(mix: Mix, side: Known, text: Text) -> Iterator[Finding]:
    """A projection whose matrix has another role by its name than what it makes."""
    step, reading = side.first("project"), mix.reading
    if step is None or not step.role or len(step.sources) < 2:
        return
    matrix = step.sources[1]
    if matrix.role and matrix.role != step.role:
        right = next((known for known in reading.knowns("matrix") if known.role == step.role), None)
        written = re.sub(r"(\.weight)?(\[.*)?$", "", mix.name(matrix, matrix.role))
        unused = _matrices(reading).get(step.role, next(iter(spares(text, written)), f"W_{step.role}"))
        name = reading.name_of(right) if right is not None else unused
        said = (
            f"{mix.name(step, step.role)} is made with {mix.name(matrix, matrix.role)}, the matrix of the {matrix.role}"
        )
        spot = spot_at(reading, mix.made(step))
        code = _with_matrix(spot, mix.name(matrix, matrix.role), name)
        code = code or f"{spot.name(step.sources[0], 'inputs')} @ {name}"
        yield Finding.of("projection-reused", said, Written(spot, code), mix)


def _with_matrix(spot: Spot, old: str, new: str) -> str:
    """The code of a projection with another matrix, or layer, in it; empty where the old one has no name in it."""
    old, new = old.removesuffix(".weight").partition("[")[0], new.removesuffix(".weight")
    if old.startswith("self."):  # outside it has another name: ``model.W_value``
        new = f"self.{new.rpartition('.')[2]}"
    code, times = with_code(spot.code, old, new)
    return code if times else ""


def _matrices(reading: Reading) -> dict[str, str]:
    """The variable that is called the matrix of a role, by the role."""
    names = [name for every in reading.names.values() for name in every if naming.is_matrix(name)]
    return {naming.role_of(name): name for name in names}


def _matrix_unused(mix: Mix, query: Known, key: Known, value: Known) -> Iterator[Finding]:
    """Keys or values that have no name, made with the matrix of another role, while one of their own lies about."""
    reading = mix.reading
    own = _matrices(reading)
    roles = {known.role for known in reading.knowns("tokens")} | {
        known.role for known in reading.knowns("matrix") if known.role
    }
    for side, role, product in ((key, "key", mix.product), (value, "value", mix.context)):
        step, others = side.first("project"), {"query", "key", "value"} - {role}
        if product is None or step is None or role in roles or role not in own or side.role not in others:
            continue
        if role == "key" and not close(side.array, query.array):
            continue
        made = mix.made_for(product, side)
        tokens, matrix = mix.name(step.sources[0], "inputs"), mix.name(step.sources[1], f"W_{side.role}")
        said = f"the {role}s are made with {matrix}, the matrix of the {side.role}, and {own[role]} is not used"
        code = _with_matrix(spot_at(reading, made), matrix, own[role])
        yield Finding("projection-reused", made, said, code or f"{tokens} @ {own[role]}", mix)


def _like(mix: Mix, side: Known) -> list[str]:
    """The variables that hold arrays of the shape that one of the sides has."""
    reading = mix.reading
    shapes = {reading.array(value).shape for value in reading.values_of(side) if reading.array(value).ndim > 1}
    return [names[0] for value, names in reading.names.items() if reading.array(value).shape in shapes]


def scale(mix: Mix, source: str, assumptions: list[str]) -> Iterator[Finding]:
    """Scores of projected tokens are divided by the root of the number of channels."""
    product, dim, softmax = mix.product, mix.head_dim, mix.softmax
    if product is None or product.slip or dim < 2 or mix.normalised is None or softmax is None or softmax.slip:
        return
    if np.isclose(mix.factor, mix.right_factor, rtol=1e-3):
        return
    fault, said = _factor(mix, dim)
    scaled = next((one for one in mix.path if one.move == "scale"), None)
    by_name = scaled is not None and TEMPERATURE in mix.reading.code(mix.made(scaled))
    unusual = fault == "scale-other-constant" and not np.isclose(mix.factor, 1 / dim, rtol=1e-3)
    if (
        by_name
        or any(word in source.lower() for word in UNSCALED)
        or (unusual and (not mix.projected or TEMPERATURE in source))
    ):
        assumptions.append(f"the scores are multiplied by {mix.factor:.4g}, which was taken as meant")
        return
    if scaled is None:
        written = remade(mix, softmax, lambda scores: f"{scores} / {_root(mix, softmax)}")
        yield Finding.of(fault, said, written, mix)
        return
    spot = spot_at(mix.reading, mix.made(scaled))
    instead = f"{spot.name(product, 'attn_scores')} / {_root(mix, scaled)}"
    yield Finding.of(fault, said, Written(spot, instead), mix)


def _root(mix: Mix, step: Known) -> str:
    """The root of the number of channels, where a step is made: by the keys' shape where these have a name there."""
    spot, dim = handed_over(mix.reading, mix.made(step), step.sources[0]), mix.head_dim
    keys = "" if mix.key is None else spot.variable(mix.key, dim)
    return f"{keys}.shape[-1] ** 0.5" if keys else f"{dim} ** 0.5"


def biases(mix: Mix) -> Iterator[str]:
    """What was added to the scores, which only its author knows to be right."""
    for step in mix.path:
        if step.move == "bias":
            yield f"what is added to the scores in {mix.name(step, 'one step')} was taken as meant"


def _factor(mix: Mix, dim: int) -> tuple[str, str]:
    """The fault in what the scores were multiplied by, and its words."""
    factor, root = mix.factor, f"sqrt({dim}) = {dim**0.5:.4g}"
    if np.isclose(factor, 1, rtol=1e-3):
        return "scale-missing", (
            f"the scores go into softmax unscaled. They are sums of {dim} products, and the longer such sums are, "
            "the more "
            f"softmax gives all weight to one token: divide them by {root}"
        )
    if np.isclose(factor, 1 / dim, rtol=1e-3):
        return "scale-other-constant", f"the scores are divided by {dim}, and not by its root, {root}"
    if np.isclose(factor, dim**0.5, rtol=1e-3):
        return "scale-inverted", f"the scores are multiplied by {root}, and should be divided by it"
    if mix.query is not None and "head" in mix.query.axes:
        width = dim * mix.query.array.shape[mix.query.axes.index("head")]
        if np.isclose(factor, width**-0.5, rtol=1e-3):
            said = (
                f"the scores are divided by sqrt({width}), the root of the width of all heads; one head has {dim} "
                "channels"
            )
            return "scale-by-model-width", said
    return (
        "scale-other-constant",
        f"the scores are multiplied by {factor:.4g}; with {dim} channels divide them by {root}",
    )
