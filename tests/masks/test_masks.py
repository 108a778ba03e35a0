"""Every mask against the same rule written with plain numbers, one query and one key at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drawn import drawn_masks
from qkv.errors import SpecError
from qkv.masks import (
    MASKS,
    And,
    Causal,
    Dilated,
    Documents,
    Everything,
    GlobalTokens,
    Mask,
    Not,
    Or,
    Padding,
    PerHead,
    Positions,
    Prefix,
    Rule,
    Shifted,
    SlidingWindow,
    parse_mask,
)


@dataclass(frozen=True)
class Pair:
    """One query and one key, as a rule sees them."""

    query: int
    key: int
    same_document: bool
    key_is_token: bool


RULES: dict[str, Callable[[int], Callable[[Pair], bool]]] = {
    "causal": lambda ahead: lambda at: at.key - at.query <= ahead,
    "window": lambda size: lambda at: abs(at.query - at.key) <= size - 1,
    "prefix": lambda length: lambda at: at.key in range(length),
    "dilated": lambda step: lambda at: abs(at.key - at.query) in range(0, 1000, step),
    "global_tokens": lambda count: lambda at: min(at.key, at.query) < count,
    "documents": lambda _: lambda at: at.same_document,
    "padding": lambda _: lambda at: at.key_is_token,
    "everything": lambda _: lambda _: True,
}


def rule_of(mask: Mask) -> Callable[[Pair], bool]:
    """The mask's rule, told again from its text."""
    match mask:
        case And(left=left, right=right):
            a, b = rule_of(left), rule_of(right)
            return lambda at: a(at) and b(at)
        case Or(left=left, right=right):
            c, d = rule_of(left), rule_of(right)
            return lambda at: c(at) or d(at)
        case Not(of=of):
            inner = rule_of(of)
            return lambda at: not inner(at)
    name, _, number = str(mask).rstrip(")").partition("(")
    return RULES[name](int(number or 0))


def allowed(mask: Mask, query_len: int, key_len: int, offset: int, documents: bool, padded: bool) -> np.ndarray:
    """What the mask allows, ``(batch, query, key)``, for two sequences with documents and padding of their own."""
    document, is_token = numbered(key_len)
    inside = np.clip(np.arange(query_len) + offset, 0, key_len - 1)
    at = Positions(
        query=(np.arange(query_len) + offset)[None, None, :, None],
        key=np.arange(key_len)[None, None, None, :],
        query_document=document[:, None, inside, None] if documents else None,
        key_document=document[:, None, None, :] if documents else None,
        key_is_token=is_token[:, None, None, :] if padded else None,
    )
    return np.broadcast_to(mask.allows(at), (2, 1, query_len, key_len))[:, 0]


