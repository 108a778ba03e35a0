"""What is heard while a torch module runs, however it computes its attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import qkv
from qkv.adapters import listening as ear
from qkv.adapters.listening import listening
from qkv.errors import CandidateError

torch.manual_seed(0)


class Plain(nn.Module):
    """Causal in plain operations, sdpa or torch's own layer."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.proj = nn.Linear(12, 36)
        self.softmax = nn.Softmax(dim=-1)
        self.layer = nn.MultiheadAttention(12, 3, batch_first=True)
        self.layer.in_proj_weight, self.layer.in_proj_bias = self.proj.weight, self.proj.bias

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        if self.form == "layer":
            return self.layer(x, x, x, attn_mask=hidden, need_weights=False)[0]
        query, key, value = self.proj(x).view(*x.shape[:2], 3, 3, 4).permute(2, 0, 3, 1, 4)
        if self.form == "is_causal":
            context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        elif self.form == "boolean":
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=~hidden)
        elif self.form == "additive":
            added = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
        else:
            scores = (query @ key.mT / 2).masked_fill(hidden, -torch.inf)
            ways = {
                "function": torch.softmax,
                "functional": F.softmax,
                "method": Tensor.softmax,
                "module": lambda scores, dim: self.softmax(scores),
            }
            context = ways[self.form](scores, dim=-1) @ value
        return self.layer.out_proj(context.transpose(1, 2).flatten(2))


FORMS = ["function", "functional", "method", "module", "is_causal", "boolean", "additive", "layer"]


def expected(module: Plain, x: Tensor) -> Tensor:
    query, key, _ = module.proj(x).view(*x.shape[:2], 3, 3, 4).permute(2, 0, 3, 1, 4)
    rows = []
    for at in range(x.shape[1]):  # one query after the other, over the keys that it sees
        scores = (query[:, :, at, None] * key[:, :, : at + 1]).sum(-1) / 2
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        rows.append(F.pad(weights, (0, x.shape[1] - at - 1)))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_weights_of_every_form_are_heard(form: str) -> None:
    module, x = Plain(form).eval(), torch.randn(2, 5, 12)
    before = module(x)
    view = qkv.show(module, inputs=x, sequence=1)
    for place, head in enumerate(view.heads):
        rows = head.rows(slice(0, 5))
        torch.testing.assert_close(torch.tensor(rows.weights).nan_to_num(), expected(module, x)[1, place])
        assert (rows.may_attend == torch.ones(5, 5).tril().bool().numpy()).all()
    torch.testing.assert_close(module(x), before)
    assert len(view.heads) == 3
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


@torch.no_grad()
def test_what_is_called_while_it_is_listened_to_gives_what_it_gives() -> None:
    layer, x = nn.MultiheadAttention(12, 3, batch_first=True).eval(), torch.randn(2, 5, 12)
    for wanted in ({"need_weights": False}, {}, {"average_attn_weights": False}):
        output, weights = layer(x, x, x, **wanted)
        with listening(layer) as heard:
            again, same = layer(x, x, x, **wanted)
        torch.testing.assert_close(again, output)
        assert len(heard) == 1
        assert (weights is None) == (same is None)
        if weights is not None:
            torch.testing.assert_close(same, weights)


def test_layers_are_called_by_their_modules() -> None:
    block = nn.TransformerEncoderLayer(12, 3, 12, batch_first=True)
    model = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    view = qkv.show(model, inputs=torch.randn(1, 4, 12))
    assert [layer.name for layer in view.layers] == ["layer 0 · layers.0.self_attn", "layer 1 · layers.1.self_attn"]
    assert [layer.name for layer in qkv.show(model, inputs=torch.randn(1, 4, 12), layer=1).layers] == [
        "layer 1 · layers.1.self_attn"
    ]


def test_shared_key_heads_and_a_scale_of_ones_own() -> None:
    def shared(x: Tensor) -> Tensor:
        query, key = x.view(1, 4, 5, 3), x[:, :30].view(1, 2, 5, 3)
        return F.scaled_dot_product_attention(query, key, key, scale=0.5, enable_gqa=True)

    x = torch.randn(1, 60)
    scores = x.view(4, 5, 3) @ x[:, :30].view(2, 5, 3).repeat_interleave(2, 0).mT * 0.5
    view = qkv.show(shared, inputs=x)
    for place, head in enumerate(view.heads):
        torch.testing.assert_close(torch.tensor(head.rows(slice(0, 5)).weights), torch.softmax(scores, -1)[place])


@pytest.mark.parametrize("given", [torch.randn(5, 4), (torch.randn(5, 4),), {"x": torch.randn(5, 4)}])
def test_one_head_without_a_batch_in_any_form_of_call(given: Any) -> None:
    view = qkv.show(lambda x: torch.softmax(x @ x.T, dim=-1) @ x, inputs=given)
    assert view.shape == (5, 5)


def test_a_module_that_raises_or_is_not_heard_says_so() -> None:
    with pytest.raises(CandidateError, match="calling Linear raised RuntimeError"):
        qkv.show(nn.Linear(3, 3), inputs=torch.randn(4, 5))
    with pytest.raises(CandidateError, match="Linear ran, and no softmax") as caught:
        qkv.show(nn.Linear(3, 3), inputs=torch.randn(4, 3))
    assert "qkv.show(module)" in caught.value.hint


def test_too_many_weights_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear, "MOST_ENTRIES", 100)
    with pytest.raises(CandidateError, match="more than 0 million attention weights") as caught:
        qkv.show(Plain("is_causal"), inputs=torch.randn(2, 7, 12))
    assert "fewer tokens" in caught.value.hint
