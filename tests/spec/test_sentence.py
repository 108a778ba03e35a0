"""The spec as one sentence: it reads well, and no two specs read the same."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given, strategies as st

from drawn import drawn_specs
from qkv.errors import SpecError
from qkv.masks import Causal, Documents, Prefix, SlidingWindow, Unexplained
from qkv.positions import Alibi, RelativeBias, Rope, RopeScaling
from qkv.spec import AttentionSpec, describe

NAMES = [field.name for field in dataclasses.fields(AttentionSpec)]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (AttentionSpec(), "1 head, scores times 1/sqrt(head_dim), no mask"),
        (
            AttentionSpec(mask=Unexplained()),
            "1 head, scores times 1/sqrt(head_dim), a mask that no one rule makes for all heads",
        ),
        (
            AttentionSpec(6, 2, 8, mask=Causal() & SlidingWindow(5), rope=Rope()),
            "6 query heads over 2 key/value heads of 8 channels, scores times 1/sqrt(8), causal within a window of 5 "
            "keys, rope on halves (base 10000)",
        ),
        (
            AttentionSpec(2, head_dim=8, value_dim=10, embed_dim=56, scale=0.25, softcap=50.0, mask=SlidingWindow(3)),
            "2 heads of 8 channels with values of 10 channels on tokens of 56 channels, scores times 0.25, scores "
            "capped at 50 by tanh, a window of 3 keys on each side, the query's own included",
        ),
        (
            AttentionSpec(
                2,
                mask=Causal() | Prefix(3),
                query_offset=4,
                alibi=Alibi((0.5, 1.0)),
                sinks=True,
                qk_norm="head",
                dropout_p=0.1,
                projection_bias=True,
                out_proj=False,
                empty_row="nan",
            ),
            "2 heads, biases on the projections, query and key normalised per head, scores times 1/sqrt(head_dim), "
            "causal after a prefix of 3 tokens that all queries see, first query at position 4, alibi with slopes 0.5, "
            "1, a sink per head, NaN for a query without keys, dropout 0.1 in training, no output projection",
        ),
        (
            AttentionSpec(mask=Causal() & Documents(), rope=Rope("adjacent", 5e5, 4, RopeScaling("yarn", 4, 4096))),
            "1 head, scores times 1/sqrt(head_dim), mask causal & documents, rope on adjacent (base 500000, first 4 "
            "channels, yarn scaling by 4 (original_length 4096))",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "spec",
)
def test_it_reads_like_this(spec: AttentionSpec, sentence: str) -> None:
    assert describe(spec) == str(spec) == sentence


@given(drawn_specs(), drawn_specs(), st.sampled_from(NAMES))
def test_one_field_changed_is_another_sentence(spec: AttentionSpec, other: AttentionSpec, name: str) -> None:
    try:
        changed = spec.but(**{name: getattr(other, name)})
    except SpecError:
        assume(False)
    assert (changed == spec) == (str(changed) == str(spec))


@given(drawn_specs(), drawn_specs())
def test_two_specs_are_two_sentences(spec: AttentionSpec, other: AttentionSpec) -> None:
    assert (other == spec) == (str(other) == str(spec))


def test_numbers_that_differ_late_read_differently() -> None:
    assert str(AttentionSpec(scale=0.1)) != str(AttentionSpec(scale=0.1 + 1e-16 * 2))
    assert str(AttentionSpec(rope=Rope(base=10000.0))) != str(AttentionSpec(rope=Rope(base=10000.0000001)))
    long = tuple(1 / n for n in range(1, 13))
    assert str(AttentionSpec(12, alibi=Alibi(long))) != str(AttentionSpec(12, alibi=Alibi((*long[:-1], 0.1))))
    assert str(AttentionSpec(relative_bias=RelativeBias(((0.0, 1.0, 2.0),)))) != str(
        AttentionSpec(relative_bias=RelativeBias(((0.0, 1.0, 2.5),)))
    )