def numbered(key_len: int) -> tuple[np.ndarray, np.ndarray]:
    keys = np.arange(key_len)
    return np.stack([keys // 2, keys // 3]), np.stack([keys < key_len - 1, keys > 1])


@given(drawn_masks(), st.integers(1, 6), st.integers(1, 8), st.integers(-2, 5), st.booleans(), st.booleans())
def test_a_mask_allows_what_its_rule_says(
    mask: Mask, query_len: int, key_len: int, offset: int, documents: bool, padded: bool
) -> None:
    document, is_token = numbered(key_len)
    rule = rule_of(mask)
    got = allowed(mask, query_len, key_len, offset, documents, padded)
    for batch, query, key in np.ndindex(got.shape):
        standing = min(max(query + offset, 0), key_len - 1)
        pair = Pair(
            query=query + offset,
            key=key,
            same_document=not documents or document[batch, standing] == document[batch, key],
            key_is_token=not padded or bool(is_token[batch, key]),
        )
        assert got[batch, query, key] == rule(pair), pair


DRAWN = {
    "causal": ["1000", "1100", "1110", "1111"],
    "causal(1)": ["1100", "1110", "1111", "1111"],
    "causal(-1)": ["0000", "1000", "1100", "1110"],
    "window(2)": ["1100", "1110", "0111", "0011"],
    "causal & window(2)": ["1000", "1100", "0110", "0011"],
    "causal & window(2) | prefix(1)": ["1000", "1100", "1110", "1011"],
    "causal | prefix(2)": ["1100", "1100", "1110", "1111"],
    "causal & dilated(2)": ["1000", "0100", "1010", "0101"],
    "causal & window(1) | global_tokens(1)": ["1111", "1100", "1010", "1001"],
    "~causal": ["0111", "0011", "0001", "0000"],
    "~(causal & window(2))": ["0111", "0011", "1001", "1100"],
    "everything": ["1111"] * 4,
}


@pytest.mark.parametrize("text", DRAWN)
def test_masks_drawn_by_hand(text: str) -> None:
    picture = allowed(parse_mask(text), 4, 4, 0, documents=False, padded=False)[0].astype(int)
    assert ["".join(map(str, row)) for row in picture] == DRAWN[text]


def test_fewer_queries_than_keys_stand_at_the_end_or_the_beginning() -> None:
    at_the_end = allowed(Causal(), 2, 5, 3, documents=False, padded=False)[0].astype(int)
    at_the_start = allowed(Causal(), 2, 5, 0, documents=False, padded=False)[0].astype(int)
    assert at_the_end.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert at_the_start.tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


@given(drawn_masks())
def test_a_mask_reads_back_from_its_text(mask: Mask) -> None:
    assert parse_mask(str(mask)) == mask


def test_brackets_are_kept_where_python_would_read_from_the_left() -> None:
    a, b, c = Causal(), SlidingWindow(5), Prefix(3)
    for mask in (a & (b & c), (a & b) & c, a | (b | c), (a | b) | c, a & (b | c), (a | b) & c, ~(a | b), ~~a):
        assert parse_mask(str(mask)) == mask
    assert str((a & b) | c) == "causal & window(5) | prefix(3)"


def test_every_mask_has_a_name_in_expressions_and_a_rule_here() -> None:
    assert set(MASKS) == set(RULES)
    without_text = {And, Or, Not, Shifted, Rule, PerHead}
    single = {cls for cls in Mask.__subclasses__() if cls.__module__.startswith("qkv.masks.")} - without_text
    assert set(MASKS.values()) == single == {
        Causal, SlidingWindow, Prefix, Dilated, GlobalTokens, Documents, Padding, Everything,
    }  # fmt: skip


def test_parts_are_the_mask_and_all_it_is_made_of() -> None:
    mask = ~(Causal() & SlidingWindow(5)) | Documents()
    assert [str(part) for part in mask.parts()] == [
        "~(causal & window(5)) | documents", "~(causal & window(5))", "causal & window(5)", "causal", "window(5)",
        "documents",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("causl", "no mask is called 'causl'; did you mean 'causal'?"),
        ("causal &", "can't be read"),
        ("", "can't be read"),
        ("causal and window(3)", "is no mask; known: causal, window"),
        ("window", "window was given nothing; window, prefix, dilated and global_tokens take one whole number"),
        ("window(3, 4)", "window was given \\[3, 4\\]"),
        ("window(size=3)", "is no mask"),
        ("window(2.5)", "'2.5' should be a whole number"),
        ("window(True)", "'True' should be a whole number"),
        ("window(0)", "window is 0, and must be at least 1"),
        ("prefix(-1)", "prefix is -1, and must be 0 or more"),
        ("causal + prefix(1)", "'causal \\+ prefix\\(1\\)' is no mask"),
        ("__import__('os')", "no mask is called '__import__'|should be a whole number"),
        ("~" * 100_000 + "causal", "can't be read"),
        ("(" * 300 + "causal" + ")" * 300, "can't be read"),
    ],
)
def test_an_expression_that_is_none_says_so(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        parse_mask(text)
