"""Which edits are tried first."""

from __future__ import annotations

from itertools import islice

from qkv.repair.code import Code
from qkv.repair.search import Suspicion, changes

SOURCE = b"""import torch


def attend(q, k, v):
    return torch.softmax(q @ k.mT, -1) @ v


def attention(x, w_q, w_k, w_v):
    queries = x @ w_q
    keys = x @ w_k
    values = x @ w_v
    return attend(queries, values, keys)
"""


def test_the_call_that_is_blamed_is_mended_before_what_it_hands_over() -> None:
    code = Code(SOURCE)
    line = SOURCE[: SOURCE.index(b"    return attend")].count(b"\n") + 1
    first = list(islice(changes(code, Suspicion("attention", ["key-value-swapped"], line)), 4))
    assert all(code.line_of(edit.start) == line for change in first for edit in change.edits)
    assert any(b"attend(queries, keys, values)" in (code.edited(change.edits) or b"") for change in first)


WINDOWED = b"""def attention(q, k, v):
    i, j = positions(q, k)
    mask = (j <= i) & (i - j < 4)
    return attend(q, k, v, mask)
"""


def test_a_window_in_excess_is_taken_away_and_never_turned_until_it_holds_always() -> None:
    code = Code(WINDOWED)
    suspicion = Suspicion("attention", ["window-layers-swapped"], 3)
    edited = [code.edited(change.edits) or b"" for change in changes(code, suspicion)]
    assert any(b"mask = j <= i\n" in source or b"mask = (j <= i)\n" in source for source in edited[:4])
    assert not any(b"(j - i < 4)" in source for source in edited)
    turned = [
        code.edited(change.edits) or b"" for change in changes(code, Suspicion("attention", ["causal-inverted"], 3))
    ]
    assert any(b"(j - i < 4)" in source for source in turned)


CASTING = b"""import torch


class Attention(torch.nn.Module):
    def __init__(self):
        self.cache = torch.zeros(4, 8)

    def forward(self, q, k, v):
        self.cache = self.cache.to(q)
        pairs = torch.view_as_complex(q)
        q = pairs * turns.conj()
        return torch.softmax(q @ k.mT * self.cache, -1) @ v
"""


def test_an_attribute_that_is_set_from_itself_is_looked_up_once() -> None:
    code = Code(CASTING)
    edited = [code.edited(change.edits) or b"" for change in changes(code, Suspicion("Attention", ["causal-missing"]))]
    assert edited


def test_what_is_conjugated_for_nothing_is_mended_first() -> None:
    code = Code(CASTING)
    line = CASTING[: CASTING.index(b"        q = pairs")].count(b"\n") + 1
    first = next(iter(changes(code, Suspicion("Attention", ["rope-sign"], line))))
    assert b"q = pairs * turns\n" in (code.edited(first.edits) or b"")


GROUPED = b"""from einops import rearrange


def attention(q, k, v):
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=4) for t in (q, k, v))
    return rearrange(attend(q, k, v), 'b h n d -> b n (d h)')
"""


def test_the_names_in_brackets_of_a_pattern_change_places() -> None:
    code = Code(GROUPED)
    first = next(iter(changes(code, Suspicion("attention", ["heads-merged-interleaved"], 6))))
    assert code.edited(first.edits) == GROUPED.replace(b"(d h)", b"(h d)")
