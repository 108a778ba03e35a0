"""What lies at the edges of `attend`: empty, tiny and odd sizes, hidden NaN, wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.compute import attend, plan
from qkv.errors import ShapeError, SpecError
from qkv.masks import per_head


def heads(*sizes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 4)),
        ((2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
        ((2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 0, 4)),
        ((2, 2, 3, 0), (2, 2, 5, 0), (2, 2, 5, 4)),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 0)),
        ((2, 0, 3, 4), (2, 1, 5, 4), (2, 1, 5, 4)),
    ],
    ids=["no sequences", "no queries", "no keys", "no channels", "no values", "no heads"],
)
def test_empty_axes(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> None:
    given = [heads(*shape).requires_grad_() for shape in (query, key, value)]
    output = attend(*given, mask=qkv.causal())
    assert output.shape == (*query[:3], value[3])
    output.sum().backward()
    assert [x.grad.shape for x in given if x.grad is not None] == [query, key, value]
    if key[2] == 0:
        assert (output == 0).all()
        assert attend(*given, empty_row="nan").isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [1, 257])
def test_odd_head_sizes(dtype: torch.dtype, head_dim: int) -> None:
    query, key, value = (heads(1, 2, 70, head_dim, dtype=dtype) for _ in range(3))
    output = attend(query, key, value, mask=qkv.causal() & qkv.window(9))
    right = attend(query.double(), key.double(), value.double(), mask=qkv.causal() & qkv.window(9))
    torch.testing.assert_close(output.double(), right, atol=2e-2, rtol=2e-2)


def test_one_token_attends_to_itself() -> None:
    x = heads(1, 1, 1, 8)
    torch.testing.assert_close(attend(x, x, x, mask=qkv.causal()), x)


def test_one_head_may_be_written_without_its_axis() -> None:
    query, key, value = heads(5, 8), heads(7, 8), heads(7, 8)
    whole = attend(query[None, None], key[None, None], value[None, None], mask=qkv.causal())
    torch.testing.assert_close(attend(query, key, value, mask="causal"), whole[0, 0])
    torch.testing.assert_close(attend(query[None], key[None], value[None], mask="causal"), whole[:, 0])
    output, lse, weights = attend(query, key, value, return_lse=True, return_weights=True)
    assert (output.shape, lse.shape, weights.shape) == ((5, 8), (5,), (5, 7))


@pytest.mark.parametrize("rows", [[], [0], torch.tensor([3, 0]), (-1,)], ids=str)
def test_the_weights_of_chosen_queries_come_beside_the_output(rows: Any) -> None:
    query, key, value = heads(2, 4, 5, 8), heads(2, 2, 7, 8), heads(2, 2, 7, 8)
    whole = attend(query, key, value, mask=qkv.causal(), return_weights=True)[1]
    output, weights = attend(query, key, value, mask=qkv.causal(), return_weights=rows)
    assert output.shape == (2, 4, 5, 8)
    torch.testing.assert_close(weights, whole[:, :, list(rows)])


def test_weights_that_nobody_asked_for_are_not_given() -> None:
    x = heads(1, 2, 5, 0)  # heads without channels, of which all the scores are made
    assert isinstance(attend(x, x, x), torch.Tensor)


def test_the_last_query_stands_at_the_last_key() -> None:
    x = heads(1, 2, 9, 8)
    whole = attend(x, x, x, mask=qkv.causal() & qkv.window(4))
    torch.testing.assert_close(attend(x[:, :, 6:], x, x, mask=qkv.causal() & qkv.window(4)), whole[:, :, 6:])
    first = attend(x[:, :, :3], x, x, mask=qkv.causal() & qkv.window(4), query_offset=0)
    torch.testing.assert_close(first, whole[:, :, :3])


@pytest.mark.parametrize("rule", ["zero", "nan", "uniform"])
def test_a_row_that_may_attend_to_nothing(rule: Any) -> None:
    query, key, value = heads(2, 4, 6, 8), heads(2, 2, 6, 8), heads(2, 2, 6, 8)
    output = attend(query, key, value, mask=~qkv.causal(), empty_row=rule)
    expected = {
        "zero": torch.zeros(2, 4, 8, dtype=torch.float64),
        "nan": torch.full((2, 4, 8), torch.nan, dtype=torch.float64),
        "uniform": value.mean(2).repeat_interleave(2, 1),
    }[rule]
    torch.testing.assert_close(output[:, :, -1], expected, equal_nan=True)
    assert output[:, :, :-1].isfinite().all()


def test_hidden_numbers_must_be_finite_but_where_a_whole_block_is_skipped() -> None:
    query, key, value = heads(1, 1, 256, 8), heads(1, 1, 256, 8), heads(1, 1, 256, 8)
    mask = qkv.padding([200], queries=True)
    right = attend(query, key, value, mask=mask)
    value[:, :, 200:] = torch.nan
    torch.testing.assert_close(attend(query, key, value, mask=mask), right)
    value[:, :, 100] = torch.nan
    hidden = torch.ones(256, dtype=torch.bool)
    hidden[100] = False
    assert attend(query, key, value, mask=hidden[None]).isnan().any()


def test_dropout_leaves_the_mean_and_repeats_with_its_seed() -> None:
    query, key, value = heads(1, 2, 80, 8), heads(1, 2, 80, 8), torch.ones(1, 2, 80, 8, dtype=torch.float64)
    key.requires_grad_()
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(attend(query, key, value, mask=qkv.causal(), dropout_p=0.25))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert abs(float(runs[0][:, :, 20:].detach().mean()) - 1) < 0.05


def test_what_dropout_keeps_is_scaled_exactly() -> None:
    query, key = torch.zeros(1, 1, 4, 2, dtype=torch.float64), torch.zeros(1, 1, 50, 2, dtype=torch.float64)
    kept = attend(query, key, torch.eye(50, dtype=torch.float64)[None, None], dropout_p=0.3)  # its weights
    torch.testing.assert_close(
        kept[kept > 0].unique(), torch.tensor([1 / 50 / 0.7], dtype=torch.float64), rtol=1e-15, atol=0
    )


@pytest.mark.parametrize("return_weights", [False, True])
def test_dropout_leaves_empty_rows_as_they_are(return_weights: bool) -> None:
    query, key = heads(1, 2, 3, 4), heads(1, 2, 9, 4)
    options: Any = {"mask": ~qkv.window(100), "empty_row": "uniform", "dropout_p": 0.5}
    output = attend(query, key, key, **options, return_lse=True, return_weights=return_weights)[0]
    torch.testing.assert_close(output, key.mean(2, keepdim=True).expand_as(query))


def test_gradients_under_dropout_are_those_of_what_was_kept() -> None:
    query, key, value = (heads(1, 4, 70, 4).requires_grad_() for _ in range(3))

    def run(*given: Tensor) -> Any:
        torch.manual_seed(3)
        return attend(*given, mask=qkv.causal() & qkv.window(40), dropout_p=0.5)

    assert torch.autograd.gradcheck(run, (query, key, value), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (query, key, value), fast_mode=True)


@pytest.mark.parametrize(("keys", "counts"), [(9001, [4, 1]), (8192, [4])])
def test_keys_are_shared_out_to_idle_threads(monkeypatch: pytest.MonkeyPatch, keys: int, counts: list[int]) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    query, key, value = heads(1, 4, 2, 8), heads(1, 2, keys, 8), heads(1, 2, keys, 8)
    made = plan(query, key, value)
    assert [tile.count for tile in made.tiles] == counts
    shared = [x.clone().requires_grad_() for x in (query, key, value)]
    whole = [x.clone().requires_grad_() for x in (query, key, value)]
    output, weighed = attend(*shared), attend(*whole, return_weights=True)[0]
    torch.testing.assert_close(output, weighed)
    output.square().sum().backward()
    weighed.square().sum().backward()
    for mine, its in zip(shared, whole, strict=True):
        torch.testing.assert_close(mine.grad, its.grad)


def test_without_the_private_operator_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [heads(2, 4, 70, 8), heads(2, 2, 70, 8), heads(2, 2, 70, 6)]
    options: dict[str, Any] = {"mask": qkv.causal() & qkv.window(20), "alibi": True}
    fused = attend(*given, **options)
    monkeypatch.setattr("qkv.compute.flash.available", lambda: False)
    assert plan(*given, **options).kernel == "blockwise"
    torch.testing.assert_close(attend(*given, **options), fused)


def test_what_is_wrong_with_the_arguments_is_said() -> None:
    query, key, value = heads(2, 4, 5, 8), heads(2, 2, 7, 8), heads(2, 2, 7, 8)
    call: Any = attend  # whatever the types say
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: call(query.numpy(), key, value), SpecError, "query is a ndarray, and must be a torch tensor"),
        (lambda: call(query.int(), key, value), SpecError, "query has dtype torch.int32"),
        (lambda: call(query, key.float(), value), SpecError, r"key is torch.float32 on cpu.*Try key.to\(query\)"),
        (lambda: call(query, key[:1], value), ShapeError, "query has 2 sequences, key has 1"),
        (lambda: call(query, key, value[:, :1]), ShapeError, "key has 2 heads, value has 1"),
        (lambda: call(query[:, :3], key, value), ShapeError, "query has 3 heads, and key 2"),
        (lambda: call(query, key, value[:, :, :6]), ShapeError, "there are 7 keys and 6 values"),
        (lambda: call(query, key[..., :4], value), ShapeError, "query has 8 channels, key has 4"),
        (lambda: call(query, key, value, mask=torch.ones(5, 7)), SpecError, r"make mask.bool\(\)"),
        (lambda: call(query, key, value, mask=torch.ones(5, 6).bool()), ShapeError, "axis key is 6 long.*must be 7"),
        (lambda: call(query, key, value, mask=torch.ones(2, 5, 7).bool()), ShapeError, r"Write mask\[:, None\]"),
        (lambda: call(query, key, value, mask=[1]), SpecError, "mask is a int"),
        (lambda: call(query, key, value, mask="casual"), SpecError, "did you mean 'causal'"),
        (lambda: call(query, key, value, mask=qkv.documents()), SpecError, r"write qkv.documents\(ids\)"),
        (lambda: call(query, key, value, mask=qkv.padding([1, 9])), ShapeError, "sequence 1 has 9 tokens"),
        (lambda: call(query, key, value, mask=per_head([qkv.causal()])), ShapeError, "head"),
        (lambda: call(query, key, value, bias=torch.ones(5, 7).bool()), SpecError, "Booleans are mask="),
        (lambda: call(query, key, value, bias=torch.ones(4, 7)), ShapeError, "axis query is 4 long, and must be 5"),
        (lambda: call(query, key, value, softcap=0.0), SpecError, "softcap is 0.0"),
        (lambda: call(query, key, value, dropout_p=1.0), SpecError, "dropout_p is 1.0"),
        (lambda: call(query, key, value, sinks=torch.ones(2)), ShapeError, r"for each query head, \(4,\)"),
        (lambda: call(query, key, value, alibi=[1.0]), ShapeError, "alibi is \\(1,\\)"),
        (lambda: call(query, key, value, empty_row="zeros"), SpecError, "did you mean 'zero'"),
        (lambda: call(query, key, value, precision="exact"), SpecError, "precision is 'exact'"),
        (lambda: call(query, key, value, query_offset="left"), SpecError, "query_offset is 'left'"),
        (lambda: call(query, key, value, return_weights=[0, 5]), SpecError, "asks for query 5, and there are 5"),
        (lambda: call(query, key, value, return_weights=[0.5]), SpecError, "whole numbers"),
        (lambda: call(query, key, value, maks=None), SpecError, "did you mean 'mask'"),
        (lambda: call(query, key, value, is_causal=True), SpecError, r"mask=qkv\.causal\(\)"),
        (lambda: plan(query, key, value, attn_mask=None), SpecError, "bias= takes numbers"),
    ]
    for mistake, error, message in wrong:
        with pytest.raises(error, match=message):
            mistake()
