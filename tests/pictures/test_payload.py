"""The payload holds what viewer/src/payload.ts says it holds, and no other numbers than those of the weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pictured import floats, heads, integers, picture, shade
from qkv.masks import Causal
from qkv.oracle import Inputs, run_stages
from qkv.pictures.attention import LayerWeights, Plan
from qkv.pictures.ranking import NO_KEY
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads, given_heads
from qkv.positions import Alibi
from qkv.spec import AttentionSpec

CONTRACT = Path(__file__).parents[2] / "viewer" / "src" / "payload.ts"
SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, mask=Causal(), softcap=5.0, alibi=Alibi())


def inputs(query_len: int, key_len: int, seed: int = 0) -> Inputs:
    rng = np.random.default_rng(seed)
    return Inputs(
        query=rng.normal(size=(1, 4, query_len, 8)),
        key=rng.normal(size=(1, 2, key_len, 8)),
        value=rng.normal(size=(1, 2, key_len, 3)),
    )


def view_of(query_len: int, key_len: int, **more: Any) -> AttentionView:
    layers = [LayerWeights(f"layer {at}", computed_heads(SPEC, inputs(query_len, key_len, at))) for at in range(2)]
    return AttentionView(layers=layers, **more)


def random_view(query_len: int, key_len: int, num_heads: int, **more: Any) -> AttentionView:
    weights = np.random.default_rng(0).dirichlet(np.ones(key_len), size=(num_heads, query_len))
    return AttentionView(layers=[LayerWeights("layer 0", given_heads(weights.astype(np.float32)))], **more)


def fields(interface: str) -> set[str]:
    """The names of an interface's fields, in the page's sources."""
    body = re.search(rf"interface {interface} \{{(.*?)\n\}}", CONTRACT.read_text("utf-8"), re.DOTALL)
    assert body
    return set(re.findall(r"^  (\w+)\??:", body[1], re.MULTILINE))


def test_the_fields_are_those_of_the_page() -> None:
    payload = view_of(5, 7).payload()
    assert set(payload) == fields("AttentionPayload")
    assert set(payload["levels"][0]) == fields("Level")
    assert set(heads(payload)[0]) == fields("Head")
    (_, *details) = parts_of(random_view(300, 300, 1, plan=Plan(first_view=0)))
    assert set(details[0]) == fields("Detail")
    json.dumps(payload, allow_nan=False)


def parts_of(view: AttentionView) -> list[dict[str, Any]]:
    """The first view's payload and the details, out of the page."""
    found = re.findall(r'<script type="application/json" class="qkv-(data|detail)"[^>]*>(.*?)</script>', view.html())
    assert [kind for kind, _ in found] == ["data"] + ["detail"] * (len(found) - 1)
    return [json.loads(text) for _, text in found]


def test_small_heads_are_exact_with_their_stages_and_values() -> None:
    payload = view_of(5, 7).payload()
    assert (payload["query_len"], payload["key_len"], payload["query_offset"]) == (5, 7, 2)
    assert [head["id"] for head in heads(payload)] == [f"{layer}.{head}" for layer in range(2) for head in range(4)]
    run = run_stages(SPEC, inputs(5, 7, seed=1))
    head = payload["layers"][1]["heads"][3]
    allowed = run.may_attend[0, 3]
    expected = np.where(allowed, run.weights[0, 3], np.nan)
    assert floats(head["exact"]).reshape(5, 7) == pytest.approx(expected, nan_ok=True, abs=1e-6)
    assert head["top"] is None
    assert head["value"]["dim"] == 3
    assert floats(head["value"]["numbers"]).reshape(7, 3) == pytest.approx(run.value[0, 3], abs=1e-6)
    stages = {stage["name"]: floats(stage["numbers"]).reshape(5, 7) for stage in head["stages"]}
    scores = inputs(5, 7, seed=1).query[0, 3] @ inputs(5, 7, seed=1).key[0, 1].T
    assert list(stages) == ["attn_scores", "scaled", "softcapped", "biased", "masked"]
    assert stages["attn_scores"] == pytest.approx(scores, abs=1e-5)
    assert stages["scaled"] == pytest.approx(scores / 8**0.5, abs=1e-5)
    assert (stages["masked"] == -np.inf).tolist() == (~allowed).tolist()
    assert stages["masked"][allowed] == pytest.approx(stages["biased"][allowed])
    shares = np.exp(stages["masked"])
    assert shares / shares.sum(axis=1, keepdims=True) == pytest.approx(np.nan_to_num(expected), abs=1e-5)
    assert picture(head["pictures"][0])[2, 4] == shade(float(expected[2, 4]))


