"""What every probe holds to, whatever it is made for."""

from __future__ import annotations

from typing import Any

import pytest

from injected import function
from qkv.probes import Probe, Setting, probes_for


def probes(**fields: Any) -> dict[str, Probe]:
    case = function(**fields)
    return {probe.name: probe for probe in probes_for(Setting(case.spec, case.abilities))}


@pytest.mark.parametrize(("name", "fields"), [("is_token", {}), ("document", {"documents": True})])
def test_each_sequence_has_its_own_padding_and_documents(name: str, fields: dict[str, Any]) -> None:
    sizes = {probe.name: (probe.inputs.batch, probe.inputs.lengths[1]) for probe in probes(**fields).values()}
    arrays = {probe.name: getattr(probe.inputs, name) for probe in probes(**fields).values()}
    shapes = {probe: array.shape for probe, array in arrays.items() if array is not None}
    assert shapes
    assert shapes == {probe: sizes[probe] for probe in shapes}


def test_fills_are_tried_where_a_mask_is_handed_over() -> None:
    assert probes()["shifted handed-mask"].inputs.may_attend is not None
    assert probes(takes=frozenset({"padding"}))["shifted padding"].inputs.is_token is not None
