"""A right attention is found right from a dump in every format, dtype and order of axes; names tell what is what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dumped import FIELDS, SPEC, run_of, tensors_of, write
from qkv.adapters.dump.roles import role_and_place
from qkv.debugger import check
from qkv.spec import spec_from_mapping

LAYOUTS = ("BHTD", "BTHD", "TBHD", "BTE", "TBE", "HTD", "THD", "TE")
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_in_every_layout(tmp_path: Path, dtype: str, layout: str) -> None:
    run = run_of(batch=2 if "B" in layout else 1, dtype=dtype)
    report = check(write(tmp_path / "dump.safetensors", tensors_of(run, layout, dtype)), FIELDS)
    assert report.verdict == "right", report.why
    assert report.candidate.dtype == dtype
    assert any(f"axes are {layout}" in sentence for sentence in report.assumptions)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("dump.npz", "float32"),
        ("folder", "bfloat16"),
        *(
            pytest.param(name, dtype, marks=pytest.mark.slow)
            for name in ("dump.npz", "folder")
            for dtype in ("float64", "float32", "float16", "bfloat16")
            if (name, dtype) not in (("dump.npz", "float32"), ("folder", "bfloat16"))
        ),
        ("dump.pt", "float32"),
        pytest.param("dump.pt", "float8_e5m2", marks=pytest.mark.slow),
    ],
)
def test_every_format(tmp_path: Path, name: str, dtype: str) -> None:
    run = run_of(dtype=dtype)
    report = check(write(tmp_path / name, tensors_of(run, dtype=dtype)), FIELDS)
    assert (report.verdict, report.candidate.dtype) == ("right", dtype)
    wrong = tensors_of(run_of(SPEC.but(scale=1.0), dtype=dtype), dtype=dtype)
    report = check(write(tmp_path / f"wrong-{name}", wrong), FIELDS)
    assert report.verdict == "wrong"


def test_no_framework_is_imported_for_what_needs_none(tmp_path: Path) -> None:
    write(tmp_path / "dump.safetensors", tensors_of(run_of(dtype="bfloat16"), dtype="bfloat16"))
    code = "import sys, qkv; print(qkv.check('dump.safetensors').verdict); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "right")


def test_an_output_in_another_layout_and_a_key_without_heads(tmp_path: Path) -> None:
    run = run_of(SPEC.but(num_kv_heads=1))
    tensors = tensors_of(run)
    tensors["k"], tensors["v"] = tensors["k"][:, 0], tensors["v"][:, 0]
    tensors["out"] = tensors_of(run, "BTE")["out"]
    assert check(write(tmp_path / "dump.npz", tensors), {"causal": True}).verdict == "right"


def test_heads_that_lie_side_by_side_are_counted_by_what_is_right(tmp_path: Path) -> None:
    report = check(write(tmp_path / "dump.npz", tensors_of(run_of(), "BTE")), {"causal": True})
    assert report.verdict == "right"
    assert report.spec is not None
    assert (report.spec.num_heads, report.spec.kv_heads) == (6, 2)


def test_a_wrong_fp8_output_is_not_hidden_by_its_coarseness(tmp_path: Path) -> None:
    unscaled = run_of(SPEC.but(scale=1.0), dtype="float8_e4m3fn")
    tensors = tensors_of(unscaled, dtype="float8_e4m3fn")
    report = check(write(tmp_path / "dump.safetensors", tensors), FIELDS)
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", ["scale-missing"])


@pytest.mark.parametrize(
    ("name", "role", "place"),
    [
        *((name, "query", "") for name in ("q", "Q", "query", "query_states", "xq", "queries", "q_proj.output")),
        *((name, "output", "") for name in ("o", "out", "attn_output", "outputs", "y")),
        *((name, "weights", "") for name in ("weights", "attn_weights", "p", "probs", "attention_probs")),
        ("layers.3.q", "query", "layers.3"),
        ("model.layers.0.self_attn.k_states", "key", "model.layers.0.self_attn"),
        ("block0_v", "value", "block0"),
        ("attn/logits", "scores", "attn"),
        ("q_3", "query", "3"),
        ("attnOutput", "output", "attn"),
        ("q.grad", "grad_query", ""),
    ],
)
def test_names(name: str, role: str, place: str) -> None:
    assert role_and_place(name) == (role, place)


@pytest.mark.parametrize("name", ["foo", "q_proj.weight", "past_length", "norm.bias.running_mean", "3"])
def test_names_of_something_else(name: str) -> None:
    found = role_and_place(name)
    assert found is None or found[0] not in ("query", "key", "value", "output")


def test_masks_padding_sinks_and_bias_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    may_attend = rng.random((2, 1, 7, 7)) < 0.6
    may_attend |= np.eye(7, dtype=bool)
    bias = rng.normal(size=(1, 6, 7, 7))
    spec = SPEC.but(sinks=True)
    run = run_of(spec, may_attend=may_attend, bias=bias)
    tensors = {**tensors_of(run), "bias": bias, "sinks": run.inputs.sinks}
    for mask in (may_attend, ~may_attend, np.where(may_attend, 0.0, -np.inf), may_attend.astype(np.int64)):
        report = check(write(tmp_path / f"{len(list(tmp_path.iterdir()))}.npz", {**tensors, "mask": mask}), FIELDS)
        assert report.verdict == "right", report.why
    is_token = np.arange(7) < np.array([[5], [7]])
    run = run_of(is_token=is_token)
    hidden = {**tensors_of(run), "key_padding_mask": ~is_token}
    report = check(write(tmp_path / "padding.npz", hidden), FIELDS)
    assert report.verdict == "right"
    assert any("is padding" in sentence for sentence in report.assumptions)


def test_packed_documents(tmp_path: Path) -> None:
    document = np.repeat([[0, 1, 2]], 2, axis=0).repeat([2, 3, 2], axis=1)
    given = {**FIELDS, "documents": True}
    run = run_of(spec_from_mapping(given), document=document)
    path = write(tmp_path / "dump.npz", {**tensors_of(run), "doc_ids": document})
    assert check(path, given).verdict == "right"
    assert check(write(tmp_path / "without.npz", tensors_of(run)), given).why.startswith("the spec has documents")


@pytest.mark.slow
def test_a_layer_of_several(tmp_path: Path) -> None:
    runs = {f"layers.{layer}": run_of(seed=layer) for layer in range(3)}
    tensors = {f"{place}.{name}": array for place, run in runs.items() for name, array in tensors_of(run).items()}
    tensors["layers.1.out"] = tensors["layers.1.out"] + 1
    path = write(tmp_path / "dump.safetensors", tensors)
    report = check(path, FIELDS)
    assert (report.verdict, report.hint) == ("failed", "pick one: --tensor prefix=layers.0")
    assert "holds 3 attentions: 'layers.0', 'layers.1', 'layers.2'" in report.why
    assert check(path, FIELDS, tensors={"prefix": "layers.2"}).verdict == "right"
    assert check(path, FIELDS, tensors={"query": "layers.1.q"}).verdict == "wrong"


def test_unusual_names_are_given(tmp_path: Path) -> None:
    named = {f"tensor_{place}_x": array for place, array in enumerate(tensors_of(run_of()).values())}
    path = write(tmp_path / "dump.npz", named)
    roles = dict(zip(("query", "key", "value", "output"), named, strict=True))
    assert check(path, FIELDS, tensors=roles).verdict == "right"
