"""The catalogue of gradients: every fault, put into the oracle's backward pass, is named and no other is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import qkv.gradients.diagnosis
from injected import CASES, Case
from qkv.adapters.pullback import Gradients
from qkv.comparison import Floats
from qkv.diagnosis import IMPOSSIBLE
from qkv.faults import CATALOGUE, GRADIENT_FAULTS, Fault, Variant
from qkv.gradients.comparison import GradientExpectation, GradientObservation
from qkv.gradients.diagnosis import diagnose_gradients
from qkv.gradients.probes import GradientProbe, gradient_probes
from qkv.oracle import BackwardReplacements, run_stages
from qkv.probes import Setting
from qkv.spec import AttentionSpec

IDENTICAL: Mapping[frozenset[str], str] = {
    frozenset({"gradient-block", "gradient-detached"}): (
        "the first query of a causal mask sees one key, and its scores get no gradient: a sum over it alone is nothing"
    ),
}
"""Pairs of faults that can give the same gradients on every probe, and why."""

NOT_BY_NUMBERS = {fault.id for fault in GRADIENT_FAULTS.values() if fault.watched}


def same(of: Mapping[str, Floats]) -> Mapping[str, Floats]:
    return of


@cache
def expected(name: str) -> tuple[tuple[GradientProbe, GradientExpectation], ...]:
    """Every probe of the backward pass that the judge makes for a case, and the right gradients."""
    case = CASES[name]
    asked = []
    for probe in gradient_probes(Setting(case.spec, case.abilities)):
        run = run_stages(case.spec, probe.probe.inputs)
        if run.may_attend.any(axis=-1).all():
            asked.append((probe, GradientExpectation(run, probe.cotangent_for(run.output.shape), same, "float32")))
    return tuple(asked)


def observations(name: str, variant: Variant | None = None) -> list[GradientObservation]:
    """What the judge sees of a candidate with this fault. Where it can't be made, the gradients are right."""
    seen = []
    for probe, right in expected(name):
        of = right.right
        if variant is not None and not variant.fault.absent(right.run.spec, right.run.inputs):
            try:
                of = right.under(variant.backward)
            except IMPOSSIBLE:
                of = right.right
        seen.append(GradientObservation(probe, right, Gradients(of, frozenset())))
    return seen


def misnamed(name: str, variant: Variant) -> list[str]:
    """What the judge says wrongly of a candidate with this fault."""
    seen = observations(name, variant)
    if all(observation.agrees for observation in seen):
        return []
    diagnosis = diagnose_gradients(seen)
    fault = variant.fault.id
    if diagnosis.best is None:
        return [f"{fault} ({variant.note}) is not named"]
    named = [explanation.ids for explanation in (diagnosis.best, *diagnosis.alternatives)]
    wrong = [f"{' and '.join(ids)} is named for {fault} ({variant.note})" for ids in named if not alike(ids, fault)]
    return wrong if (fault,) in named else [*wrong, f"{fault} ({variant.note}) is not among {named}"]


def alike(ids: tuple[str, ...], fault: str) -> bool:
    return ids == (fault,) or frozenset((*ids, fault)) in IDENTICAL


def ways(case: Case) -> Iterator[list[Variant]]:
    for fault in qkv.gradients.diagnosis.GRADIENT_FAULTS.values():
        yield list(fault.variants(case.spec))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass under each way of each fault is made once, not once for each candidate that is diagnosed."""
    listed: dict[tuple[str, int], list[Variant]] = {}
    made: dict[Any, Any] = {}

    def once_listed(fault: Fault) -> Fault:
        def variants(spec: AttentionSpec) -> Iterator[Variant]:
            if (fault.id, id(spec)) not in listed:
                listed[fault.id, id(spec)] = list(fault.variants(spec))
            return iter(listed[fault.id, id(spec)])

        return replace(fault, variants=variants)

    def once(plain: Callable[..., Any]) -> Callable[..., Any]:
        def cached(self: GradientExpectation, replacements: BackwardReplacements) -> Any:
            key = (plain.__name__, id(self), *((stage, id(new)) for stage, new in replacements.items()))
            if key not in made:
                try:
                    made[key] = plain(self, replacements), replacements  # kept, so that no other object gets its id
                except IMPOSSIBLE as error:
                    made[key] = error, replacements
            if isinstance(made[key][0], Exception):
                raise made[key][0]
            return made[key][0]

        return cached

    faults = {fault.id: once_listed(fault) for fault in GRADIENT_FAULTS.values()}
    monkeypatch.setattr(qkv.gradients.diagnosis, "GRADIENT_FAULTS", faults)
    for name in ("under", "tolerance_under"):
        monkeypatch.setattr(GradientExpectation, name, once(getattr(GradientExpectation, name)))


@pytest.fixture(autouse=True)
def _quiet(unchecked: None) -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CASES)
def test_a_fault_put_into_the_backward_pass_is_named_and_no_other_is(name: str) -> None:
    assert [line for variants in ways(CASES[name]) for one in variants[:1] for line in misnamed(name, one)] == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_whichever_way_it_is_made(name: str) -> None:
    assert [line for variants in ways(CASES[name]) for one in variants[1:] for line in misnamed(name, one)] == []


@pytest.mark.parametrize("name", CASES)
def test_right_gradients_have_no_fault(name: str) -> None:
    seen = observations(name)
    assert all(observation.agrees for observation in seen)
    assert diagnose_gradients(seen).best is None


@pytest.mark.parametrize("fault", [fault for fault in GRADIENT_FAULTS if fault not in NOT_BY_NUMBERS])
def test_every_fault_shows_under_some_spec(fault: str) -> None:
    assert any(
        not observation.agrees
        for name, case in CASES.items()
        for variant in GRADIENT_FAULTS[fault].variants(case.spec)
        for observation in observations(name, variant)
    )


def test_no_fault_of_gradients_is_called_as_one_of_the_output() -> None:
    assert not GRADIENT_FAULTS.keys() & CATALOGUE.keys()
