"""Weights of functions and modules that only give outputs, beside the right ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qkv
from command_line import RIGHT
from qkv.adapters.abilities import Abilities
from qkv.captures.black_box import dense
from qkv.errors import CandidateError
from qkv.pictures.view import AttentionView
from qkv.probes import Setting, probes_for

SOFTMAX_OVER_QUERIES = RIGHT.replace("max(-1", "max(-2").replace("sum(-1", "sum(-2")


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return torch.softmax(scores, dim=-1) @ value


def unscaled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention(query * query.shape[-1] ** 0.5, key, value)


class MergedByView(nn.Module):
    """Causal, and its heads are merged without a transpose."""

    def __init__(self, d_in: int, d_out: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            proj(x).view(batch, length, self.num_heads, -1).transpose(1, 2)
            for proj in (self.W_query, self.W_key, self.W_value)
        )
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        return (torch.softmax(scores, dim=-1) @ value).reshape(batch, length, -1)


def own_and_right(view: AttentionView) -> tuple[Any, Any]:
    assert [layer.name for layer in view.layers][1:] == ["right"]
    assert [head.against for head in view.layers[0].heads] == [f"1.{n}" for n in range(len(view.layers[0].heads))]
    return dense(view.layers[0].heads), dense(view.layers[1].heads)


def test_a_function_is_read_from_outside_and_stands_beside_the_right_weights() -> None:
    view = qkv.show(attention, spec={"causal": True, "num_heads": 2}, length=5)
    own, right = own_and_right(view)
    assert own.shape == (2, 5, 5)
    np.testing.assert_allclose(own, right, atol=1e-9)
    np.testing.assert_allclose(own.sum(-1), 1, atol=1e-9)
    assert not view.heads[0].rows(slice(0, 5)).may_attend[np.triu_indices(5, 1)].any()


def test_a_function_is_read_on_what_a_check_begins_with() -> None:
    view = qkv.show(attention, spec={"causal": True, "num_heads": 2})
    sizes = Abilities(num_heads=2, num_kv_heads=2, head_dim=8, value_dim=8)
    spec = qkv.AttentionSpec(num_heads=2, mask=qkv.causal())
    probe = next(probes_for(Setting(spec, sizes)))
    assert probe.name == "ordinary"
    np.testing.assert_allclose(dense(view.layers[0].heads), qkv.run_stages(spec, probe.inputs).weights[0], atol=1e-9)


def test_it_is_held_to_the_heads_that_are_shown() -> None:
    view = qkv.show(attention, spec={"causal": True})
    (held,) = (note for note in view.notes if note.startswith("Held to"))
    assert held.startswith(f"Held to {len(view.layers[0].heads)} heads of 8 channels, scores times 1/sqrt(8), causal:")


def test_a_wrong_function_is_shown_with_its_own_weights() -> None:
    view = qkv.show(unscaled, spec={"causal": True, "num_heads": 2})
    own, right = own_and_right(view)
    assert np.abs(own - right).max() > 0.05
    # Weights are powers: those without the root are those with it, to the power of the root.
    sharper = right ** np.sqrt(8)
    np.testing.assert_allclose(own, sharper / sharper.sum(-1, keepdims=True), atol=1e-9)
    assert any("off by up to" in note for note in view.notes)


def test_the_shown_weights_are_those_that_it_uses() -> None:
    def sharpened(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(3 * query, key, value)

    own, _ = own_and_right(qkv.show(sharpened, spec={"causal": True, "num_heads": 1, "num_kv_heads": 1}, seed=4))
    once, _ = own_and_right(qkv.show(attention, spec={"causal": True, "num_heads": 1, "num_kv_heads": 1}, seed=4))
    np.testing.assert_allclose(own, once**3 / (once**3).sum(-1, keepdims=True), atol=1e-9)


@pytest.mark.slow
def test_a_module_whose_output_hides_its_weights_is_shown_by_its_fault() -> None:
    view = qkv.show(MergedByView)
    own, right = own_and_right(view)
    np.testing.assert_array_equal(own, right)
    assert view.notes[0].startswith("Not read from outside, but computed with the fault")
    assert view.notes[1] == "These weights are right: it goes wrong with what comes after them"


def test_a_softmax_over_the_queries_is_seen_in_its_columns(tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(SOFTMAX_OVER_QUERIES)
    view = qkv.show(tmp_path / "attention.py")
    own, _ = own_and_right(view)
    np.testing.assert_allclose(own.sum(-2), 1, atol=1e-9)
    assert view.title.endswith("attention.py")


def test_heads_of_random_inputs_are_called_by_nothing() -> None:
    assert {head.name for head in qkv.show(attention, spec={"causal": True, "num_heads": 2}, length=12).heads} == {
        "head 0",
        "head 1",
    }


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="no such file"):
        qkv.show(tmp_path / "missing.py")


def test_it_is_read_at_a_length_that_it_takes() -> None:
    def eight(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        assert query.shape[2] == 8, "blocks of 8"
        return attention(query, key, value)

    assert qkv.show(eight, spec={"causal": True, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4}).shape == (8, 8)
