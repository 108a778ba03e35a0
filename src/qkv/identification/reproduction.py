"""Reproduction: the oracle under the spec that was read, beside the box, on inputs that were not used for reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from qkv.comparison import Expectation, as_rows, expectation
from qkv.errors import CandidateError
from qkv.identification.box import Floats
from qkv.identification.found import Found
from qkv.identification.mask_rules import documents_for, rows_at_tokens
from qkv.identification.precision import coarser
from qkv.identification.wording import estimates_of
from qkv.oracle import Inputs, run_stages
from qkv.positions import RelativeBias
from qkv.report import ProbeResult
from qkv.report.identity import Estimate
from qkv.spec import AttentionSpec


@dataclass(frozen=True)
class Fresh:
    """One input that the spec is held against."""

    name: str
    lengths: tuple[int, int]
    gain: float = 1.0


def fresh_inputs(found: Found) -> list[Fresh]:
    """Inputs of several lengths, the box's own first."""
    tokens = found.box.sizes.tokens
    inputs = [
        Fresh(f"{tokens} tokens", (tokens, tokens)),
        Fresh(f"{tokens} tokens, high scores", (tokens, tokens), 6.0),
    ]
    longer = found.exact_square
    if longer[0] > tokens:
        inputs.append(Fresh(f"{longer[0]} tokens", longer))
    by_position = next((read.matrix for read in found.biases if read.matrix is not None), None)
    if by_position is not None:  # known at the lengths that it was read at, and no others
        return [fresh for fresh in inputs if fresh.lengths <= by_position.shape]
    unequal = [lengths for lengths in found.view.sights if lengths[0] != lengths[1]]
    return [*inputs, *(Fresh(f"{queries} queries, {keys} keys", (queries, keys)) for queries, keys in unequal)]


def reproduced(found: Found, spec: AttentionSpec, rng: np.random.Generator) -> list[tuple[ProbeResult, float | None]]:
    """For each fresh input how the spec does on it, and its largest error in units of what rounding allows."""
    results: list[tuple[ProbeResult, float | None]] = []
    for fresh in fresh_inputs(found):
        try:
            error, allowed, worst = _held_against(found, spec, fresh, rng)
        except CandidateError as refusal:
            results.append((ProbeResult(fresh.name, "", None, None, None, refusal.message), None))
            continue
        results.append((ProbeResult(fresh.name, "", worst <= 1.0, error, allowed), worst))
    return results


def _held_against(
    found: Found, spec: AttentionSpec, fresh: Fresh, rng: np.random.Generator
) -> tuple[float, float, float]:
    sizes, lengths = found.box.sizes, fresh.lengths
    batch = 2 if sizes.batched and not found.dropout else 1
    # Lengths make no difference to what is normalised, save for the small number that keeps it from dividing by zero.
    longer = 100.0 if spec.qk_norm else 1.0
    query = longer * fresh.gain * rng.normal(size=(batch, sizes.num_heads, lengths[0], sizes.head_dim))
    key = longer * rng.normal(size=(batch, sizes.num_kv_heads, lengths[1], sizes.head_dim))
    value = rng.normal(size=(batch, sizes.num_kv_heads, lengths[1], sizes.value_dim))
    inputs, spec = _as_read(found, query, key, value, lengths), spec.but(num_kv_heads=None)
    with np.errstate(all="ignore"):
        expected = expectation(
            run_stages(spec, inputs),
            coarser(found.box.dtype, found.precision),
            judge_empty_rows=found.empty_row is not None,
        )
        expected = replace(expected, tolerance=expected.tolerance + _of_constants(found, expected, rng))
    rule = found.one_rule
    if rule is not None and rule.documents is not None:
        counts = rows_at_tokens(found.offset, lengths)
        expected = replace(expected, judged=expected.judged & counts[None, :, None])
    got = _given(found, query, key, value)
    merged = np.transpose(got, (0, 2, 1, 3)).reshape(batch, lengths[0], -1)
    with np.errstate(over="ignore"):
        compared = expected.compare(merged)
        return compared.max_error, float(expected.tolerance.max()), compared.worst


def _of_constants(found: Found, expected: Expectation, rng: np.random.Generator) -> Floats:
    """What the errors of the constants that were read make of each row, ``(batch, query, head)``, added up."""
    spec, inputs = expected.run.spec, expected.run.inputs
    off = np.zeros(expected.tolerance.shape)
    for other, moved in _moved(found, spec, inputs, rng):
        rows = as_rows(run_stages(other, moved).output, expected.num_heads)
        off += np.nan_to_num(np.abs(rows - expected.rows).max(axis=-1))
    return off


