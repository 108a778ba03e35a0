"""`attend` beside the float64 oracle, over drawn configurations: forward, and backward by the plain formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from qkv.compute import attend, plan
from qkv.compute.arguments import read_arguments
from qkv.compute.composite import composite
from qkv.masks import (
    Mask,
    causal,
    dilated,
    documents,
    everything,
    global_tokens,
    padding,
    per_head,
    prefix,
    rule,
    window,
)
from qkv.oracle import Inputs, run_stages
from qkv.positions.alibi import Alibi
from qkv.spec import AttentionSpec

BOUND = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 2e-2}
"""Largest error, over one more than the largest number there is."""

LENGTHS = st.sampled_from([1, 2, 17, 64, 65, 130, 200, 300])


@dataclass(frozen=True)
class Case:
    """One call of `attend`: its sizes, its options and the seed of its numbers."""

    batch: int
    kv_heads: int
    group: int
    query_len: int
    key_len: int
    head_dim: int
    value_dim: int
    make_mask: Callable[[], Mask]
    options: dict[str, Any]
    extras: frozenset[str]
    strided: bool
    seed: int

    @cached_property
    def mask(self) -> Mask:
        return self.make_mask()

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    def tensors(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Query, key, value, and the bias and sinks where there are some."""
        generator = torch.Generator().manual_seed(self.seed)

        def draw(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)

        made = {
            "query": draw(self.batch, self.heads, self.query_len, self.head_dim),
            "key": draw(self.batch, self.kv_heads, self.key_len, self.head_dim),
            "value": draw(self.batch, self.kv_heads, self.key_len, self.value_dim),
        }
        if self.strided:
            made = {name: x.transpose(1, 2).contiguous().transpose(1, 2) for name, x in made.items()}
        if "bias" in self.extras:
            made["bias"] = draw(1, self.heads, self.query_len, self.key_len)
        if "row bias" in self.extras:
            made["bias"] = draw(self.batch, 1, 1, self.key_len)
        if "sinks" in self.extras:
            made["sinks"] = draw(self.heads)
        return {name: x.requires_grad_() for name, x in made.items()}

    def table(self) -> Tensor | None:
        """Booleans besides the mask, where there are some."""
        if "table" not in self.extras:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(self.batch, 1, self.query_len, self.key_len, generator=generator) > 0.3

    def arguments(self, dtype: torch.dtype) -> dict[str, Any]:
        """What `attend` is given."""
        table = self.table()
        return {**self.tensors(dtype), **self.options, "mask": self.mask if table is None else (self.mask, table)}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch, kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 3]))
    key_len = draw(LENGTHS)
    query_len = draw(st.one_of(st.just(key_len), LENGTHS))
    head_dim = draw(st.sampled_from([1, 8, 20]))
    extras = draw(st.sets(st.sampled_from(["bias", "row bias", "sinks", "table"]), max_size=2))
    options: dict[str, Any] = {}
    choices: dict[str, list[Any]] = {
        "scale": [0.3, 0.0, -0.5],
        "softcap": [2.0],
        "alibi": [True],
        "empty_row": ["nan", "uniform"],
        "precision": ["high", "low"],
    }
    if draw(st.booleans()):
        options["query_offset"] = draw(st.sampled_from(["top_left", "bottom_right", 3, -2]))
    for name, values in choices.items():
        if draw(st.integers(0, 3)) == 0:
            options[name] = draw(st.sampled_from(values))
    return Case(
        batch,
        kv_heads,
        group,
        query_len,
        key_len,
        head_dim,
        draw(st.sampled_from([head_dim, head_dim, 5, 24])),
        draw(masks(batch, kv_heads * group, key_len)),
        options,
        frozenset(extras),
        draw(st.booleans()),
        draw(st.integers(0, 2**31)),
    )


