"""Rules for sizes: what fits is found, simple before joined, and the size that tells two rules apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from qkv.probes.sizes import Size
from qkv.size_rules import bounding, fitting, telling

ONE = Size(1, 1, 1, 4, 4, 8, 8)


def seen(wrong: Callable[[Size], bool], sizes: Iterable[Size]) -> dict[Size, bool]:
    return {size: wrong(size) for size in sizes}


def grid() -> list[Size]:
    lengths = (2, 16, 32, 33, 48, 63, 64, 65, 96, 100, 128, 129, 200)
    return [
        replace(ONE, batch=batch, query_len=query_len, key_len=key_len, head_dim=dim, value_dim=dim)
        for key_len in lengths
        for query_len in (1, key_len // 2, key_len)
        for dim in (8, 20, 128, 256)
        for batch in (1, 3)
    ]


def test_the_simplest_rule_that_fits_comes_first() -> None:
    def words(wrong: Callable[[Size], bool]) -> str:
        return fitting(seen(wrong, grid()))[0].words

    assert words(lambda size: size.key_len % 64 != 0) == "key_len is no multiple of 64"
    assert words(lambda size: size.query_len == 1) == "query_len is 1"
    assert words(lambda size: size.query_len < size.key_len) == "query_len < key_len"
    assert words(lambda size: size.batch > 1) == "batch > 1"
    joined = words(lambda size: size.key_len > 64 and size.key_len % 64 != 0)
    assert joined == "key_len > 64 and key_len is no multiple of 64"


def test_what_cannot_show_with_one_key_is_not_counted_there() -> None:
    wrong = seen(
        lambda size: size.head_dim > 128 and size.key_len > 1, [*grid(), replace(ONE, key_len=1, head_dim=256)]
    )
    assert all(rule.words.startswith("head_dim >") for rule in fitting(wrong) if "value" not in rule.words)


def test_nothing_fits_where_nothing_or_everything_is_wrong_or_it_is_by_chance() -> None:
    assert fitting(seen(lambda size: False, grid())) == []
    assert fitting(seen(lambda size: True, grid())) == []
    assert fitting({size: place % 3 == 0 for place, size in enumerate(grid())}) == []


def test_the_next_size_is_one_on_which_the_rules_disagree() -> None:
    rules = fitting(seen(lambda size: size.key_len > 64, [replace(ONE, key_len=n) for n in (16, 64, 100)]))
    pool = [replace(ONE, key_len=length) for length in range(1, 130)]
    told = telling(rules, pool)
    assert told is not None
    assert 64 < told.key_len < 100
    assert telling(rules[:1], pool) is None


def test_a_bound_is_said_where_a_fault_shows_with_some_numbers_only() -> None:
    wrong = {size: size.key_len > 64 and place % 5 != 0 for place, size in enumerate(grid())}
    bound = bounding(wrong)
    assert bound is not None
    assert bound.words == "key_len > 64"
    assert bounding({size: place % 7 == 0 for place, size in enumerate(grid())}) is None