def _moved(
    found: Found, spec: AttentionSpec, inputs: Inputs, rng: np.random.Generator
) -> Iterator[tuple[AttentionSpec, Inputs]]:
    """The spec and the inputs, once for each kind of constant, with that moved by how far off it may be."""
    read = estimates_of(found)
    if spec.scale is not None:
        yield spec.but(scale=_off(spec.scale, read["scale"])), inputs
    if spec.softcap is not None:
        yield spec.but(softcap=_off(spec.softcap, read["softcap"])), inputs
    if spec.rope is not None:
        yield spec.but(rope=replace(spec.rope, base=_off(spec.rope.base, read["rope.base"]))), inputs
        if spec.rope.scaling is not None and "rope.scaling.factor" in read:
            factor = _off(spec.rope.scaling.factor, read["rope.scaling.factor"])
            yield spec.but(rope=replace(spec.rope, scaling=replace(spec.rope.scaling, factor=factor))), inputs
    if spec.alibi is not None and spec.alibi.slopes is not None:
        steep = [Estimate(one.slope, one.error) for one in found.biases]
        slopes = tuple(_off(said, slope) for said, slope in zip(spec.alibi.slopes, steep, strict=True))
        yield spec.but(alibi=replace(spec.alibi, slopes=slopes)), inputs
    if found.sinks is not None:
        yield spec, inputs.but(sinks=found.sinks[0] + found.sinks[1])
    errors = np.array([one.error for one in found.biases])[:, None, None]
    if spec.relative_bias is not None:
        table = np.array(spec.relative_bias.table)
        table += errors[:, 0] * rng.choice((-1.0, 1.0), size=table.shape)
        yield spec.but(relative_bias=RelativeBias(tuple(map(tuple, table.tolist())))), inputs
    if inputs.bias is not None:
        yield spec, inputs.but(bias=inputs.bias + errors * rng.choice((-1.0, 1.0), size=inputs.bias.shape))


def _off(said: float, read: Estimate) -> float:
    """A number moved by how far it may be from the right one."""
    return said + abs(said - read.value) + read.error


def _as_read(found: Found, query: Floats, key: Floats, value: Floats, lengths: tuple[int, int]) -> Inputs:
    """The inputs as the box routes them, one key/value head per query head, with what no spec can say handed over."""
    routing = found.routing
    heads = list(routing.kv_head)
    queries = [head if other < 0 else other for head, other in enumerate(routing.query_head)]
    value = value[:, heads]
    if routing.channels is not None:
        value = np.stack([value[:, head][..., list(order)] for head, order in enumerate(routing.channels)], axis=1)
    inputs = Inputs(query=query[:, queries], key=key[:, heads], value=value)
    if found.sinks is not None:
        inputs = inputs.but(sinks=found.sinks[0])
    rule = found.one_rule
    if rule is not None and rule.documents is not None:
        numbers = documents_for(rule.documents, max(lengths))[: lengths[1]]
        inputs = inputs.but(document=np.repeat(numbers[None], len(query), axis=0))
    if rule is None:
        inputs = inputs.but(may_attend=found.allowed(lengths)[None])
    if any(read.matrix is not None for read in found.biases):
        inputs = inputs.but(bias=_matrices(found, lengths)[None])
    return inputs


def handed_over(found: Found) -> list[str]:
    """What no spec can say of what was read, and is handed over with the inputs, in words."""
    sets = ["the sets of keys that were seen"] if found.one_rule is None else []
    by_position = any(read.matrix is not None for read in found.biases)
    return [*sets, "the biases of its positions"] if by_position else sets


def _matrices(found: Found, lengths: tuple[int, int]) -> Floats:
    """The biases by position of all heads, ``(head, query, key)``, cut to these lengths."""
    rows = np.zeros((len(found.biases), *lengths))
    for head, read in enumerate(found.biases):
        if read.matrix is not None:
            rows[head] = np.nan_to_num(read.matrix[: lengths[0], : lengths[1]])
    return rows


def _given(found: Found, query: Floats, key: Floats, value: Floats) -> Floats:
    """The box's context; where it drops weights, that of its weights without the dropping."""
    if not found.dropout:
        return found.box.context(query, key, value)
    value = value[:, list(found.routing.kv_head)]
    context: Floats = found.reader.weights(query, key) @ value
    return context
