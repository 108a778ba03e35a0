"""identify() of a dump: the spec that made it comes back, with what it can't tell; or the fault where none fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dumped import SPEC, run_of, tensors_of, write
from qkv.dumps.budget import Budget, SpentError
from qkv.dumps.identity import _readings, identify_dump
from qkv.dumps.judging import DumpRequest, dump_of
from qkv.dumps.search import Search
from qkv.inference import intention_from
from qkv.oracle import run_stages
from qkv.spec import AttentionSpec, spec_from_mapping
from thinned import thinned

MASKS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "window": 3},
    {"window": 4},
    {"mask": "causal | prefix(3)"},
    {"causal": True, "query_offset": "top_left"},
]
SCORES: list[dict[str, Any]] = [
    {},
    {"rope": {"pairing": "halves"}},
    {"rope": {"pairing": "adjacent", "base": 500000.0}, "scale": 1.0},
    {"alibi": True},
    {"scale": 0.2},
    {"softcap": 1.5},
    {"sinks": True},
    {"qk_norm": "head"},
]
DRAWN = [{**mask, **scores} for mask in MASKS for scores in SCORES][:40]


def identified(tmp_path: Path, fields: dict[str, Any], **sizes: Any) -> tuple[AttentionSpec, Any]:
    spec = spec_from_mapping({"num_heads": 4, "num_kv_heads": 2, "head_dim": 6, "value_dim": 10, **fields})
    path = write(tmp_path / "dump.safetensors", tensors_of(run_of(spec, **sizes), dtype=sizes.get("dtype", "float32")))
    return spec, identify_dump(DumpRequest(str(path)))


@pytest.mark.parametrize("fields", thinned(DRAWN))
def test_the_spec_comes_back(tmp_path: Path, fields: dict[str, Any]) -> None:
    spec, found = identified(tmp_path, fields, batch=1, queries=5, keys=7)
    assert found.known, found.why
    assert found.exit_code == 0
    assert found.spec is not None
    right = {"scale": None if spec.scale is None else pytest.approx(spec.scale, rel=1e-4), "softcap": spec.softcap}
    assert (found.spec.scale, found.spec.softcap) == (right["scale"], right["softcap"])
    assert (found.spec.rope, found.spec.sinks, found.spec.qk_norm) == (spec.rope, spec.sinks, spec.qk_norm)
    assert (found.spec.alibi is None) == (spec.alibi is None)
    # One mask is written in several ways: the keys that each query sees are what counts.
    seen = [run_of(one.but(sinks=False), batch=1, queries=5, keys=7).may_attend for one in (spec, found.spec)]
    assert (seen[0] == seen[1]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision(tmp_path: Path, dtype: str) -> None:
    spec, found = identified(tmp_path, {"causal": True, "rope": "halves"}, queries=20, keys=20, dtype=dtype)
    assert found.known
    assert found.spec is not None
    assert (found.spec.rope, str(found.spec.mask), found.spec.scale) == (spec.rope, "causal", None)


def test_numbers_are_named(tmp_path: Path) -> None:
    _, found = identified(tmp_path, {"scale": 6**-1.5, "causal": True})
    assert str(found.estimates["scale"]) == "0.0680414 = head_dim^-3/2"


def test_a_number_read_at_low_precision_has_its_name(tmp_path: Path) -> None:
    fields = {"head_dim": 32, "scale": 1 / 32, "softcap": 3.0, "causal": True}
    _, found = identified(tmp_path, fields, queries=20, keys=20, dtype="float16")
    assert found.spec is not None
    assert found.spec.scale == 1 / 32
    assert any(reading.startswith("scale 0.03125 = 1/head_dim (± ") for reading in found.readings)


def test_slopes_and_sinks_of_each_head(tmp_path: Path) -> None:
    slopes = [0.5, 0.3, 0.2, 0.1]
    _, found = identified(tmp_path, {"alibi": slopes, "causal": True})
    assert [head["slope"] for head in found.per_head] == pytest.approx(slopes, rel=1e-3)
    assert [head["kv_head"] for head in found.per_head] == [0, 0, 1, 1]


@pytest.mark.parametrize("rule", ["zero", "uniform"])
def test_what_an_empty_row_gets(tmp_path: Path, rule: str) -> None:
    _, found = identified(tmp_path, {"causal": True, "empty_row": rule}, queries=7, keys=5)
    assert found.spec is not None
    assert (found.known, found.spec.empty_row) == (True, rule)


def test_what_one_input_can_not_tell(tmp_path: Path) -> None:
    _, found = identified(tmp_path, {"causal": True})
    said = " ".join(found.undecided)
    assert "the corner that the mask starts from" in said
    assert "whether there is a window of 7 keys or more" in said
    _, found = identified(tmp_path, {"rope": "halves"}, queries=1, keys=1)
    assert found.rivals


@pytest.mark.slow
def test_a_fault_where_no_spec_fits(tmp_path: Path) -> None:
    run = run_of(SPEC)
    tiled = run.inputs.but(key=np.tile(run.inputs.key, (1, 3, 1, 1)), value=np.tile(run.inputs.value, (1, 3, 1, 1)))
    tensors = tensors_of(run)
    tensors["out"] = tensors_of(run_stages(SPEC.but(num_kv_heads=6, out_proj=False), tiled))["out"]
    found = identify_dump(DumpRequest(str(write(tmp_path / "dump.npz", tensors))))
    assert (found.known, found.exit_code) == (False, 3)
    assert "kv-heads-tiled" in found.readings[0]


def test_nothing_fits(tmp_path: Path) -> None:
    tensors = tensors_of(run_of())
    tensors["out"] = np.random.default_rng(1).normal(size=tensors["out"].shape)
    found = identify_dump(DumpRequest(str(write(tmp_path / "dump.npz", tensors))))
    assert (found.spec, found.exit_code) == (None, 4)
    assert "no spec that was tried gives its output; the nearest is off by" in found.why


def test_a_dump_that_can_not_be_read(tmp_path: Path) -> None:
    found = identify_dump(DumpRequest(str(tmp_path / "missing.npz")))
    assert (found.exit_code, "no such file" in found.why) == (4, True)


def test_heads_that_the_shapes_show_come_before_heads_that_are_thought_of(tmp_path: Path) -> None:
    spec = spec_from_mapping({"num_heads": 8, "num_kv_heads": 2, "head_dim": 16, "causal": True, "window": 5})
    tensors = tensors_of(run_of(spec, batch=1, queries=24, keys=24), "THD")
    found = identify_dump(DumpRequest(str(write(tmp_path / "dump.npz", tensors))))
    assert (found.known, str(found.spec and found.spec.mask)) == (True, "causal & window(5)")
    assert "axes are THD, 8 heads over 2 of key and value" in found.readings


@pytest.mark.slow
def test_where_the_output_has_a_nan_its_place_comes_first(tmp_path: Path) -> None:
    tensors = tensors_of(run_of())
    tensors["out"][1, 2, 3, 4] = np.nan
    found = identify_dump(DumpRequest(str(write(tmp_path / "dump.npz", tensors))))
    assert (found.known, found.exit_code, str(found.spec and found.spec.mask)) == (False, 3, "causal")
    assert found.why.startswith("out holds 1 entry that is NaN or infinite, at [1, 2, 3, 4]; its other rows")


@pytest.mark.parametrize(("ending", "said"), [(SpentError, "it was ended after"), (KeyboardInterrupt, "interrupted")])
def test_a_search_that_ends_early_leaves_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException], said: str
) -> None:
    path = write(tmp_path / "dump.npz", tensors_of(run_of()))
    asked = []

    def check(budget: Budget) -> None:
        asked.append(budget)
        if len(asked) > 60:
            raise ending

    monkeypatch.setattr(Budget, "check", check)
    found = identify_dump(DumpRequest(str(path)))
    assert (found.known, str(found.spec and found.spec.mask)) == (True, "causal")
    assert said in found.undecided[-1]
    asked[:] = range(60)
    tensors = tensors_of(run_of()) | {"k": tensors_of(run_of(seed=1))["k"]}
    found = identify_dump(DumpRequest(str(write(tmp_path / "other.npz", tensors))))
    assert (found.exit_code, said in found.undecided[-1]) == (3, True)
    assert "--layout THD, --heads 8" in found.hint


def test_a_mask_without_a_number_is_tried_before_windows_that_hide_less(tmp_path: Path) -> None:
    spec = spec_from_mapping({"num_heads": 2, "head_dim": 4, "causal": True})
    path = write(tmp_path / "dump.npz", tensors_of(run_of(spec, batch=1, queries=40, keys=40)))
    request = DumpRequest(str(path))
    [reading, *_] = _readings(dump_of(request), request, intention_from({}, False))
    assert str(Search(reading, intention_from({}, False), Budget(20.0)).sights[0].mask) == "causal"
