"""Faults are found from one dump, stage by stage where it holds more than the output; two dumps that part."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from dumped import FIELDS, SPEC, arranged, heads_of, run_of, tensors_of, write
from qkv.debugger import check, compare_dumps
from qkv.dumps.inside import log_sum_exp
from qkv.faults import CATALOGUE
from qkv.oracle import Run
from qkv.report.terminal import as_text
from qkv.spec import spec_from_mapping
from qkv.vocabulary import Stage

Qkv = Callable[..., subprocess.CompletedProcess[str]]


def faulty(fault: str, **more: Any) -> Run:
    """A run under the first way of a fault that changes its output."""
    right = run_of(**more)
    for variant in CATALOGUE[fault].variants(right.spec):
        run = run_of(**more, replacements=variant.replacements)
        if not np.allclose(run.output, right.output):
            return run
    raise AssertionError(f"{fault} changes nothing")


def with_insides(run: Run) -> dict[str, Any]:
    return {
        **tensors_of(run),
        "scores": run.before[Stage.SOFTMAX].scores,
        "weights": run.before[Stage.DROPOUT].weights,
        "lse": log_sum_exp(run),
    }


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "fault", ["scale-missing", "causal-one-ahead", "causal-missing", "kv-heads-tiled", "softmax-over-queries"]
)
def test_faults_are_named(tmp_path: Path, fault: str, dtype: str) -> None:
    run = faulty(fault, dtype=dtype)
    report = check(write(tmp_path / "dump.safetensors", tensors_of(run, "BTHD", dtype)), FIELDS)
    assert report.verdict == "wrong"
    assert fault in [one.id for one in (*report.faults, *report.alternatives)]
    assert report.first_disagreement is not None
    assert report.strength is None


@pytest.mark.slow
def test_without_a_spec_the_usual_ones_are_tried(tmp_path: Path) -> None:
    run = run_of(SPEC.but(scale=0.3))
    path = write(tmp_path / "dump.npz", tensors_of(run))
    report = check(path)
    assert [(fault.id, fault.note) for fault in report.faults] == [("scale-other-constant", "the scale is 0.3")]
    assert check(write(tmp_path / "own.npz", {**tensors_of(run), "sm_scale": np.array(0.3)})).verdict == "right"
    noise = {**tensors_of(run), "out": np.random.default_rng(0).normal(size=(2, 6, 7, 10))}
    report = check(write(tmp_path / "noise.npz", noise))
    assert (report.verdict, "qkv identify" in report.hint) == ("undecided", True)


def test_a_pass_says_how_many_faults_one_input_could_have_shown(tmp_path: Path) -> None:
    report = check(write(tmp_path / "dump.npz", tensors_of(run_of())), FIELDS)
    assert report.strength is not None
    assert 20 < report.strength.would_catch < report.strength.of


def test_what_is_inside_is_compared_too(tmp_path: Path) -> None:
    run = run_of()
    report = check(write(tmp_path / "dump.npz", with_insides(run)), FIELDS)
    assert report.verdict == "right", report.why
    assert [probe.name for probe in report.probes] == [
        "dump", "scores in the dump", "lse in the dump", "weights in the dump"]  # fmt: skip
    assert all(probe.agrees for probe in report.probes)


@pytest.mark.parametrize("stage", [Stage.SCORES, Stage.SCALE, Stage.SOFTCAP, Stage.BIAS])
def test_scores_from_any_place(tmp_path: Path, stage: Stage) -> None:
    spec = SPEC.but(softcap=2.0)
    run = run_of(spec)
    following = list(Stage)[stage.order + 1]
    path = write(tmp_path / "dump.npz", {**tensors_of(run), "scores": run.before[following].scores})
    assert check(path, {**FIELDS, "softcap": 2.0}).verdict == "right"


def test_the_first_stage_that_departs(tmp_path: Path) -> None:
    insides = with_insides(run_of())
    path = write(tmp_path / "dump.npz", {**insides, "out": 2 * insides["out"], "weights": 2 * insides["weights"]})
    report = check(path, FIELDS)
    assert report.verdict == "wrong"
    assert "the first stage that departs is softmax: weights departs first at sequence 0, head 0, query 0" in report.why


def test_weights_averaged_over_heads_and_turned_queries(tmp_path: Path) -> None:
    given = {**FIELDS, "rope": "halves"}
    run = run_of(qkv.read_spec(_json(tmp_path, given)))
    mean, turned = run.weights.mean(axis=1), run.before[Stage.SCORES].query
    tensors = {**tensors_of(run), "attn_weights": mean, "q_rope": turned}
    report = check(write(tmp_path / "dump.npz", tensors), given)
    assert (report.verdict, len(report.probes)) == ("right", 3)
    tensors["q_rope"] = tensors["q"]
    report = check(write(tmp_path / "wrong.npz", tensors), given)
    assert (report.verdict, "the output is right" in report.why) == ("undecided", True)


def _json(folder: Path, fields: dict[str, Any]) -> Path:
    (folder / "spec.json").write_text(json.dumps(fields), encoding="utf-8")
    return folder / "spec.json"


def test_only_a_part_of_a_large_dump_is_searched(tmp_path: Path) -> None:
    run = run_of(SPEC.but(scale=1.0), queries=300, keys=300)
    report = check(write(tmp_path / "dump.npz", tensors_of(run)), FIELDS)
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert any("faults were sought on a part" in sentence for sentence in report.assumptions)


@pytest.mark.slow
def test_axes_that_could_be_either_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=(2, 5, 7, 8)) for name in ("q", "k", "v", "out")}
    report = check(write(tmp_path / "dump.npz", tensors), {"causal": True})
    assert report.verdict == "undecided"
    assert "its axes can be read in" in report.why
    assert "--layout BHTD settles it" in report.hint


def test_gradients_in_a_dump(tmp_path: Path) -> None:
    run = run_of(SPEC.but(num_kv_heads=6))
    query, key, value = (
        torch.tensor(array, requires_grad=True) for array in (run.inputs.query, run.inputs.key, run.inputs.value)
    )
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    cotangent = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    output.backward(cotangent)
    gradients = {"dq": query.grad.numpy(), "dk": key.grad.numpy(), "dv": value.grad.numpy()}
    tensors = {**tensors_of(run), "do": cotangent.numpy(), **gradients}
    given = {**FIELDS, "num_kv_heads": 6}
    right = check(write(tmp_path / "right.npz", tensors), given)
    assert (right.verdict, sum("gradient" in probe.name for probe in right.probes)) == ("right", 3)
    wrong = check(write(tmp_path / "wrong.npz", {**tensors, "dq": gradients["dq"] * 8**0.5}), given)
    assert (wrong.verdict, [fault.id for fault in wrong.faults]) == ("wrong", ["gradient-scale"])


# --- two dumps --------------------------------------------------------------------------------------------------------


def test_two_dumps_that_agree(tmp_path: Path) -> None:
    run = run_of()
    first = write(tmp_path / "a.safetensors", tensors_of(run))
    second = write(tmp_path / "b", {**tensors_of(run, "BTHD", "float16")})
    report = compare_dumps(first, second)
    # Rounded to 16 bits, the inputs are others.
    assert (report.verdict, report.first_disagreement) == ("right", None)


@pytest.mark.slow
def test_two_dumps_part_at_a_stage(tmp_path: Path) -> None:
    right, wrong = with_insides(run_of()), with_insides(run_of())
    wrong["weights"] = right["weights"].copy()
    wrong["weights"][1, 3, 4, :5] = 0.2
    context = heads_of(run_of()).copy()
    context[1, 3, 4] = 0.2 * run_of().value[1, 3, :5].sum(axis=0)
    wrong["out"] = arranged(context, "BTE").astype(np.float32)
    paths = [write(tmp_path / "a.npz", wrong), write(tmp_path / "b.npz", right)]
    report = compare_dumps(*paths, FIELDS)
    assert report.verdict == "wrong"
    assert "first stage that departs: weights, at sequence 1, head 3, row 4, entry 0" in report.why
    assert "b.npz is right under the spec" in report.why
    first = report.first_disagreement
    assert first is not None
    assert (first.batch, first.head, first.query, first.got) == (1, 3, 4, pytest.approx(0.2))
    assert report.spread == "row 4 is wrong, only in head 3 of 6, only in sequence 1 of 2"
    (drawn,) = report.matrices
    assert (drawn.title, drawn.first) == ("attn_weights, head 3, sequence 1", (4, 0))
    assert np.allclose(drawn.got[4, :5], 0.2)
    assert {probe.name: probe.agrees for probe in report.probes} == {
        "query": True, "key": True, "value": True, "scores": True, "lse": True, "weights": False, "output": False
    }  # fmt: skip


@pytest.mark.slow
def test_two_dumps_without_a_spec_are_called_by_their_names(tmp_path: Path) -> None:
    right = tensors_of(run_of(spec_from_mapping({**FIELDS, "rope": "halves"})))
    paths = [write(tmp_path / "a.npz", right), write(tmp_path / "b.npz", {**right, "out": right["out"] + 0.1})]
    report = compare_dumps(*paths)
    assert report.sides == ("a.npz", "b.npz")
    assert "which of the two is right can't be told: no spec was given" in report.why
    text = as_text(report, 200)
    assert "output differ first at sequence 0, head 0, row 0, entry 0: a.npz" in text
    assert "expected" not in text


@pytest.mark.slow
def test_of_two_dumps_without_a_spec_what_each_computes_is_read(tmp_path: Path) -> None:
    dumps = {name: run_of(spec_from_mapping({**FIELDS, "rope": name})) for name in ("halves", "adjacent")}
    report = compare_dumps(*(write(tmp_path / f"{name}.npz", tensors_of(run)) for name, run in dumps.items()))
    assert "halves.npz computes rope on halves (base 10000); adjacent.npz computes rope on adjacent" in report.why


@pytest.mark.slow
def test_weights_rule_readings_of_the_axes_out(tmp_path: Path) -> None:
    run = run_of(spec_from_mapping({**FIELDS, "rope": "halves"}), queries=6, keys=6)
    report = check(write(tmp_path / "a.npz", with_insides(run)))
    assert "axes are BHTD, 6 heads over 2 of key and value" in report.assumptions


def test_two_dumps_of_other_inputs_or_sizes(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{seed}.npz", tensors_of(run_of(seed=seed))) for seed in (0, 1)]
    assert "inputs differ already: query" in compare_dumps(*paths, FIELDS).why
    longer = write(tmp_path / "longer.npz", tensors_of(run_of(queries=9, keys=9)))
    report = compare_dumps(paths[0], longer, FIELDS)
    assert (report.verdict, "have other sizes" in report.why) == ("failed", True)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_line(qkv_in_folder: Qkv, tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {f"l0.{name}": array for name, array in tensors_of(run_of()).items()})
    write(tmp_path / "b.npz", tensors_of(faulty("scale-missing")))
    flags = ("--causal", "--heads", "6", "--format", "json")
    assert qkv_in_folder("check", "a.safetensors", *flags, "--tensor", "query=l0.q").returncode == 0
    wrong = qkv_in_folder("check", "b.npz", *flags)
    assert (wrong.returncode, json.loads(wrong.stdout)["faults"][0]["id"]) == (1, "scale-missing")
    both = qkv_in_folder("check", "a.safetensors", "b.npz", *flags)
    assert (both.returncode, "a.safetensors is right" in json.loads(both.stdout)["why"]) == (1, True)
    assert qkv_in_folder("check", "missing.npz").returncode == 4
    assert qkv_in_folder("check", "a.safetensors", "--tensor", "quary=l0.q").returncode == 2
    assert qkv_in_folder("check", "a.safetensors", "--tensor", "=x").returncode == 2
    assert qkv_in_folder("check", "a.safetensors", "b.py").returncode == 2
    named = qkv_in_folder("identify", "a.safetensors", "--format", "json")
    assert (named.returncode, json.loads(named.stdout)["spec"]["causal"]) == (0, True)
