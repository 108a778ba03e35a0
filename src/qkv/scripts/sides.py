"""What stands in the place of query, key and value, and what the scores are multiplied by."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from qkv.scripts import naming
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading
from qkv.scripts.wording import softmax_code

UNSCALED = ("unscaled", "no scal", "without scal", "not scale")
"""How a script says that it leaves the scale out on purpose."""


TEMPERATURE = "temperature"
"""What a script calls a factor of its own."""


def sides(mix: Mix) -> Iterator[Finding]:
    """Query, key and value must each be what stands in its place."""
    query, key, value = mix.query, mix.key, mix.value
    if query is None or key is None or mix.product is None or mix.product.slip:
        return
    for side in dict.fromkeys((query, key, value)):
        yield from _matrix(mix, side)
    yield from _matrix_unused(mix, query, key, value)
    wrong = _of_scores(mix, query, key)
    if wrong is not None:
        yield Finding(wrong[0], mix.product.made, wrong[1], wrong[2], mix)
    roles = {known.role for known in mix.reading.knowns("tokens")}
    roles |= {naming.role_of(name) for name in _like(mix, value) if not naming.is_matrix(name)}
    instead = f"{mix.name(mix.weights, 'attn_weights')} @ {_named(mix.reading, 'value')}"
    if value.role in ("query", "key") and "value" in roles:
        said = f"the weights are applied to {mix.name(value, value.role)}; it is the values that are mixed"
        yield Finding("weights-times-key", mix.context.made, said, instead, mix)
    elif not value.role and mix.projected and "value" in roles and value in (*query.chain(), *key.chain()):
        said = f"the weights are applied to {mix.name(value, 'the inputs')}, as they are before any projection"
        yield Finding("value-not-projected", mix.context.made, said, instead, mix)


def _of_scores(mix: Mix, query: Known, key: Known) -> tuple[str, str, str] | None:
    """What is wrong with the two sides of the scores: fault, words and what to write; None where nothing is."""
    reading, roles = mix.reading, {known.role for known in mix.reading.knowns("tokens")}
    left, right = mix.name(query, query.role), mix.name(key, key.role)
    if (query.role, key.role) == ("key", "query"):
        said = (
            f"the rows belong to {left} here, and the columns to {right}. A row must belong to a query: it holds "
            "what one "
            "token looks at"
        )
        return "scores-transposed", said, f"{right} @ {left}.T"
    if query is key and query.role == "query" and "key" in roles:
        said = f"{left} is multiplied with itself, and the keys are not used"
        return "key-is-query", said, f"{left} @ {_named(reading, 'key')}.T"
    if query is key and query.role == "key" and "query" in roles:
        said = f"{left} is multiplied with itself, and the queries are not used"
        return "query-is-key", said, f"{_named(reading, 'query')} @ {left}.T"
    if "value" in (query.role, key.role):
        said = f"{left} and {right} make the scores; values take no part in them"
        return "projection-reused", said, f"{_named(reading, 'query')} @ {_named(reading, 'key')}.T"
    return None


def _matrix(mix: Mix, side: Known) -> Iterator[Finding]:
    """A projection whose matrix has another role by its name than what it makes."""
    step, reading = side.first("project"), mix.reading
    if step is None or not step.role or len(step.sources) < 2:
        return
    matrix = step.sources[1]
    if matrix.role and matrix.role != step.role:
        right = next((known for known in reading.knowns("matrix") if known.role == step.role), None)
        name = reading.name_of(right) if right is not None else f"W_{step.role}"
        said = (
            f"{mix.name(step, step.role)} is made with {mix.name(matrix, matrix.role)}, the matrix of the {matrix.role}"
        )
        yield Finding("projection-reused", step.made, said, f"{mix.name(step.sources[0], 'inputs')} @ {name}", mix)


def _matrix_unused(mix: Mix, query: Known, key: Known, value: Known) -> Iterator[Finding]:
    """Keys or values that have no name, made with the matrix of another role, while one of their own lies about."""
    reading = mix.reading
    own = {naming.role_of(name): name for names in reading.names.values() for name in names if naming.is_matrix(name)}
    roles = {known.role for known in reading.knowns("tokens")} | {
        known.role for known in reading.knowns("matrix") if known.role
    }
    for side, role, product in ((key, "key", mix.product), (value, "value", mix.context)):
        step, others = side.first("project"), {"query", "key", "value"} - {role}
        if product is None or step is None or role in roles or role not in own or side.role not in others:
            continue
        if role == "key" and side is not query:
            continue
        made = mix.made_for(product, side)
        tokens, matrix = mix.name(step.sources[0], "inputs"), mix.name(step.sources[1], f"W_{side.role}")
        said = f"the {role}s are made with {matrix}, the matrix of the {side.role}, and {own[role]} is not used"
        code = re.sub(rf"\b{re.escape(matrix)}\b", own[role], reading.code(made))
        yield Finding("projection-reused", made, said, code if own[role] in code else f"{tokens} @ {own[role]}", mix)


def _like(mix: Mix, side: Known) -> list[str]:
    """The variables that hold arrays of the shape that one of the sides has."""
    reading = mix.reading
    shapes = {reading.array(value).shape for value in reading.values_of(side) if reading.array(value).ndim > 1}
    return [names[0] for value, names in reading.names.items() if reading.array(value).shape in shapes]


def _named(reading: Reading, role: str) -> str:
    """The variable that holds the tokens of a role."""
    names = [reading.name_of(known) for known in reading.knowns("tokens") if known.role == role]
    names += [name for every in reading.names.values() for name in every if naming.role_of(name) == role]
    return next((name for name in names if name), role)


def scale(mix: Mix, source: str, assumptions: list[str]) -> Iterator[Finding]:
    """Scores of projected tokens are divided by the root of the number of channels."""
    product, dim, softmax = mix.product, mix.head_dim, mix.normalised
    if product is None or product.slip or dim < 2 or softmax is None or softmax.slip:
        return
    if np.isclose(mix.factor, mix.right_factor, rtol=1e-3):
        return
    fault, said = _factor(mix, dim)
    unusual = fault == "scale-other-constant" and not np.isclose(mix.factor, 1 / dim, rtol=1e-3)
    if any(word in source.lower() for word in UNSCALED) or (unusual and (not mix.projected or TEMPERATURE in source)):
        assumptions.append(f"the scores are multiplied by {mix.factor:.4g}, which was taken as meant")
        return
    made = next((one.made for one in mix.path if one.move == "scale"), softmax.made)
    keys = mix.name(mix.key, "keys") if mix.key is not None else "keys"
    scaled = f"{mix.name(product, 'attn_scores')} / {keys}.shape[-1] ** 0.5"
    yield Finding(fault, made, said, softmax_code(mix, scaled) if made == softmax.made else scaled, mix)


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
