"""Strength: which faults a passing check would have seen, counted here once more by running each as a candidate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from injected import Case, function, module
from qkv.debugger import check
from qkv.faults import CATALOGUE
from qkv.strength import strength

BARE: dict[str, Any] = {"num_heads": 1, "num_kv_heads": 1, "value_dim": 8, "takes": frozenset()}
"""One head that sees every key, and takes nothing but query, key and value."""


def bare(**fields: Any) -> Case:
    return function(**{**BARE, **fields})


def seen(case: Case) -> set[str]:
    """The faults that make a candidate wrong on some probe: each is put into the oracle and run as one."""
    return {
        name
        for name, fault in CATALOGUE.items()
        if any(
            not observation.comparison.agrees
            for variant in fault.variants(case.spec)
            for observation in case.observations(variant)
        )
    }


def reasons(case: Case) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in strength(case.observations()).blind_to)


ASKED = {fault.id for fault in CATALOGUE.values() if not fault.watched}
"""The faults that probes are to show; the others are looked for in every call."""

CASES = {
    "bare": bare(),
    "causal": bare(causal=True),
    "heads": function(takes=frozenset({"mask", "padding"}), value_dim=8),
    "module": module(num_heads=2, num_kv_heads=2, embed_dim=20, causal=True, takes=frozenset()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_claimed_to_be_seen_is_seen_and_what_is_the_same_is_the_same(name: str) -> None:
    case = CASES[name]
    counted, blind = strength(case.observations()), reasons(case)
    assert counted.of == len(ASKED)
    assert counted.would_catch == len(ASKED) - len(counted.blind_to) == len(ASKED) - len(blind)
    showing = seen(case)
    assert ASKED - set(blind) <= showing
    assert {fault for fault, reason in blind.items() if reason == "gives the same numbers under this spec"}.isdisjoint(
        showing
    )


def test_the_numbers_of_a_bare_attention() -> None:
    blind = reasons(CASES["bare"])
    assert blind.keys().isdisjoint(
        {"scale-missing", "scale-other-constant", "softmax-over-queries", "key-value-swapped"}
    )
    expected = {
        "causal-missing": "not causal",
        "causal-one-ahead": "not causal",
        "mask-not-applied": "no mask",
        "window-off-by-one": "no window",
        "padding-missing": "no padding",
        "rope-missing": "no rope",
        "softcap-missing": "no softcap",
        "alibi-sign": "no alibi",
        "sink-missing": "no sinks",
        "scale-by-model-width": "one head",
        "heads-merged-by-view": "one head",
        "kv-heads-tiled": "no grouped heads",
        "output-projection-missing": "no output projection",
        "bias-missing": "no additive bias",
        "documents-leak": "no packed documents",
        "empty-row": "no row without keys",
        "scale-ignored": "gives the same numbers under this spec",
    }
    assert {name: blind.get(name) for name in expected} == expected


FEATURES = [
    ("causal-one-ahead", {"causal": True}),
    ("causal-missing", {"causal": True}),
    ("window-off-by-one", {"causal": True, "window": 4}),
    ("rope-sign", {"rope": {"pairing": "halves"}}),
    ("softcap-missing", {"softcap": 2.0}),
    ("alibi-sign", {"causal": True, "alibi": True}),
    ("scale-ignored", {"scale": 0.9}),
    ("sink-missing", {"sinks": True}),
    ("kv-heads-tiled", {"num_heads": 6, "num_kv_heads": 2}),
    ("scale-by-model-width", {"num_heads": 2, "num_kv_heads": 2}),
    ("padding-missing", {"takes": frozenset({"padding"})}),
    ("mask-not-applied", {"takes": frozenset({"mask"})}),
    ("bias-missing", {"takes": frozenset({"bias"})}),
]


@pytest.mark.parametrize(("name", "fields"), FEATURES, ids=[name for name, _ in FEATURES])
def test_a_fault_is_seen_once_its_feature_is_there(name: str, fields: dict[str, Any]) -> None:
    assert name in reasons(CASES["bare"])
    assert name not in reasons(bare(**fields))


def test_arguments_that_come_back_changed_are_always_seen() -> None:
    assert "inputs-changed" not in reasons(CASES["bare"])


def test_one_probe_sees_less_than_all() -> None:
    case = bare(causal=True, takes=frozenset({"padding"}))
    every = case.observations()
    one_token = [observation for observation in every if observation.probe.name == "one-token"]
    few = strength(one_token)
    assert few.would_catch < 25 < 40 < strength(every).would_catch
    assert "causal-one-ahead: gives the same numbers under this spec" in few.blind_to
    assert "padding-missing: no padding" in few.blind_to


def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
    scores = np.where(mask, query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5, -1e30)
    shares = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    total = shares.sum(-1, keepdims=True)
    return shares / np.where(total == 0, 1, total) @ value


def test_a_spec_under_which_nothing_could_be_wrong_decides_nothing() -> None:
    report = check(
        attention, {"mask": "prefix(0)"}, mask_argument="keep"
    )  # hides every key, and who says what such rows give?
    assert report.verdict == "undecided"
    assert report.why == "under this spec no row is left that could be wrong"
    assert "--empty-row" in report.hint
    assert report.strength is not None
    assert report.strength.would_catch == 0
    assert {(probe.agrees, probe.note) for probe in report.probes} == {(None, "no row of it counts")}


def test_the_same_spec_decides_once_it_says_what_such_rows_give() -> None:
    report = check(attention, {"mask": "prefix(0)", "empty_row": "zero"}, mask_argument="keep")
    assert report.verdict == "right"
    assert report.strength is not None
    assert report.strength.would_catch > 0
    assert check(attention, {"mask": "prefix(0)", "empty_row": "uniform"}, mask_argument="keep").verdict == "wrong"