def test_stages_that_do_nothing_are_left_out() -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2)
    view = AttentionView(layers=[LayerWeights("layer 0", computed_heads(spec, inputs(3, 3)))])
    assert [stage["name"] for stage in heads(view.payload())[0]["stages"]] == ["attn_scores", "scaled", "masked"]


def test_larger_heads_have_their_largest_weights() -> None:
    view = view_of(150, 150)
    for at, head in enumerate(heads(view.payload())):
        weights = run_stages(SPEC, inputs(150, 150, at // 4)).weights[0, at % 4]
        assert head["exact"] is None
        assert not head["stages"]
        count = head["top"]["count"]
        keys, found = (
            read(head["top"][name]).reshape(150, count) for read, name in ((integers, "keys"), (floats, "weights"))
        )
        assert (keys[0, 1:] == NO_KEY).all()  # the first query sees itself alone
        for row in (3, 70, 149):
            best = np.sort(weights[row])[::-1][: min(count, row + 1)]
            assert found[row][: len(best)] == pytest.approx(best, abs=1e-6)
            assert weights[row][keys[row][: len(best)]] == pytest.approx(best, abs=1e-6)


def test_what_is_seen_first_and_what_stands_behind() -> None:
    view = random_view(300, 300, 3, plan=Plan(first_view=60_000))
    first, *details = parts_of(view)
    whole = view.payload()
    assert [detail["id"] for detail in details] == ["0.0", "0.1", "0.2"]
    for head, behind, both in zip(heads(first), details, heads(whole), strict=True):
        assert head["pictures"][0]
        assert head["pictures"][-1] is None
        assert behind["pictures"][0] is None
        assert [a or b for a, b in zip(head["pictures"], behind["pictures"], strict=True)] == both["pictures"]
    seen = sum(len(uri) for head in heads(first) for uri in head["pictures"] if uri)
    assert seen <= 60_000
    assert len(details) == 3


def test_all_fits_into_the_room() -> None:
    weights = random_view(300, 300, 3)
    exact, small = weights.payload(), weights.but(plan=Plan(whole=270_000)).payload()
    assert not exact["notes"]
    assert len(json.dumps(small)) < 275_000 < len(json.dumps(exact))
    assert small["levels"][-1]["per_row"] == 1
    assert "within a factor of" in small["notes"][0]
    tiny = weights.but(plan=Plan(whole=0)).payload()
    assert len(tiny["levels"]) == 1
    assert tiny["notes"] == ["Each cell of the finest picture is the largest of 8 x 8 weights (queries x keys)"]


def test_many_small_heads_do_not_make_a_large_file() -> None:
    view = random_view(100, 100, 40)
    assert heads(view.payload())[0]["exact"] is None
    assert heads(random_view(100, 100, 4).payload())[0]["exact"]


def test_progress_comes_to_the_whole() -> None:
    shares: list[float] = []
    view_of(40, 40).payload(shares.append)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0


def test_where_one_weight_of_a_row_is_told_there_is_one_for_when_the_first_token_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qkv.pictures.payload.FEW", 0)
    monkeypatch.setattr("qkv.pictures.payload.RANKED", 1)
    weights = np.array([[0.7, 0.1, 0.2], [0.6, 0.3, 0.1]])
    view = AttentionView(layers=[LayerWeights("layer 0", given_heads(weights))])
    top = view.payload()["layers"][0]["heads"][0]["top"]
    assert integers(top["keys"]).reshape(2, top["count"]).tolist() == [[0, 2], [0, 1]]