def masks(batch: int, heads: int, key_len: int) -> st.SearchStrategy[Callable[[], Mask]]:
    """Makers of masks: the masks themselves are made in the test, not while it is drawn."""
    cuts = st.lists(st.integers(0, key_len), max_size=5)
    one = st.sampled_from([1, 5, 33, 70])

    def ids(cuts: list[int]) -> Any:
        return np.searchsorted(np.sort(cuts), range(key_len))

    def by_head(windows: list[bool]) -> Mask:
        return per_head([window(9) if one else causal() for one in windows])

    def made(strategy: st.SearchStrategy[Any], make: Callable[[Any], Mask]) -> st.SearchStrategy[Callable[[], Mask]]:
        return strategy.map(lambda value: lambda: make(value))

    simple = st.one_of(
        made(st.integers(-3, 3), causal),
        made(one, window),
        made(one, prefix),
        made(st.sampled_from([1, 3]), dilated),
        made(one, global_tokens),
        made(st.sampled_from([2, 3]), lambda step: rule(lambda query, key: (query + 2 * key) % step != 0)),
        made(cuts, lambda cuts: documents(ids(cuts))),
        made(st.lists(cuts, min_size=batch, max_size=batch), lambda rows: documents(np.stack([*map(ids, rows)]))),
        made(st.lists(st.integers(0, key_len), min_size=batch, max_size=batch), padding),
        made(st.integers(0, key_len), lambda length: padding([length], queries=True)),
        made(st.lists(st.booleans(), min_size=heads, max_size=heads), by_head),
        made(st.sampled_from([40, 64]), lambda size: documents(np.arange(key_len) // size)),
        st.just(everything),
    )
    joined: list[Callable[[Mask, Mask], Mask]] = [
        lambda left, right: left & right,
        lambda left, right: left & causal(),
        lambda left, right: left | right,
        lambda left, right: ~left & right,
    ]
    return st.recursive(
        simple,
        lambda inner: st.builds(
            lambda left, right, join: lambda: join(left(), right()), inner, simple, st.sampled_from(joined)
        ),
        max_leaves=3,
    )


@given(cases(), st.sampled_from([torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16]))
@settings(max_examples=60, deadline=None)
def test_forward(case: Case, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype)
    output, lse, weights = attend(**arguments, return_lse=True, return_weights=True)
    spec, inputs = asked(case, {name: x.detach().double().numpy() for name, x in case.tensors(dtype).items()})
    expected = run_stages(spec, inputs)
    context = expected.context.reshape(case.batch, case.query_len, case.heads, case.value_dim).swapaxes(1, 2)
    assert_near(output, context, dtype)
    assert_near(weights, expected.weights, dtype)
    with torch.no_grad():
        fast, fast_lse, some = attend(**arguments, return_lse=True, return_weights=[-1, 0])
        torch.testing.assert_close(attend(**arguments), fast, rtol=0, atol=0, equal_nan=True)
    assert_near(fast, context, dtype)
    assert_near(some, expected.weights[:, :, [-1, 0]], dtype)
    assert_near(fast_lse, lse.detach(), dtype)
    assert plan(**arguments).kernel != "composite"


def asked(case: Case, arrays: dict[str, Any]) -> tuple[AttentionSpec, Inputs]:
    """What the oracle is asked: the same in its own words."""
    options = dict(case.options)
    options.pop("precision", None)
    table = case.table()
    spec = AttentionSpec(
        case.heads,
        case.kv_heads,
        case.head_dim,
        value_dim=case.value_dim,
        out_proj=False,
        mask=case.mask,
        alibi=Alibi() if options.pop("alibi", False) else None,
        sinks="sinks" in arrays,
        **options,
    )
    return spec, Inputs(**arrays, may_attend=None if table is None else table.numpy())


@given(cases(), st.sampled_from([torch.float64, torch.float64, torch.float32, torch.bfloat16]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_backward(case: Case, dtype: torch.dtype, through_lse: bool) -> None:
    tensors = case.tensors(dtype)
    exact = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    arguments = case.arguments(dtype)
    got = attend(**{**arguments, **tensors}, return_lse=True)
    right = composite(read_arguments(**{**arguments, **exact}))
    of_got, of_right = (
        torch.autograd.grad(total(pair, through_lse), list(by.values()), materialize_grads=True)
        for pair, by in ((got, tensors), (right[:2], exact))
    )
    for name, mine, its in zip(tensors, of_got, of_right, strict=True):
        assert_near(mine, its, dtype, name)


def total(pair: tuple[Tensor, ...], through_lse: bool) -> Tensor:
    """A number that depends on every finite entry, on each in its own way."""
    sums = []
    for x in pair if through_lse else pair[:1]:
        factors = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
        there = torch.isfinite(x.detach())
        sums.append((x.masked_fill(~there, 0) * factors.masked_fill(~there, 0)).sum().double())
    return sum(sums[1:], sums[0])


def assert_near(got: Tensor, expected: Any, dtype: torch.dtype, name: str = "") -> None:
    mine, right = got.detach().double().numpy(), np.asarray(torch.as_tensor(expected).detach().double())
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(right), err_msg=name)
    finite = np.isfinite(right)
    np.testing.assert_array_equal(mine[~finite], right[~finite], err_msg=name)
    error = np.abs(mine[finite] - right[finite]).max(initial=0) / (1 + np.abs(right)[finite].max(initial=0))
    assert error < BOUND[dtype], name


SMALL = Case(2, 2, 2, 5, 7, 4, 3, lambda: causal() & window(4) | prefix(1), {}, frozenset({"bias", "sinks"}), False, 0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # torch's own, on its way to derivatives
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"alibi": True}], ids=str)
def test_derivatives_as_often_as_wanted(options: dict[str, Any]) -> None:
    case = replace(SMALL, options=options)
    tensors = case.tensors(torch.float64)

    def run(*given: Tensor) -> Tensor:
        arguments: dict[str, Any] = {**dict(zip(tensors, given, strict=True)), **options}
        output: Tensor = attend(**arguments, mask=case.mask)
        return output

    assert torch.autograd.gradcheck(run, tuple(tensors.values()), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, tuple(tensors.values()), fast_mode=True)


@pytest.mark.filterwarnings("ignore:.torch.jit.script.:DeprecationWarning")  # torch's own, on its way to derivatives
def test_transforms_of_torch_func() -> None:
    tensors = {name: x.detach() for name, x in SMALL.tensors(torch.float64).items() if name != "bias"}

    def run(query: Tensor) -> Tensor:
        arguments: dict[str, Any] = {**tensors, "query": query}
        output: Tensor = attend(**arguments, mask=SMALL.mask)
        return output

    query = tensors["query"]
    stacked = torch.func.vmap(run)(torch.stack([query, 2 * query]))
    torch.testing.assert_close(stacked, torch.stack([run(query), run(2 * query)]))
    jacobian = torch.func.jacfwd(lambda x: run(x).sum())(query)
    torch.testing.assert_close(jacobian, torch.func.grad(lambda x: run(x).sum())(query))


def test_sequences_alone_are_the_batch_bit_for_bit() -> None:
    case = replace(SMALL, query_len=130, key_len=130, extras=frozenset())
    tensors: dict[str, Any] = {name: x.detach() for name, x in case.tensors(torch.float32).items()}
    for mask in (causal(), causal() & window(20), causal() & documents(np.arange(130) // 50)):
        whole = attend(**tensors, mask=mask)
        for row in range(2):
            one: dict[str, Any] = {name: x[row : row + 1] for name, x in tensors.items()}
            alone = attend(**one, mask=mask)
            assert torch.equal(alone[0], whole[row])
