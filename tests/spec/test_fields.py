"""A spec from named fields and back: nothing is lost, nothing unknown gets in, every message says what to write."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from drawn import drawn_specs
from qkv.errors import SpecError
from qkv.masks import Causal, Documents, Everything, Mask, Padding, Prefix, SlidingWindow, per_head
from qkv.positions import Alibi, RelativeBias, Rope, RopeScaling
from qkv.spec import FIELDS, ROPE_FIELDS, SCALING_FIELDS, AttentionSpec, spec_from_mapping, spec_to_mapping

BY_NAME = {field.name: field for field in FIELDS}

DEFAULTS = {
    "num_heads": 1, "num_kv_heads": None, "head_dim": None, "value_dim": None, "embed_dim": None, "scale": None,
    "causal": False, "window": None, "prefix": None, "documents": False, "query_offset": "bottom_right", "rope": None,
    "alibi": False, "softcap": None, "sinks": False, "qk_norm": None, "dropout_p": 0.0, "projection_bias": False,
    "out_proj": True, "empty_row": "zero", "mask": None, "relative_bias": None,
}  # fmt: skip
"""The fields that are promised to whoever writes a spec in JSON."""


def test_the_promised_fields_and_defaults_are_there() -> None:
    assert {field.name: field.default for field in FIELDS} == DEFAULTS
    assert spec_from_mapping({}) == AttentionSpec() == spec_from_mapping(DEFAULTS)
    assert spec_to_mapping(AttentionSpec()) == DEFAULTS


def test_every_field_of_the_dataclasses_is_in_the_tables() -> None:
    assert {f.name for f in dataclasses.fields(AttentionSpec)} <= set(BY_NAME)
    for cls, table in ((Rope, ROPE_FIELDS), (RopeScaling, SCALING_FIELDS)):
        assert [f.name for f in dataclasses.fields(cls)] == [f.name for f in table]
        for f, field in zip(dataclasses.fields(cls), table, strict=True):
            if f.default is not dataclasses.MISSING:
                assert f.default == field.default


@pytest.mark.parametrize("field", [*FIELDS, *ROPE_FIELDS, *SCALING_FIELDS], ids=lambda field: field.flag)
def test_every_field_has_one_line_of_help_and_a_default_of_its_own_type(field: Any) -> None:
    assert field.help
    assert "\n" not in field.help
    assert len(field.help) < 105
    assert field.checked(field.default, "here") == field.default
    assert field.type.accepts(field.type.example)


def test_flags_are_those_of_the_design() -> None:
    flags = {field.flag for field in FIELDS}
    assert {"--heads", "--kv-heads", "--head-dim", "--causal", "--window", "--rope", "--dropout-p"} <= flags
    assert [field.flag for field in ROPE_FIELDS][1:3] == ["--rope-base", "--rope-dims"]


@given(drawn_specs())
def test_a_spec_comes_back_from_json_as_it_was(spec: AttentionSpec) -> None:
    assert spec_from_mapping(json.loads(json.dumps(spec_to_mapping(spec)))) == spec


PLAIN: list[tuple[dict[str, Any], Mask]] = [
    ({}, Everything()),
    ({"causal": True}, Causal()),
    ({"window": 5}, SlidingWindow(5)),
    ({"causal": True, "window": 5}, Causal() & SlidingWindow(5)),
    ({"causal": True, "prefix": 3}, Causal() | Prefix(3)),
    ({"window": 5, "prefix": 0}, SlidingWindow(5) | Prefix(0)),
    ({"causal": True, "window": 5, "prefix": 3}, (Causal() & SlidingWindow(5)) | Prefix(3)),
    ({"documents": True}, Documents()),
    ({"causal": True, "documents": True}, Causal() & Documents()),
    (
        {"causal": True, "window": 5, "prefix": 3, "documents": True},
        ((Causal() & SlidingWindow(5)) | Prefix(3)) & Documents(),
    ),
]


@pytest.mark.parametrize(("fields", "mask"), PLAIN, ids=lambda value: str(value))
def test_plain_fields_make_the_mask_and_are_written_again(fields: dict[str, Any], mask: Mask) -> None:
    spec = spec_from_mapping(fields)
    assert spec.mask == mask
    written = spec_to_mapping(spec)
    assert {name: written[name] for name in fields} == fields
    assert written["mask"] is None


@pytest.mark.parametrize(
    "mask",
    [
        Prefix(3),
        Padding(),
        ~Causal(),
        Causal(1),
        SlidingWindow(5) & Causal(),
        Causal() & (SlidingWindow(5) | Prefix(3)),
        Everything() & Documents(),
        Everything() | Prefix(2),
        Causal() & (Causal() & Documents()),
    ],
    ids=str,
)
def test_other_masks_are_written_as_an_expression(mask: Mask) -> None:
    written = spec_to_mapping(AttentionSpec(mask=mask))
    assert written["mask"] == str(mask)
    assert not written["causal"]
    assert spec_from_mapping(written).mask == mask


def test_a_mask_for_each_head_is_read_and_says_how_many_there_are() -> None:
    mask = per_head([Causal(), Causal() & SlidingWindow(4), Everything()])
    spec = AttentionSpec(num_heads=3, mask=mask)
    assert spec_from_mapping(spec_to_mapping(spec)) == spec
    assert spec_from_mapping({"mask": "per_head([causal, causal & window(4), everything])"}) == spec


def test_rope_is_read_in_full_in_short_and_by_other_names() -> None:
    full = {"pairing": "adjacent", "base": 500, "dims": 4, "scaling": {"kind": "linear", "factor": 2}}
    scaling = RopeScaling("linear", 2.0)
    assert spec_from_mapping({"rope": full}).rope == Rope("adjacent", 500.0, 4, scaling)
    assert spec_from_mapping({"rope": "adjacent"}).rope == Rope("adjacent")
    theirs = {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 4096}
    assert spec_from_mapping({"rope": {"rope_theta": 5e5, "scaling": theirs}}).rope == Rope(
        base=5e5, scaling=RopeScaling("llama3", 8.0, 4096)
    )


def test_alibi_and_relative_bias_are_read() -> None:
    assert spec_from_mapping({"alibi": True}).alibi == Alibi()
    assert spec_from_mapping({"num_heads": 2, "alibi": [0.5, 1]}).alibi == Alibi((0.5, 1.0))
    assert spec_from_mapping({"relative_bias": [[0, 1, 2]]}).relative_bias == RelativeBias(((0.0, 1.0, 2.0),))


WRONG: list[tuple[object, list[str]]] = [
    ({"num_head": 3}, ["'num_head' is no field", "did you mean 'num_heads'?"]),
    ({"num_heads": "six"}, ["spec.json", 'num_heads is "six" (text)', "whole number of 1 or more", '"num_heads": 6']),
    ({"num_heads": True}, ["num_heads is true (a yes or no)"]),
    ({"num_heads": None}, ["num_heads is null (nothing)", "1 or more."]),
    ({"num_heads": 6.0}, ["num_heads is 6.0 (a number)", "a whole number"]),
    ({"window": 0}, ["window is 0", "1 or more, or null", "itself included"]),
    ({"scale": float("inf")}, ["scale is Infinity", "finite number"]),
    ({"scale": 10**400}, ["scale is 1000", "finite number"]),
    ({"causal": "yes"}, ['causal is "yes" (text)', "true or false", '"causal": true']),
    ({"empty_row": "zeros"}, ['"zero", "nan", "uniform"']),
    ({"query_offset": 1.5}, ["query_offset is 1.5", '"top_left"']),
    ({"alibi": []}, ["alibi is []", "list of slopes"]),
    ({"num_heads": 3, "alibi": [0.5]}, ["1 alibi slopes for num_heads 3"]),
    ({"relative_bias": [[0.1, 0.2]]}, ["odd number"]),
    ({"rope": True}, ["rope is true", '"halves"']),
    ({"rope": "half"}, ["rope: pairing is", '"halves", "adjacent"']),
    ({"rope": {"bse": 1}}, ["'bse' is no field", "did you mean 'base'?"]),
    ({"rope": {"base": 1.0, "rope_theta": 2.0}}, ["base is given twice"]),
    ({"rope": {"scaling": {"type": "linear"}}}, ["factor is missing", '"factor": 2.0']),
    ({"rope": {"scaling": {"kind": "dynamic", "factor": 2.0}}}, ['kind is "dynamic"', '"yarn"']),
    ({"mask": "causl"}, ["'causl'", "did you mean 'causal'?"]),
    ({"mask": "causal", "window": 3, "causal": True}, ["one or the other", '"causal & window(3) & (causal)"']),
    ({"prefix": 3}, ["without causal or window", 'mask "prefix(3)"']),
    ({"mask": "unexplained"}, ["no one known mask", '--mask "per_head([causal, causal & window(5)])"']),
    (
        {"mask": "per_head([causal, window(3)])", "num_heads": 3},
        ["per_head holds masks of 2", "there are 3"],
    ),
    ({"mask": "per_head([])"}, ["per_head was given no masks"]),
    ({"num_heads": 6, "num_kv_heads": 4}, ["spec.json: num_kv_heads is 4", "1, 2, 3, 6"]),
    ({"num_heads": 10**15, "num_kv_heads": 7}, ["num_heads is 1000000000000000 (a whole number)", "65536 at most"]),
    ({"num_heads": 65_536, "num_kv_heads": 7}, ["must divide num_heads"]),
    ({"window": 10**30}, ["window is 1000", "at most"]),
    ({"mask": "causal & window(99999999999999)"}, ["mask holds window(99999999999999)", "2000000000 at most"]),
    ({"query_offset": -(10**30)}, ["query_offset is -1000", "at most"]),
    ({"scale": 1e300}, ["scale is 1e+300", "1e+30 at most"]),
    ({"model_type": "llama"}, ["Hugging Face config.json", "spec_from_config"]),
    ([1, 2], ["spec.json is [1, 2] (a list)", "object of named fields"]),
    ("causal", ["spec.json is", "(text)"]),
]


@pytest.mark.parametrize(("mapping", "says"), WRONG, ids=lambda value: str(value)[:50])
def test_what_is_wrong_is_said_with_the_way_out(mapping: Any, says: list[str]) -> None:
    reader: Any = getattr(spec_from_mapping, "__wrapped__", spec_from_mapping)
    with pytest.raises(SpecError) as caught:
        reader(mapping, "spec.json")
    for part in says:
        assert part in str(caught.value)


JUNK = st.sampled_from(
    [None, True, -1, 0, 1, 2, 1.5, "", "x", "causal", [], [[]], [1, "a"], {}, {"kind": 3}, float("nan")]
)


@given(st.dictionaries(st.sampled_from(sorted(BY_NAME)), JUNK))
def test_junk_ends_in_a_spec_or_a_spec_error(mapping: dict[str, Any]) -> None:
    with suppress(SpecError):
        spec = spec_from_mapping(mapping, "spec.json")
        assert spec_from_mapping(spec_to_mapping(spec)) == spec


def test_a_mask_of_ones_own_has_no_text() -> None:
    @dataclasses.dataclass(frozen=True)
    class Even(Mask):
        def allows(self, at: Any) -> Any:
            return at.key % 2 == 0

        def __str__(self) -> str:
            return "even"

    with pytest.raises(SpecError, match="the mask even can't be written down"):
        spec_to_mapping(AttentionSpec(mask=Even()))
