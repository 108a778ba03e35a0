"""Weights in dumps of every format: as they stand there, or made of query and key."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import qkv
from dumped import SPEC, run_of, tensors_of, write
from qkv.adapters.torch_tensors import torch_array, torch_shapes
from qkv.errors import CandidateError, ShapeError
from qkv.faults import CATALOGUE
from qkv.pictures.view import AttentionView

Array = np.ndarray[Any, np.dtype[Any]]

RUN = run_of()
FORMATS = ["dump.safetensors", "dump.npz", "folder", "dump.pt"]


def dense(view: AttentionView) -> Array:
    weights = np.zeros((len(view.heads), *view.shape))
    for place, head in enumerate(view.heads):
        rows = head.rows(slice(0, view.shape[0]))
        weights[place][:, rows.keys] = rows.weights
    return weights


def shown(path: Path, tensors: Mapping[str, Array], **more: Any) -> AttentionView:
    return qkv.show(write(path, tensors), **more)


@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_found_by_name(tmp_path: Path, name: str) -> None:
    view = shown(tmp_path / name, {"attn_weights": RUN.weights, **tensors_of(RUN)}, sequence=1)
    np.testing.assert_allclose(dense(view), RUN.weights[1])
    assert view.title == f"attention weights in {name}"


@pytest.mark.parametrize("name", FORMATS[:3])
def test_query_and_key_make_them_under_a_spec(tmp_path: Path, name: str) -> None:
    tensors = {role: array for role, array in tensors_of(RUN).items() if role in "qk"}
    view = shown(tmp_path / name, tensors, spec={"causal": True}, sequence=1)
    np.testing.assert_allclose(dense(view), RUN.weights[1], atol=1e-12)
    assert view.heads[0].value is None


@pytest.mark.parametrize("layout", ["BTHD", "BTE"])
def test_what_nobody_said_is_read_from_the_output(tmp_path: Path, layout: str) -> None:
    view = shown(tmp_path / "dump.npz", tensors_of(RUN, layout))
    np.testing.assert_allclose(dense(view), RUN.weights[0], atol=1e-12)
    assert "The output is what these weights make" in view.notes
    assert view.heads[0].value is not None


def test_an_output_that_is_not_theirs_is_said(tmp_path: Path) -> None:
    wrong = run_of(replacements=next(iter(CATALOGUE["scale-missing"].variants(SPEC))).replacements)
    view = shown(tmp_path / "dump.npz", tensors_of(wrong), spec={"causal": True})
    assert "The output is not what these weights make" in view.notes


def test_where_nothing_says_which_attention_a_plain_one_is_assumed(tmp_path: Path) -> None:
    tensors = tensors_of(RUN)
    view = shown(tmp_path / "dump.npz", {"q": tensors["q"], "k": tensors["k"]})
    np.testing.assert_allclose(dense(view), run_of(SPEC.but(mask=qkv.AttentionSpec().mask)).weights[0], atol=1e-12)
    assert any("a plain one is assumed" in note for note in view.notes)


def test_layers_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    tensors = {f"layers.{n}.attn.weights": RUN.weights for n in (10, 2, 0)}
    path = tmp_path / "dump.safetensors"
    assert [layer.name for layer in shown(path, tensors).layers] == ["layers.0.attn", "layers.2.attn", "layers.10.attn"]
    assert [layer.name for layer in qkv.show(path, layer=2).layers] == ["layers.2.attn"]
    assert [layer.name for layer in qkv.show(path, tensors={"prefix": "layers.10"}).layers] == ["layers.10.attn"]
    with pytest.raises(CandidateError, match="holds no layer 3") as caught:
        qkv.show(path, layer=3)
    assert "'layers.10.attn'" in caught.value.hint


def test_a_handed_mask_is_read_with_query_and_key(tmp_path: Path) -> None:
    allowed = np.random.default_rng(0).random((7, 7)) > 0.4
    allowed[:, 0] = True
    run = run_of(SPEC.but(mask=qkv.AttentionSpec().mask), may_attend=allowed)
    view = shown(tmp_path / "dump.npz", {**tensors_of(run), "mask": allowed}, spec={"causal": False})
    np.testing.assert_allclose(dense(view), run.weights[0], atol=1e-12)


def test_one_array_alone_is_the_weights_whatever_it_is_called(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", RUN.weights)
    np.testing.assert_array_equal(dense(qkv.show(str(tmp_path / "mine.npy"))), RUN.weights[0])


def test_a_tensor_called_attn_is_weights_if_its_rows_are_shares(tmp_path: Path) -> None:
    tensors = tensors_of(RUN)
    view = shown(tmp_path / "weights.npz", {"attn": RUN.weights, "q": tensors["q"], "k": tensors["k"]})
    np.testing.assert_array_equal(dense(view), RUN.weights[0])
    view = shown(tmp_path / "output.npz", {"attn": tensors["out"], **{role: tensors[role] for role in "qkv"}})
    np.testing.assert_allclose(dense(view), RUN.weights[0], atol=1e-12)


def test_unusual_names_are_said(tmp_path: Path) -> None:
    path = tmp_path / "dump.npz"
    with pytest.raises(
        CandidateError, match=r"no attention weights.*it holds foo \(2, 6, 7, 7\), bar \(2,\)"
    ) as caught:
        shown(path, {"foo": RUN.weights, "bar": np.zeros(2)})
    assert "--tensor weights=NAME" in caught.value.hint
    np.testing.assert_array_equal(dense(qkv.show(path, tensors={"weights": "foo"})), RUN.weights[0])
    with pytest.raises(CandidateError, match="holds no tensor 'fo'"):
        qkv.show(path, tensors={"weights": "fo"})


def test_several_of_one_role_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="could be the weights: attn_weights, probs"):
        shown(tmp_path / "dump.npz", {"attn_weights": RUN.weights, "probs": RUN.weights})


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"attn_weights": np.zeros(3)}, "attention weights are (query, key)"),
        ({"attn_weights": np.zeros((0, 4))}, "there is nothing in it"),
        ({"attn_weights": np.zeros((2, 2), complex)}, "complex128 values"),
        ({"attn_weights": np.array([[1.0, -np.inf]])}, "infinite entries"),
        ({"q": np.zeros((4, 8)), "k": np.zeros((4, 6))}, "(q (4, 8), k (4, 6)): "),
        ({"q": np.zeros(4), "k": np.zeros(4)}, "q has one axis"),
    ],
)
def test_what_can_not_be_shown_says_why(tmp_path: Path, tensors: dict[str, Array], said: str) -> None:
    with pytest.raises((CandidateError, ShapeError)) as caught:
        shown(tmp_path / "dump.npz", tensors)
    assert said in str(caught.value)


def test_a_dump_that_is_too_large_says_how_to_show_a_part(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="more than the memory limit") as caught:
        shown(tmp_path / "dump.npz", {"attn_weights": RUN.weights}, memory_limit=100)
    assert "--layer 0" in caught.value.hint


def test_a_quantised_tensor_is_shown_as_the_numbers_that_it_stands_for(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to drop these
        held = torch.quantize_per_tensor(torch.tensor(RUN.weights[0], dtype=torch.float32), 1 / 128, 0, torch.quint8)
    torch.save({"attn_weights": held}, tmp_path / "dump.pt")
    np.testing.assert_allclose(dense(qkv.show(tmp_path / "dump.pt")), RUN.weights[0], atol=1 / 256)


def test_a_file_of_many_tensors_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    path, load = str(tmp_path / "dump.pt"), Mock(wraps=torch.load)
    monkeypatch.setattr(torch, "load", load)
    for value in (1.0, 2.0):
        torch.save({name: torch.full((2, 2), value) for name in "abc"}, path)
        assert [float(torch_array(path, name)[0, 0]) for name in torch_shapes(path)] == [value] * 3
    assert load.call_count == 2
