"""What a mask says of a stretch of queries at once, against its truth table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drawn import drawn_masks
from qkv.masks import Mask, Positions, Ranges, Span, causal, documents, padding, parse_mask, per_head, rule, window

SPANS = st.builds(
    lambda query, queries, key, keys: Span(query, query + queries - 1, key, key + keys - 1),
    st.integers(-3, 12), st.integers(1, 6), st.integers(-2, 12), st.integers(1, 9),
)  # fmt: skip


def table(mask: Mask, span: Span, **more: np.ndarray) -> np.ndarray:
    """The truth table of the span, ``(batch * head * query, key)``."""
    query = np.arange(span.first_query, span.last_query + 1)[None, None, :, None]
    key = np.arange(span.first_key, span.last_key + 1)[None, None, None, :]
    allows = mask.allows(Positions(query, key, **more))
    return np.broadcast_to(allows, np.broadcast_shapes(allows.shape, (1, 1, query.size, key.size))).reshape(
        -1, key.size
    )


def marked(ranges: Ranges, span: Span) -> np.ndarray:
    """The span's keys that are in the ranges, which have to be in order and apart."""
    edges = [edge for one in ranges for edge in one]
    assert edges == sorted(set(edges)), ranges
    assert all(span.first_key <= edge <= span.last_key + 1 for edge in edges), ranges
    keys = range(span.first_key, span.last_key + 1)
    return np.array([any(start <= key < stop for start, stop in ranges) for key in keys])


@given(drawn_masks(), SPANS)
def test_all_queries_see_every_and_none_sees_more_than_some(mask: Mask, span: Span) -> None:
    allows, reach = table(mask, span), mask.reach(span)
    assert not (marked(reach.every, span) & ~allows.all(axis=0)).any()
    assert not (allows.any(axis=0) & ~marked(reach.some, span)).any()


EXACT = [
    "causal", "causal(2)", "window(3)", "prefix(4)", "global_tokens(3)", "everything", "documents", "padding",
    "causal & window(3)", "causal(-1) & window(4)", "~causal", "~window(2)", "~(causal & window(3))",
]  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
@given(SPANS, st.integers(-3, 3))
def test_of_these_masks_exactly_the_keys_are_known(text: str, span: Span, moved: int) -> None:
    for mask in (parse_mask(text), parse_mask(text).shifted(moved)):
        exact(mask, span)


def exact(mask: Mask, span: Span, **more: np.ndarray) -> None:
    """Fails unless the mask says exactly which keys all, and which some of all rows see."""
    allows, reach = table(mask, span, **more), mask.reach(span, Positions(0, 0, **more))
    assert (marked(reach.every, span) == allows.all(axis=0)).all()
    assert (marked(reach.some, span) == allows.any(axis=0)).all()


def ids(tokens: int) -> st.SearchStrategy[list[int]]:
    """Documents of a sequence, which may come back."""
    return st.lists(st.integers(0, 2), min_size=tokens, max_size=tokens)


@given(ids(9), ids(9), SPANS)
def test_documents_are_known_exactly_also_where_they_come_back(one: list[int], other: list[int], span: Span) -> None:
    exact(documents(one), span)
    exact(documents(one).shifted(2), span)
    exact(~documents(one), span)
    allows, reach = table(documents([one, other]), span), documents([one, other]).reach(span)
    assert not (marked(reach.every, span) & ~allows.all(axis=0)).any()
    assert (marked(reach.some, span) == allows.any(axis=0)).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), SPANS)
def test_padding_is_known_exactly(lengths: list[int], span: Span) -> None:
    exact(padding(lengths), span)
    exact(padding(lengths, queries=True), span)


@given(ids(9), st.integers(0, 4), st.integers(1, 4), st.integers(0, 4), st.integers(1, 4))
def test_what_is_read_from_positions_is_known_exactly(
    document: list[int], query: int, queries: int, key: int, keys: int
) -> None:
    both = np.array([document, document[::-1]])
    span = Span(query, query + queries - 1, key, key + keys - 1)
    of_query, of_key = both[:, None, query : query + queries, None], both[:, None, None, key : key + keys]
    exact(parse_mask("documents"), span, query_document=of_query, key_document=of_key)
    exact(parse_mask("documents").shifted(1), span, query_document=of_query, key_document=of_key)
    exact(parse_mask("padding"), span, key_is_token=of_key > 0)


@given(SPANS)
def test_masks_of_several_heads_are_known_as_those_of_each(span: Span) -> None:
    exact(per_head([causal(), causal() & window(2), causal()]), span)
    by_itself = rule(lambda query, key: (query * key) % 3 == 0)
    reach = by_itself.reach(span)
    assert (reach.every, reach.some) == ((), span.keys())


def test_a_document_that_comes_back_is_in_several_ranges() -> None:
    mask = documents([0, 0, 1, 0, 2, 2, 0])
    assert mask.reach(Span(0, 1, 0, 6)) == ((((0, 2), (3, 4), (6, 7))), ((0, 2), (3, 4), (6, 7)))
    assert mask.reach(Span(3, 5, 0, 6)) == ((), ((0, 2), (3, 7)))
    assert mask.reach(Span(2, 2, 0, 6)) == (((2, 3),), ((2, 3),))
    assert mask.reach(Span(7, 9, 0, 6)) == ((), ())


@pytest.mark.parametrize("text", ["causal", "window(4)", "causal & window(4)", "prefix(4) | causal", "~causal"])
def test_spans_far_from_the_edge_of_a_mask_are_known_throughout(text: str) -> None:
    mask = parse_mask(text)
    for span in (Span(100, 109, 0, 9), Span(10, 19, 100, 109)):
        reach = mask.reach(span)
        assert reach.every == reach.some
        assert reach.some in ((), span.keys())
    reach = mask.reach(Span(10, 19, 10, 19))
    assert reach.every != reach.some
