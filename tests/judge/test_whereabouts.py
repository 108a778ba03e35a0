"""Whereabouts: the first wrong token, head, weight and channel, held against a second computation of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from injected import Case, function, module
from qkv.debugger import check
from qkv.diagnosis import Diagnosis, Observation, diagnose
from qkv.oracle import Inputs
from qkv.spread import describe_spread
from qkv.whereabouts import Inside, Whereabouts, undone, whereabouts, wrong_heads

Array = np.ndarray

HEADS, KV_HEADS, DIM = 4, 2, 8
SIZES: dict[str, Any] = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "value_dim": 10}
HEADS_GIVEN = function(causal=True, takes=frozenset(), max_tokens=12, **SIZES)
TOKENS_GIVEN = module(causal=True, takes=frozenset(), embed_dim=44, projection_bias=True, **SIZES)
NARROW = module(causal=True, takes=frozenset(), embed_dim=20, **SIZES)
"""Its output has fewer channels than its heads together: they can't be told from it."""


def split(inputs: Inputs) -> tuple[Array, Array, Array]:
    """Query, key and value by heads, from the tokens where they are given."""
    if inputs.query is not None:
        return inputs.query, inputs.key, inputs.value
    parameters = inputs.parameters
    assert parameters is not None
    heads = []
    for projection, count in ((parameters.q_proj, HEADS), (parameters.k_proj, KV_HEADS), (parameters.v_proj, KV_HEADS)):
        x = inputs.x @ projection.weight.T + (0 if projection.bias is None else projection.bias)
        heads.append(x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2))
    return tuple(heads)  # type: ignore[return-value]  # three of them


