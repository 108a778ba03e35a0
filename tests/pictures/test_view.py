"""A view says what can't be shown, and its page shows the rest whatever tokens and titles hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pictured import floats, heads
from qkv.errors import CandidateError, ShapeError
from qkv.masks import Causal
from qkv.oracle import Inputs
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads, given_heads
from qkv.spec import AttentionSpec

HOSTILE = "<script>alert(1)</script>"


def view(weights: Any, **more: Any) -> AttentionView:
    return AttentionView(layers=[LayerWeights("layer 0", given_heads(np.asarray(weights)))], **more)


def test_one_token() -> None:
    payload = view([[1.0]], tokens=["a"]).payload()
    assert (payload["query_tokens"], payload["key_tokens"]) == (None, ["a"])
    assert floats(heads(payload)[0]["entropy"]).tolist() == [0]


def test_tokens_of_queries_are_those_of_the_keys_at_their_positions() -> None:
    last = np.full((2, 4), 0.25)
    assert view(last, tokens="abcd").texts == (["c", "d"], ["a", "b", "c", "d"])
    assert view(last, tokens="abcd", query_offset="top_left").texts[0] == ["a", "b"]
    assert view(last, tokens="abcd", query_offset=3).texts[0] is None
    assert view(last, tokens="abcd", query_tokens="xy").texts[0] == ["x", "y"]
    assert view(last).texts == (None, None)
    inputs = Inputs(**{name: np.ones((1, 1, length, 2)) for name, length in (("query", 2), ("key", 4), ("value", 4))})
    (head,) = computed_heads(AttentionSpec(query_offset=1), inputs)
    assert AttentionView(layers=[LayerWeights("a", [head])], tokens="abcd").texts[0] == ["b", "c"]


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([], "no layer has a head"),
        ([LayerWeights("a", ())], "no layer has a head"),
        ([LayerWeights("a", given_heads(np.ones((0, 3, 3))))], "no layer has a head"),
        ([LayerWeights("a", given_heads(np.ones((0, 3))))], r"\(query_len, key_len\) is \(0, 3\)"),
        ([LayerWeights("a", given_heads(np.ones((2, 0))))], r"\(query_len, key_len\) is \(2, 0\)"),
        (
            [LayerWeights("a", given_heads(np.ones((1, 1)))), LayerWeights("b", given_heads(np.ones((2, 2))))],
            r"these have \(1, 1\), \(2, 2\)",
        ),
    ],
)
def test_nothing_to_show(layers: list[LayerWeights], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        AttentionView(layers=layers)


def test_tokens_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="there are 3 tokens for 2 keys; give one for each"):
        view(np.ones((1, 2)), tokens="abc")
    with pytest.raises(ShapeError, match="there are 3 query_tokens for 1 queries; give one for each"):
        view(np.ones((1, 2)), query_tokens="abc")


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"of one sequence of the batch"):
        given_heads(np.ones((1, 2, 3, 3)))
    with pytest.raises(
        ShapeError, match=r"may_attend is \(2, 2\), which doesn't broadcast to the weights' \(1, 3, 3\)"
    ):
        given_heads(np.ones((3, 3)), may_attend=np.ones((2, 2), bool))
    with pytest.raises(ShapeError, match=r"value is \(1, 4, 2\); give \(num_kv_heads, key_len, value_dim\)"):
        given_heads(np.ones((3, 3)), value=np.ones((4, 2)))
    with pytest.raises(ShapeError, match="there are 1 names for 2 heads"):
        given_heads(np.ones((2, 3, 3)), names=["a"])
    with pytest.raises(CandidateError, match="weights holds complex128 values"):
        given_heads(np.ones((3, 3), complex))
    with pytest.raises(CandidateError, match="weights is on the meta device"):
        given_heads(torch.ones(3, 3, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors(dtype: torch.dtype) -> None:
    weights = torch.tensor([[0.25, 0.75]], dtype=dtype, requires_grad=True)
    assert (
        floats(heads(AttentionView(layers=[LayerWeights("a", given_heads(weights))]).payload())[0]["exact"])[1] == 0.75
    )
    inputs = Inputs(**{name: torch.ones(1, 1, 4, 2, dtype=dtype) for name in ("query", "key", "value")})
    (head,) = computed_heads(AttentionSpec(mask=Causal()), inputs)
    assert head.rows(slice(3, 4)).weights.tolist() == [[0.25] * 4]


def test_a_mask_and_values_of_a_group() -> None:
    value = np.arange(12.0).reshape(2, 3, 2)
    found = given_heads(np.full((4, 3, 3), 1 / 3), may_attend=Causal(), value=value, names="abcd")
    assert (found[1].rows(slice(None)).may_attend == np.tri(3)).all()
    assert [head.name for head in found] == list("abcd")
    assert [float(head.value[0, 0]) for head in found] == [0, 0, 6, 6]  # type: ignore[index]


def test_the_page_escapes_everything() -> None:
    shown = view(np.full((2, 2), 0.5), title=HOSTILE, tokens=[HOSTILE, "a\u2028"], notes=[HOSTILE])
    page = shown.html()
    assert HOSTILE not in page
    (data,) = re.findall(r'class="qkv-data" data-place="attention">(.*?)</script>', page)
    payload = json.loads(data)
    assert payload["key_tokens"] == [HOSTILE, "a\u2028"]
    assert payload["title"] == HOSTILE
    assert 'id="attention"' in page


def test_half_a_character(tmp_path: Path) -> None:
    """Tokenizers of bytes give them, and UTF-8 can't hold them."""
    page = view([[1.0]], tokens=["\ud800"], title="\ud800").save(tmp_path / "show.html").read_text("utf-8")
    (data,) = re.findall(r'class="qkv-data" data-place="attention">(.*?)</script>', page)
    assert json.loads(data)["key_tokens"] == ["\ud800"]
    assert "<title>?</title>" in page


def test_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    path = view([[1.0]]).save(tmp_path / "show.html")
    assert path.read_text("utf-8").startswith("<!doctype html>")

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        view([[1.0]], title="the second one").save(path, stop)
    assert "the second one" not in path.read_text("utf-8")
    assert [one.name for one in tmp_path.iterdir()] == ["show.html"]


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    frame = view([[1.0]], title='a "b"')._repr_html_()
    assert frame.count("<iframe ") == 1
    assert "<script" not in frame
    assert 'title="a &#34;b&#34;"' in frame


@pytest.mark.slow
def test_the_first_view_of_4096_tokens() -> None:
    rng = np.random.default_rng(0)
    inputs = Inputs(**{name: rng.normal(size=(1, 1, 4096, 64)) for name in ("query", "key", "value")})
    layers = [LayerWeights("layer 0", computed_heads(AttentionSpec(mask=Causal()), inputs))]
    page = AttentionView(layers=layers, tokens=[f"token {at}" for at in range(4096)]).html()
    first, _, _ = page.partition('class="qkv-detail"')
    assert len(first.encode()) < 500_000 < len(page)
