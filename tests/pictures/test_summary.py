"""One pass over blocks gives what the whole matrix gives, computed by loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from drawn import Call, drawn_calls, drawn_specs
from pictured import MASKED, shade
from qkv.masks import Causal
from qkv.oracle import Inputs, run_stages
from qkv.pictures import summary as of_summary
from qkv.pictures.pyramid import Level
from qkv.pictures.ranking import NO_KEY
from qkv.pictures.summary import Summary, summarise
from qkv.pictures.weights import HeadWeights, computed_heads, given_heads
from qkv.spec import AttentionSpec

COUNT = 3


def summary_of(
    head: HeadWeights, level: Level, first_query: int, cells: int, queries: np.ndarray | None = None
) -> Summary:
    queries = np.arange(head.shape[0]) if queries is None else queries
    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_summary, "CELLS", cells)
        found = summarise(head, queries, level, first_query=first_query, count=COUNT, advance=done.append)
    assert sum(done) == len(queries)
    return found


def shown_by(weights: np.ndarray, may_attend: np.ndarray) -> np.ndarray:
    """The weights as a picture has to show them: what may not attend and has no weight is masked."""
    has_weight = np.nan_to_num(weights) != 0
    return np.where((may_attend | has_weight) & ~np.isnan(weights), weights, MASKED)


def hold(found: Summary, shown: np.ndarray, level: Level, positions: np.ndarray) -> None:
    """Every number of the summary beside one computed from the whole matrix."""
    for row, line in enumerate(shown):
        weights = {key: float(weight) for key, weight in enumerate(line) if weight > MASKED}
        total = math.fsum(weights.values())
        assert found.sums[row] == pytest.approx(total, abs=1e-6)
        assert found.first[row] == pytest.approx(weights.get(0, 0.0), abs=1e-6)
        shares = [weight / total for weight in weights.values()] if total > 0 else []
        entropy = -math.fsum(p * math.log2(p) for p in shares if p > 0) if shares else math.nan
        assert found.entropy[row] == pytest.approx(entropy, abs=1e-6, nan_ok=True)
        back = [abs(positions[row] - key) for key in weights]
        distance = math.fsum(p * d for p, d in zip(shares, back, strict=True)) if shares else math.nan
        assert found.distance[row] == pytest.approx(distance, rel=1e-6, abs=1e-6, nan_ok=True)
        best = sorted(weights.values(), reverse=True)[:COUNT]
        assert found.largest[row][: len(best)] == pytest.approx(best, abs=1e-6)
        assert [weights[key] for key in found.keys[row][: len(best)]] == pytest.approx(best, abs=1e-6)
        assert (found.keys[row][len(best) :] == NO_KEY).all()
        assert np.isnan(found.largest[row][len(best) :]).all()
    for key, column in enumerate(shown.T):
        given_to = [weight for weight in column if weight > MASKED]
        mean = math.fsum(given_to) / len(given_to) if given_to else math.nan
        assert found.received[key] == pytest.approx(mean, abs=1e-6, nan_ok=True)
    for row, column in np.ndindex(level.rows, level.columns):
        covered = shown[row * level.per_row :, column * level.per_column :][: level.per_row, : level.per_column]
        # A weight between two shades may be rounded to either of them.
        nearest = {shade(float(covered.max()) * around) for around in (1 - 1e-5, 1, 1 + 1e-5)}
        assert found.picture[row, column] in nearest


@settings(max_examples=25)
@given(
    drawn_specs(),
    drawn_calls().filter(lambda call: call.form == "heads"),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 14, 1000]),
)
def test_one_pass_is_the_whole_matrix(
    spec: AttentionSpec, call: Call, per_row: int, per_column: int, cells: int
) -> None:
    inputs = call.inputs(spec)
    right = run_stages(spec, inputs)
    level = Level(-(-call.query_len // per_row), -(-call.key_len // per_column), per_row, per_column)
    sequence = call.seed % 2
    first = spec.offset_for(call.query_len, call.key_len)
    heads = computed_heads(spec, inputs, sequence=sequence)
    assert len(heads) == spec.num_heads
    for at in {0, spec.num_heads - 1}:
        shown = shown_by(right.weights[sequence, at], right.may_attend[sequence, at])
        found = summary_of(heads[at], level, first, cells)
        hold(found, shown, level, np.arange(call.query_len) + first)
        assert heads[at].value == pytest.approx(right.value[sequence, at])


@given(st.integers(1, 99), st.integers(1, 150), st.integers(0, 2**32 - 1), st.sampled_from([1, 64, 1000]))
@settings(max_examples=10)
def test_given_weights_of_any_size(query_len: int, key_len: int, seed: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(key_len, 0.2), size=query_len).astype(np.float32)
    hidden = rng.random(weights.shape) < 0.3
    weights[hidden] = np.nan
    level = Level.of(query_len, key_len, 32)
    found = summary_of(given_heads(weights)[0], level, -2, cells)
    hold(found, np.where(hidden, MASKED, weights), level, np.arange(query_len) - 2)


def test_a_sample_of_the_queries() -> None:
    rng = np.random.default_rng(0)
    spec = AttentionSpec(num_heads=1, mask=Causal())
    inputs = Inputs(**{name: rng.normal(size=(1, 1, 50, 8)) for name in ("query", "key", "value")})
    right = run_stages(spec, inputs)
    queries = np.array([0, 3, 4, 5, 20, 31, 49])
    level = Level(4, 25, 2, 2)
    found = summary_of(computed_heads(spec, inputs)[0], level, 0, 100, queries)
    shown = np.where(right.may_attend, right.weights, MASKED)[0, 0]
    hold(found, shown[queries], level, queries)


def test_only_keys_that_may_be_attended_to_are_computed() -> None:
    inputs = Inputs(**{name: np.ones((1, 1, 1000, 2)) for name in ("query", "key", "value")})
    (head,) = computed_heads(AttentionSpec(num_heads=1, mask=Causal()), inputs)
    assert head.rows(slice(10, 20)).weights.shape == (10, 20)
