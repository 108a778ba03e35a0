from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from qkv.errors import SpecError
from qkv.layers import MultiHeadAttention


@dataclass(frozen=True)
class Sizes:
    num_kv_heads: int
    group_size: int
    head_dim: int
    embed_dim: int
    query_len: int
    key_len: int
    causal: bool
    bias: bool
    masked: bool

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group_size

    def layer(self) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.embed_dim,
            self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            bias=self.bias,
            causal=self.causal,
        ).double()


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Every axis a size of its own, so that no two of them can change places unseen."""
    group_size, head_dim, embed_dim, query_len, key_len = draw(
        st.lists(st.integers(1, 12), min_size=5, max_size=5, unique=True)
    )
    yes_or_no = st.booleans()
    return Sizes(
        draw(st.integers(1, 3)),
        group_size % 4 + 1,
        head_dim,
        embed_dim,
        query_len,
        key_len,
        draw(yes_or_no),
        draw(yes_or_no),
        draw(yes_or_no),
    )


def by_loops(
    layer: MultiHeadAttention, query: torch.Tensor, key: torch.Tensor, may_attend: torch.Tensor
) -> torch.Tensor:
    """Self- or cross-attention of one sequence, head by head and query by query, with no reshaping at all."""
    group_size = layer.q_proj.out_features // layer.k_proj.out_features
    dim = layer.head_dim
    rows = []
    for i in range(len(query)):
        heads = []
        for head in range(layer.q_proj.out_features // dim):
            own = slice(head * dim, (head + 1) * dim)
            shared = slice(head // group_size * dim, (head // group_size + 1) * dim)
            q = layer.q_proj(query[i])[own]
            seen = [j for j in range(len(key)) if may_attend[head, i, j]]
            scores = [float(q @ layer.k_proj(key[j])[shared]) / math.sqrt(dim) for j in seen]
            total = sum(math.exp(score) for score in scores)
            context = torch.zeros(dim, dtype=torch.float64)
            for j, score in zip(seen, scores, strict=True):
                context = context + math.exp(score) / total * layer.v_proj(key[j])[shared]
            heads.append(context)
        rows.append(layer.out_proj(torch.cat(heads)))
    return torch.stack(rows)


@settings(max_examples=40)
@given(sizes=sizes())
@torch.no_grad()
def test_every_layout_of_heads_agrees_with_plain_loops(sizes: Sizes) -> None:
    layer = sizes.layer()
    query = torch.randn(2, sizes.query_len, sizes.embed_dim, dtype=torch.float64)
    key = torch.randn(2, sizes.key_len, sizes.embed_dim, dtype=torch.float64)
    mask = torch.rand(2, sizes.num_heads, sizes.query_len, sizes.key_len) < 0.6 if sizes.masked else None
    output = layer(query, key, mask=mask)
    for sequence in range(2):
        may_attend = torch.ones(sizes.num_heads, sizes.query_len, sizes.key_len, dtype=torch.bool)
        if mask is not None:
            may_attend = mask[sequence].clone()
        for i in range(sizes.query_len):
            for j in range(sizes.key_len):
                if sizes.causal and j > i + sizes.key_len - sizes.query_len:
                    may_attend[:, i, j] = False
        expected = by_loops(layer, query[sequence], key[sequence], may_attend)
        torch.testing.assert_close(output[sequence], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_a_group_of_query_heads_shares_one_key_and_value_head(num_kv_heads: int) -> None:
    layer = MultiHeadAttention(10, 6, num_kv_heads=num_kv_heads, head_dim=4, causal=True).double()
    inputs = torch.randn(2, 7, 10, dtype=torch.float64)

    def heads(projection: torch.nn.Linear) -> torch.Tensor:
        return projection(inputs).reshape(2, 7, -1, 4).permute(0, 2, 1, 3)

    context = F.scaled_dot_product_attention(
        heads(layer.q_proj),
        heads(layer.k_proj).repeat_interleave(6 // num_kv_heads, dim=1),
        heads(layer.v_proj).repeat_interleave(6 // num_kv_heads, dim=1),
        is_causal=True,
    )
    expected = layer.out_proj(context.permute(0, 2, 1, 3).reshape(2, 7, 24))
    torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=1e-13)


def test_padding_on_either_side_changes_nothing() -> None:
    layer = MultiHeadAttention(12, 3, causal=True, rope="halves").double()
    short = torch.randn(1, 5, 12, dtype=torch.float64)
    padding = torch.randn(1, 3, 12, dtype=torch.float64)
    real, no = torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 3, dtype=torch.bool)
    right = layer(torch.cat([short, padding], 1), mask=torch.cat([real, no], 1)[:, None, None, :])[:, :5]
    left = layer(torch.cat([padding, short], 1), mask=torch.cat([no, real], 1)[:, None, None, :])[:, 3:]
    torch.testing.assert_close(right, layer(short), rtol=0, atol=1e-13)
    torch.testing.assert_close(left, layer(short), rtol=0, atol=1e-13)


@pytest.mark.parametrize("bias", [False, True])
def test_a_query_that_may_attend_to_nothing_gets_the_bias_of_the_output(bias: bool) -> None:
    layer = MultiHeadAttention(12, 4, bias=bias)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[3] = False
    output = layer(torch.randn(2, 5, 12), mask=mask)
    expected = layer.out_proj.bias if bias else torch.zeros(12)
    assert torch.equal(output[:, 3], expected.expand(2, 12))
    assert output.isfinite().all()


def test_dropout_falls_on_the_weights_in_training_and_is_off_in_evaluation() -> None:
    layer = MultiHeadAttention(12, 4, dropout=0.3)
    inputs = torch.randn(2, 5, 12)
    layer.eval()
    assert torch.equal(layer(inputs), layer(inputs))
    assert torch.equal(layer(inputs), layer.train(False)(inputs))
    layer.train()
    assert not torch.equal(layer(inputs), layer(inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_stays_near(dtype: torch.dtype) -> None:
    layer = MultiHeadAttention(48, 6, num_kv_heads=2, causal=True, rope="halves").to(dtype)
    inputs = torch.randn(2, 33, 48).to(dtype)
    output = layer(inputs)
    assert output.dtype == dtype
    exact = MultiHeadAttention(48, 6, num_kv_heads=2, causal=True, rope="halves").double()
    exact.load_state_dict(layer.state_dict())
    error = (output.double() - exact(inputs.double())).abs().max()
    assert error < 8 * torch.finfo(dtype).eps


def test_scores_that_half_precision_holds_only_after_the_scale_do_not_overflow() -> None:
    layer = MultiHeadAttention(64, 1).half()
    with torch.no_grad():
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
            projection.weight.copy_(torch.eye(64))
    inputs = torch.zeros(2, 64, dtype=torch.float16)
    inputs[0] = 60.0  # 64 * 60 * 60 = 230400, and 28800 after the scale
    assert layer(inputs).isfinite().all()


@pytest.mark.parametrize("rope", [None, "halves", "adjacent"])
def test_gradients_are_right(rope: str | None) -> None:
    layer = MultiHeadAttention(5, 4, num_kv_heads=2, head_dim=2, bias=True, causal=True, rope=rope).double()
    inputs = torch.randn(1, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, inputs)
    parameters = [*layer.parameters()]
    names = [name for name, _ in layer.named_parameters()]

    def of_parameters(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (inputs.detach(),))

    assert torch.autograd.gradcheck(of_parameters, parameters)


def test_sizes_that_do_not_divide_are_refused_with_the_line_to_write() -> None:
    with pytest.raises(SpecError, match=r"embed_dim=50 does not divide into num_heads=6 equal heads") as caught:
        MultiHeadAttention(50, 6)
    assert "Write num_heads=5, or say head_dim yourself: head_dim=8." in str(caught.value)
    with pytest.raises(SpecError, match=r"num_heads=6 and num_kv_heads=4") as caught:
        MultiHeadAttention(48, 6, num_kv_heads=4)
    assert "Write num_kv_heads=3." in str(caught.value)
    with pytest.raises(SpecError, match=r"num_heads=0 and num_kv_heads=0"):
        MultiHeadAttention(48, 0)
