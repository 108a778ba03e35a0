"""The design of sizes: any two values meet, and the sizes are those that the candidate may be given."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, strategies as st

from injected import function
from qkv.probes import Setting
from qkv.probes.covering import pairwise
from qkv.probes.sizes import DIMS, LENGTHS, Axes, axes_for, size_probe

FREE: frozenset[str] = frozenset()


def axes(stated: frozenset[str] = FREE, refused: frozenset[str] = FREE, **fields: object) -> Axes:
    case = function(**fields)
    return axes_for(Setting(case.spec, case.abilities), stated, refused)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_any_two_values_of_different_axes_meet(counts: list[int]) -> None:
    rows = pairwise([range(count) for count in counts])
    for (left, here), (right, there) in combinations(enumerate(counts), 2):
        assert {(row[left], row[right]) for row in rows} == set(product(range(here), range(there)))
    assert all(len(row) == len(counts) for row in rows)


def test_it_takes_hardly_more_rows_than_the_two_longest_axes() -> None:
    rows = pairwise([range(9), range(7), range(4), range(3), range(2), range(2)])
    assert len(rows) <= 9 * 7 + 3


def test_every_length_meets_every_head_dim_and_each_value_comes_early() -> None:
    sizes = axes(max_tokens=None).covered()
    assert {(size.key_len, size.head_dim) for size in sizes} == set(product(LENGTHS, DIMS))
    early = sizes[: len(LENGTHS) + len(DIMS)]
    assert {size.key_len for size in early} == set(LENGTHS)
    assert {size.head_dim for size in early} == set(DIMS)
    assert {size.memory for size in early} == {"contiguous", "strided", "expanded"}


def test_what_was_stated_or_refused_is_not_varied() -> None:
    stated = axes(frozenset({"head_dim", "value_dim", "num_heads"}))
    assert (list(stated.head_dims), list(stated.values), list(stated.heads)) == ([8], ["same"], [(6, 2)])
    refused = axes(refused=frozenset({"fewer-queries", "value-dim", "strided"}))
    assert (list(refused.queries), list(refused.values)) == (["as many", "more"], ["same"])
    assert "strided" not in refused.memories


def test_more_sizes_are_tried_where_they_are_asked_for() -> None:
    case = function(max_tokens=None)
    usual, more = (axes_for(Setting(case.spec, case.abilities), FREE, FREE, more=more) for more in (False, True))
    assert len(more.covered()) > 2 * len(usual.covered())


def test_causal_queries_are_never_more_than_keys() -> None:
    assert all(size.query_len <= size.key_len for size in axes(causal=True).covered())
    assert any(size.query_len > size.key_len for size in axes().covered())


def test_one_slope_for_each_head_fixes_the_heads() -> None:
    assert {(size.num_heads, size.num_kv_heads) for size in axes(alibi=True).covered()} == {(6, 2)}


def test_a_probe_has_the_size_it_was_made_for() -> None:
    case = function()
    for size in axes().covered()[::7]:
        inputs = size_probe(Setting(case.spec, case.abilities), size).inputs
        assert inputs.query is not None
        assert inputs.key is not None
        assert inputs.value is not None
        assert inputs.query.shape == (size.batch, size.num_heads, size.query_len, size.head_dim)
        assert inputs.key.shape == (size.batch, size.num_kv_heads, size.key_len, size.head_dim)
        assert inputs.value.shape == (size.batch, size.num_kv_heads, size.key_len, size.value_dim)
        assert (inputs.key[:1] == inputs.key).all() == (size.memory == "expanded" or size.batch == 1)
