"""The mask that identify reads, drawn: the picture is the mask's own table, and the words are those of one row."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from qkv.masks import parse_mask
from qkv.masks.per_head_mask import PerHead
from qkv.report import CandidateWords
from qkv.report.html import identity_to_html
from qkv.report.identity import Identity
from qkv.report.identity_form import identity_text
from qkv.report.seen import seen_of
from qkv.spec import AttentionSpec


def identity(mask: str) -> Identity:
    return Identity(CandidateWords("f"), spec=AttentionSpec(num_heads=2, mask=parse_mask(mask)))


@pytest.mark.parametrize("mask", ["causal(1)", "causal & window(4)", "causal & window(6) | prefix(2)", "window(3)"])
def test_a_small_mask_is_drawn_pair_by_pair(mask: str) -> None:
    (seen,) = seen_of(identity(mask))
    table = parse_mask(mask).dense(12, 12)
    assert seen.drawn.splitlines() == ["".join(".#"[int(sees)] for sees in row) for row in table]
    assert seen.name == "12 tokens"


def test_a_query_is_told_in_words() -> None:
    assert seen_of(identity("causal(1)"))[0].said == "query 9 may attend to keys 0 to 10"
    assert seen_of(identity("causal & window(2) | prefix(1)"))[0].said == "query 9 may attend to keys 0, 8 to 9"


def test_a_wide_window_is_drawn_large_enough_to_be_seen() -> None:
    (seen,) = seen_of(identity("causal & window(100)"))
    assert seen.name == "208 tokens, each cell 13 by 13"
    rows = seen.drawn.splitlines()
    assert len(rows) == len(rows[0]) == 16
    assert rows[-1].startswith(".....")
    assert {"#", "+", "."} == set(seen.drawn) - {"\n"}


def test_heads_that_see_the_same_are_drawn_once_and_no_mask_not_at_all() -> None:
    assert seen_of(identity("everything")) == seen_of(identity("causal & documents")) == []
    mask = PerHead((parse_mask("causal"), parse_mask("window(3)"), parse_mask("causal"), parse_mask("everything")))
    found = seen_of(Identity(CandidateWords("f"), spec=AttentionSpec(num_heads=4, mask=mask)))
    assert [one.name for one in found] == ["heads 0, 2, 12 tokens", "heads 1, 12 tokens"]


def test_the_terminal_and_the_page_draw_it() -> None:
    text = identity_text(identity("causal(1)"), Console(file=io.StringIO(), width=80))
    assert "  mask      12 tokens: query 9 may attend to keys 0 to 10\n            ##..........\n" in text
    page = identity_to_html(identity("causal & window(100)"))
    assert "Query 156 may attend to keys 57 to 156." in page
    assert page.count('<span class="only-heard">key</span> 195</th>') == 1, "the first key of the last cell"
    assert page.count('class="partly"') == seen_of(identity("causal & window(100)"))[0].drawn.count("+")
