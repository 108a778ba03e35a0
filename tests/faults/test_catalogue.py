"""The catalogue test: every fault, put into the oracle, is named and no other is; and right attentions have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from injected import CASES, Case
from qkv.diagnosis import diagnose, estimation, pairs, rounding, search, twin, twins
from qkv.faults import CATALOGUE, Fault, Variant

NOT_FOUND_BY_NUMBERS = {"inputs-changed", "mask-mutated", "dropout-in-eval"}
"""Faults that other parts find: arguments that come back changed, and outputs that differ from run to run."""

IDENTICAL: Mapping[frozenset[str], str] = {
    frozenset({"strided-read-as-contiguous", "heads-split-by-view"}): (
        "a transposed array read as if contiguous is a view for a transpose: the same bytes in the same order"
    ),
    frozenset({"padding-missing", "padding-on-queries"}): (
        "a mask laid along the queries changes the rows of padding alone, which nobody reads; the others see all keys"
    ),
    frozenset({"mask-fill-too-small", "empty-row"}): (
        "a fill far below every visible score shows in rows without any key only, as their mean or as no mask at all"
    ),
    frozenset({"mask-fill-too-small", "softcap-after-mask"}): (
        "a fill put in before the softcap comes out as -c, whatever its size"
    ),
    frozenset({"value-is-key", "weights-times-key"}): (
        "without rope and norm the key that is mixed is the key that was projected"
    ),
    frozenset({"projection-reused", "weights-times-key"}): (
        "without rope and norm the query that is mixed is the query that was projected"
    ),
    frozenset({"tail-block", "weights-not-loaded"}): "no probe fills the first block, and without it nothing is left",
    frozenset({"fused-qkv-layout", "fused-qkv-sharded"}): "over as many devices as heads, each has its own [q k v]",
    frozenset({"tail-block", "causal-tiles-skipped"}): (
        "of queries that fit into one tile, both lose the keys behind the first blocks"
    ),
    frozenset({"tail-block", "softmax-off-by-one"}): "at odd lengths the last block of two has room for one key more",
    frozenset({"tail-block", "cache-empty-slots"}): "a cache of as many slots as a block has is filled up alike",
    frozenset({"fused-qkv-layout", "key-value-swapped"}): "reading [Q | V | K] is swapping key and value",
    frozenset({"fused-qkv-layout", "scores-transposed"}): "reading [K | Q | V] is swapping query and key",
    frozenset({"causal-missing", "mask-not-applied"}): "where causal is the whole rule, the whole mask is missing",
    frozenset({"causal-inverted", "mask-inverted"}): "where causal is the whole rule, the whole mask is inverted",
    frozenset({"padding-missing", "mask-not-applied"}): "where padding is all there is to hide, it is the whole mask",
    frozenset({"padding-wrong-side", "mask-inverted"}): "where padding is all there is to hide, it is the whole mask",
    frozenset({"padding-on-queries", "mask-not-applied"}): "padding laid along the queries hides nothing that is read",
    frozenset({"mask-transposed", "mask-not-applied"}): "a mask of padding alone, transposed, lies along the queries",
    frozenset({"mask-transposed", "padding-missing"}): "a mask of padding alone, transposed, lies along the queries",
    frozenset({"mask-transposed", "padding-on-queries"}): "a mask of padding alone, transposed, lies along the queries",
}
"""Pairs of faults that can give the same numbers on every probe, and why."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle's runs under each way of each fault are made once, not once for each candidate that is diagnosed."""
    made: dict[Any, Any] = {}

    def once(run: Any, replacements: Any) -> Any:
        key = (id(run), *((stage, id(new)) for stage, new in replacements.items()))
        if key not in made:
            made[key] = (twin(run, replacements), run, replacements)  # kept, so that no other object gets its id
        return made[key][0]

    ways: dict[Any, list[Variant]] = {}

    def listed(fault: Fault) -> Fault:
        def variants(spec: Any) -> Iterator[Variant]:
            key = (fault.id, id(spec))
            if key not in ways:
                ways[key] = list(fault.variants(spec))
            return iter(ways[key])

        return replace(fault, variants=variants)

    catalogue = {fault.id: listed(fault) for fault in CATALOGUE.values()}
    for module in (estimation, pairs, rounding, search, twins):
        monkeypatch.setattr(module, "twin", once)
    for module in (estimation, pairs, rounding, search):
        monkeypatch.setattr(module, "CATALOGUE", catalogue)


def misnamed(case: Case, variant: Variant) -> list[str]:
    """What the judge says wrongly of a candidate with this fault."""
    observations = case.observations(variant)
    if all(observation.comparison.agrees for observation in observations):
        return []
    diagnosis = diagnose(observations, pairs=False)
    if not any(np.isfinite(observation.output).any() for observation in observations):
        return [] if diagnosis.untold else [f"a candidate without a number is called {diagnosis.best}"]
    name = variant.fault.id
    if diagnosis.best is None:
        return [f"{name} ({variant.note}) is not named"]
    named = [explanation.ids for explanation in (diagnosis.best, *diagnosis.alternatives)]
    wrong = [f"{' and '.join(ids)} is named for {name} ({variant.note})" for ids in named if not same(ids, name)]
    if (name,) not in named:
        wrong.append(f"{name} ({variant.note}) is not among {named}")
    return wrong


def same(ids: tuple[str, ...], name: str) -> bool:
    return ids == (name,) or frozenset((*ids, name)) in IDENTICAL


def ways(case: Case) -> Iterator[tuple[str, list[Variant]]]:
    for fault in search.CATALOGUE.values():
        if fault.id not in NOT_FOUND_BY_NUMBERS:
            yield fault.id, list(fault.variants(case.spec))


@pytest.mark.usefixtures("quick", "unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_fault_put_into_the_oracle_is_named_and_no_other_is(name: str) -> None:
    case = CASES[name]
    assert [line for _, variants in ways(case) for variant in variants[:1] for line in misnamed(case, variant)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_whichever_way_it_is_made(name: str) -> None:
    case = CASES[name]
    assert [line for _, variants in ways(case) for variant in variants[1:] for line in misnamed(case, variant)] == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_a_right_attention_has_no_fault(name: str) -> None:
    observations = CASES[name].observations()
    assert [observation.probe.name for observation in observations if not observation.comparison.agrees] == []
    assert diagnose(observations).best is None


def shows(case: Case, fault: Fault) -> bool:
    return any(
        not observation.comparison.agrees
        for variant in fault.variants(case.spec)
        for observation in case.observations(variant)
    )


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in NOT_FOUND_BY_NUMBERS])
def test_every_fault_shows_under_some_spec(name: str) -> None:
    assert any(shows(case, CATALOGUE[name]) for case in CASES.values())