def weights_of(inputs: Inputs, *, ahead: int = 0, tiled: bool = False) -> Array:
    query, key, _ = split(inputs)
    group = HEADS // KV_HEADS
    key = np.tile(key, (1, group, 1, 1)) if tiled else key.repeat(group, 1)
    scores = query @ key.swapaxes(-1, -2) / DIM**0.5
    queries, keys = scores.shape[-2:]
    scores = np.where(np.tri(queries, keys, keys - queries + ahead, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def mixed(inputs: Inputs, weights: Array, *, tiled: bool = False) -> Array:
    value = split(inputs)[2]
    group = HEADS // KV_HEADS
    return weights @ (np.tile(value, (1, group, 1, 1)) if tiled else value.repeat(group, 1))


def put_out(inputs: Inputs, context: Array) -> Array:
    output = context.swapaxes(1, 2).reshape(context.shape[0], context.shape[2], -1)
    out = None if inputs.parameters is None else inputs.parameters.out_proj
    if out is None:
        return output
    return output @ out.weight.T + (0 if out.bias is None else out.bias)


def observed(case: Case, **mistake: Any) -> list[Observation]:
    tiled = mistake.get("tiled", False)
    return [
        Observation(
            probe,
            right,
            put_out(probe.inputs, mixed(probe.inputs, weights_of(probe.inputs, **mistake), tiled=tiled)),
        )
        for probe, right in case.expected
    ]


def found(case: Case, **mistake: Any) -> tuple[Observation, Whereabouts]:
    observations = observed(case, **mistake)
    diagnosis = diagnose(observations, pairs=False)
    assert diagnosis.best is not None
    first = next(observation for observation in observations if not observation.comparison.agrees)
    return first, whereabouts(Inside(first, diagnosis))


@pytest.mark.parametrize("case", [HEADS_GIVEN, TOKENS_GIVEN, NARROW], ids=["heads", "tokens", "narrow"])
def test_what_is_written_here_is_right_without_a_mistake(case: Case) -> None:
    assert all(observation.comparison.agrees for observation in observed(case))


# --- explained --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [HEADS_GIVEN, TOKENS_GIVEN, NARROW], ids=["heads", "tokens", "narrow"])
def test_a_key_that_should_be_hidden(case: Case) -> None:
    observation, where = found(case, ahead=1)
    inputs = observation.probe.inputs
    first = where.first
    # The first token sees the second one too: its own weight, which should be 1, is the first that is wrong.
    assert (first.probe, first.batch, first.head, first.query, first.key, first.channel) == ("ordinary", 0, 0, 0, 0, 0)
    right, wrong = (mixed(inputs, weights_of(inputs, ahead=ahead)) for ahead in (0, 1))
    assert first.expected == pytest.approx(put_out(inputs, right)[0, 0, 0])
    assert first.got == pytest.approx(put_out(inputs, wrong)[0, 0, 0])
    weights, context, output = where.rows
    assert weights.title == "weights of token 0 in head 0"
    np.testing.assert_allclose(weights.expected, np.eye(7)[0], atol=1e-12)
    np.testing.assert_allclose(weights.got, weights_of(inputs, ahead=1)[0, 0, 0], atol=1e-9)
    assert np.count_nonzero(weights.got) == 2
    assert context.title == "context of token 0 in head 0"
    np.testing.assert_allclose(context.expected, right[0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(context.got, wrong[0, 0, 0], atol=1e-9)
    assert output.title == "output of token 0"
    shown = slice(None) if case is not HEADS_GIVEN else slice(0, 10)
    np.testing.assert_allclose(output.expected, put_out(inputs, right)[0, 0, shown], atol=1e-9)
    np.testing.assert_allclose(output.got, put_out(inputs, wrong)[0, 0, shown], atol=1e-9)


@pytest.mark.parametrize("case", [HEADS_GIVEN, TOKENS_GIVEN], ids=["heads", "tokens"])
def test_the_first_head_that_is_wrong(case: Case) -> None:
    # Of four heads over two shared ones, tiling gives 0 1 0 1 in place of 0 0 1 1: the outer two are right.
    observation, where = found(case, tiled=True)
    inputs = observation.probe.inputs
    assert (where.first.batch, where.first.query, where.first.head) == (0, 0, 1)
    titles = [pair.title for pair in where.rows]
    # One visible key has the weight 1 either way; its value is another head's.
    assert titles == ["weights of token 0 in head 1", "context of token 0 in head 1", "output of token 0"]
    assert where.first.key is None
    np.testing.assert_allclose(where.rows[0].expected, where.rows[0].got, atol=1e-12)
    value = split(inputs)[2]
    np.testing.assert_allclose(where.rows[1].expected, value[0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(where.rows[1].got, value[0, 1, 0], atol=1e-9)


def test_the_heads_that_are_wrong_are_known_where_rows_are_of_all_of_them() -> None:
    observations = observed(TOKENS_GIVEN, tiled=True)
    failing = next(observation for observation in observations if not observation.comparison.agrees)
    wrong = wrong_heads(Inside(failing, diagnose(observations, pairs=False)))
    assert wrong is not None
    assert wrong.tolist() == [False, True, True, False]
    assert describe_spread(failing.comparison.wrong, failing.expected.judged, wrong).endswith("in heads 1 and 2 of 4")
    assert wrong_heads(Inside(failing, Diagnosis())) is None


# --- unexplained ------------------------------------------------------------------------------------------------------


def unexplained(case: Case, places: Sequence[tuple[int, int, int]], keys: tuple[int, int] = (1, 2)) -> Observation:
    """The ordinary probe, with the weights of two keys exchanged in these rows ``(batch, head, query)``."""
    probe, right = case.expected[0]
    weights = weights_of(probe.inputs)
    for place in places:
        weights[(*place, list(keys))] = weights[(*place, list(keys[::-1]))]
    return Observation(probe, right, put_out(probe.inputs, mixed(probe.inputs, weights)))


@pytest.mark.parametrize("case", [HEADS_GIVEN, TOKENS_GIVEN], ids=["heads", "tokens"])
@pytest.mark.parametrize("place", [(0, 2, 4), (1, 3, 6), (1, 0, 2)])
def test_head_and_weight_are_read_back_from_the_output(case: Case, place: tuple[int, int, int]) -> None:
    batch, head, query = place
    observation = unexplained(case, [place])
    where = whereabouts(Inside(observation, Diagnosis()))
    assert (where.first.batch, where.first.head, where.first.query, where.first.key) == (batch, head, query, 1)
    (output,) = where.rows
    assert output.title == f"output of token {query}"
    right = put_out(observation.probe.inputs, mixed(observation.probe.inputs, weights_of(observation.probe.inputs)))
    shown = slice(head * 10, head * 10 + 10) if case is HEADS_GIVEN else slice(None)
    np.testing.assert_allclose(output.expected, right[batch, query, shown], atol=1e-9)
    np.testing.assert_allclose(output.got, observation.output[batch, query, shown], atol=1e-9)
    assert where.first.got == pytest.approx(output.got[where.first.channel])
    assert where.first.expected == pytest.approx(output.expected[where.first.channel])


def test_the_earliest_token_comes_before_the_first_head() -> None:
    where = whereabouts(Inside(unexplained(TOKENS_GIVEN, [(0, 0, 5), (0, 3, 4)]), Diagnosis()))
    assert (where.first.query, where.first.head) == (4, 3)


def test_the_contexts_behind_a_projection_are_those_that_went_in() -> None:
    observation = unexplained(TOKENS_GIVEN, [(0, 1, 3)])
    inputs = observation.probe.inputs
    weights = weights_of(inputs)
    weights[0, 1, 3, [1, 2]] = weights[0, 1, 3, [2, 1]]
    np.testing.assert_allclose(undone(observation), mixed(inputs, weights), atol=1e-9)


def test_no_head_is_named_where_the_projection_can_not_be_undone() -> None:
    observation = unexplained(NARROW, [(0, 2, 4)])
    assert undone(observation) is None
    where = whereabouts(Inside(observation, Diagnosis()))
    assert (where.first.query, where.first.head, where.first.key) == (4, None, None)
    assert [pair.title for pair in where.rows] == ["output of token 4"]


def test_no_weight_is_named_where_no_weights_give_the_context() -> None:
    probe, right = TOKENS_GIVEN.expected[0]
    context = mixed(probe.inputs, weights_of(probe.inputs))
    context[1, 2, 3] += np.random.default_rng(0).normal(size=10)  # off what seven values of ten channels can mix to
    where = whereabouts(Inside(Observation(probe, right, put_out(probe.inputs, context)), Diagnosis()))
    assert (where.first.batch, where.first.head, where.first.query, where.first.key) == (1, 2, 3, None)


def test_no_weight_is_named_where_many_rows_give_the_context() -> None:
    wide = function(causal=True, takes=frozenset(), max_tokens=12, **{**SIZES, "value_dim": 5})  # fewer than seven keys
    where = whereabouts(Inside(unexplained(wide, [(0, 2, 4)]), Diagnosis()))
    assert (where.first.head, where.first.query, where.first.key) == (2, 4, None)


def test_a_row_that_should_be_nan_is_shown_too() -> None:
    def attention(query: Array, key: Array, value: Array, mask: Array) -> Array:
        scores = np.where(mask, query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5, -1e30)
        shares = np.exp(scores - scores.max(-1, keepdims=True)) * mask
        total = shares.sum(-1, keepdims=True)
        return shares / np.where(total == 0, 1, total) @ value

    report = check(attention, {"num_heads": 3, "empty_row": "nan"}, mask_argument="keep")
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", ["empty-row"])
    assert report.first_disagreement is not None
    assert (report.first_disagreement.probe, report.first_disagreement.query) == ("empty-row", 2)
    assert np.isnan(report.first_disagreement.expected)
    assert report.first_disagreement.got == 0.0
