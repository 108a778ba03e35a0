"""The stages and the slow loop are two derivations of one thing. Whatever the spec, they agree."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings

from drawn import Call, drawn_calls, drawn_specs
from qkv.masks import Causal, Everything, SlidingWindow
from qkv.oracle import Inputs, run_stages
from qkv.oracle.one_token import alibi_slope, all_tokens, one_token, turned
from qkv.positions import Alibi, Rope, RopeScaling, rotate
from qkv.spec import AttentionSpec


@settings(max_examples=40, deadline=None)
@given(drawn_specs(), drawn_calls())
@example(AttentionSpec(6, 2, rope=None, mask=Causal() & SlidingWindow(2)), Call("tokens"))
def test_the_stages_and_the_slow_loop_agree(spec: AttentionSpec, call: Call) -> None:
    inputs = call.inputs(spec)
    np.testing.assert_allclose(all_tokens(spec, inputs), run_stages(spec, inputs).output, rtol=1e-12, atol=1e-12)


def test_one_context_vector_by_hand() -> None:
    """The article's sums: weights 1/4 and 3/4, so the context is a quarter of one value and three of the other."""
    inputs = Inputs(
        query=np.array([[[[1.0, 0.0]]]]),
        key=np.array([[[[0.0, 7.0], [np.log(3.0), 5.0]]]]),
        value=np.array([[[[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]]]]),
    )
    assert one_token(AttentionSpec(scale=1.0), inputs, batch=0, query=0) == pytest.approx([1.0, 3.0, 8.0], abs=1e-15)


@pytest.mark.parametrize("empty_row", ["zero", "nan", "uniform"])
@pytest.mark.parametrize("sinks", [False, True])
def test_a_row_without_keys(empty_row: str, sinks: bool) -> None:
    """A row that has a sink is not empty: the sink takes all the weight, whatever the rule for empty rows."""
    spec = AttentionSpec(2, mask=~Everything(), sinks=sinks, empty_row=empty_row)
    inputs = Call(query_len=3).inputs(spec)
    every_value = np.tile(inputs.value.mean(axis=2).reshape(2, 1, -1), (1, 3, 1))
    expected = {"zero": 0 * every_value, "nan": np.nan * every_value, "uniform": every_value}[empty_row]
    expected = np.zeros_like(every_value) if sinks else expected
    np.testing.assert_allclose(run_stages(spec, inputs).output, expected, atol=1e-15)
    np.testing.assert_allclose(all_tokens(spec, inputs), expected, atol=1e-15)


def test_a_bias_of_minus_infinity_hides_a_key() -> None:
    spec = AttentionSpec(2)
    inputs = Call(query_len=3, key_len=3).inputs(spec)
    hides = np.array([[0.0, -np.inf, 0.0], [0.0, 0.0, 0.0], [-np.inf, -np.inf, -np.inf]])
    for way in (lambda given: run_stages(spec, given).output, lambda given: all_tokens(spec, given)):
        expected = way(inputs.but(may_attend=np.isfinite(hides)))
        np.testing.assert_allclose(way(inputs.but(bias=hides)), expected, atol=1e-15)


SCALINGS = [
    None,
    RopeScaling("linear", 3.5),
    *(RopeScaling("llama3", 3.5, length, 0.5, fast) for length in (8, 64, 1000) for fast in (4.0, 9.0)),
    *(
        RopeScaling("yarn", factor, length, beta_fast=fast, beta_slow=slow, truncate=truncate)
        for factor, length, fast, slow, truncate in product(
            (3.5, 0.8), (8, 64, 1000), (32.0, 3.0), (1.0, 0.3), (True, False)
        )
    ),
]


@pytest.mark.parametrize("pairing", ["halves", "adjacent"])
def test_a_vector_turns_alike_by_products_of_complex_numbers_and_by_sines(pairing: str) -> None:
    """All scalings, all parts of their ramps; a score alone could hide a slow pair."""
    vector, at = np.random.default_rng(0).normal(size=20), 11
    for scaling, dims in product(SCALINGS, (None, 14)):
        rope = Rope(pairing, 500.0, dims, scaling)
        frequencies = np.array(rope.frequencies(len(vector)))
        expected = rotate(vector, np.array(at), frequencies, rope.pairing, rope.attention_factor)
        np.testing.assert_allclose(
            turned(vector.tolist(), at, rope), expected, rtol=1e-13, atol=1e-13, err_msg=str(rope)
        )


def test_alibi_slopes_for_any_number_of_heads() -> None:
    for num_heads in range(1, 70):
        slopes = [alibi_slope(head, num_heads) for head in range(num_heads)]
        assert slopes == pytest.approx(Alibi().slopes_for(num_heads), rel=1e-15)
