"""What heads look at: the scores are those of the embedded model's own functions, and heads are named by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rich.console import Console

import qkv
from qkv.captures import patterns
from qkv.captures.patterns import named, scores_of
from qkv.captures.summary import summary
from qkv.model import induction, previous_token, trace, vocabulary
from qkv.oracle import Inputs, run_stages
from qkv.pictures.view import AttentionView
from qkv.request import Request
from qkv.spec import AttentionSpec
from qkv.viewer import Wanted, captured

TEXT = "ben hill said honey rain gold bread . the parrot said honey rain gold"


def view_of(weights: Any, **more: Any) -> AttentionView:
    return captured(Request(np.asarray(weights, dtype=float)), Wanted(**more))


def test_scores_are_those_of_the_models_own_functions() -> None:
    numbers = vocabulary().tokens(TEXT)
    scores = scores_of(captured(Request(None), Wanted(text=TEXT)))
    weights = np.stack([run.weights[0] for run in trace(numbers)])
    ours = {name: np.reshape([one.shares[name] for one in scores], (2, 4)) for name in scores[0].shares}
    np.testing.assert_allclose(ours["previous token"], previous_token(weights), atol=1e-9)
    np.testing.assert_allclose(ours["induction"], induction(weights, numbers), atol=1e-9)
    np.testing.assert_allclose(ours["first token"], weights[:, :, 1:, 0].mean(-1), atol=1e-9)
    itself = np.diagonal(weights, axis1=-2, axis2=-1)[..., 1:].mean(-1)  # the first token can look at nothing else
    np.testing.assert_allclose(ours["itself"], itself, atol=1e-9)


def test_the_embedded_model_shows_a_previous_token_head_and_induction_heads() -> None:
    names = [head.name for head in qkv.show().heads]
    assert names[0].startswith("head 0: previous token 0.")
    assert [name.split(": ")[-1][:9] for name in names[6:]] == ["induction"] * 2


def shifted(length: int, by: int) -> Any:
    """Each query looks at the key so far from it, and the others at the first key."""
    weights = np.zeros((length, length))
    for query in range(length):
        weights[query, query + by if 0 <= query + by < length else 0] = 1.0
    return weights + np.where(weights > 0, 0.0, 1e-9)


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        (shifted(12, -1), "previous token"),
        (shifted(12, 1), "next token"),
        (shifted(12, 0), "itself"),
        (shifted(12, -12), "first token"),
        (np.full((12, 12), 1 / 12), "evenly"),
    ],
)
def test_a_head_is_called_by_what_it_looks_at(weights: Any, name: str) -> None:
    view = view_of(weights)
    scores = scores_of(view)
    assert named(view, scores).heads[0].name == f"head 0: {name} 1.00"
    assert scores[0].shares[name] == pytest.approx(1.0, abs=1e-6)


def test_random_attention_is_called_by_nothing() -> None:
    rng = np.random.default_rng(0)
    view = qkv.show(*rng.normal(size=(2, 1, 8, 10, 16)), spec={"causal": True})
    assert "looks at" not in summary(view, scores_of(view), Console(width=100))


def test_few_queries_name_no_head() -> None:
    view = view_of(shifted(5, -1))
    assert named(view, scores_of(view)).heads[0].name == "head 0"


def test_induction_needs_a_token_that_comes_twice() -> None:
    weights = np.full((9, 9), 1 / 9)
    assert "induction" not in scores_of(view_of(weights))[0].shares
    assert "induction" not in scores_of(view_of(weights).but(tokens=list("abcdefghi")))[0].shares
    assert scores_of(view_of(weights).but(tokens=list("abcabcabc")))[0].shares["induction"] > 0


def test_weights_that_come_from_fewer_queries_than_keys_are_counted_at_their_positions() -> None:
    view = view_of(shifted(20, -1)[8:])  # the last 12 queries of 20
    assert scores_of(view)[0].shares["previous token"] == pytest.approx(1.0, abs=1e-6)


def test_of_many_weights_some_queries_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 1, 1, 400, 8))
    spec = AttentionSpec(mask=qkv.causal())
    run = run_stages(spec.but(out_proj=False), Inputs(query=query, key=key, value=key))
    whole = scores_of(qkv.show(query, key, spec={"causal": True}))[0].shares
    assert whole["previous token"] == pytest.approx(float(previous_token(run.weights)[0, 0]))
    monkeypatch.setattr(patterns, "MOST_WEIGHTS", 40_000)
    part = scores_of(qkv.show(query, key, spec={"causal": True}))[0].shares
    assert part != whole
    assert all(part[name] == pytest.approx(whole[name], abs=0.05) for name in whole)
