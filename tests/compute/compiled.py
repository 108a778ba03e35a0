"""`attend` inside torch.compile, held to the same outside: its numbers, its gradients, and that it makes no scores.

Run by test_compiled.py, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # type: ignore[attr-defined]
from torch.fx import GraphModule

import qkv
from qkv.compute import operation
from qkv.compute.arguments import read_arguments
from qkv.layers import Attention
from qkv.masks import Mask, dilated, everything, global_tokens, prefix, rule

TOKENS = 70
WINDOW = qkv.causal() & qkv.window(9)
IDS = np.arange(TOKENS) // 30

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of what it may not trace


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch.compiler.reset()


def heads(tokens: int = TOKENS, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query, key and value, with gradients."""
    generator = torch.Generator().manual_seed(tokens)
    return [torch.randn(2, kv, tokens, 8, generator=generator).to(dtype).requires_grad_() for kv in (4, 2, 2)]


def block_of(**options: Any) -> Callable[..., Tensor]:
    """Something that a user might compile, around `attend`."""

    def block(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given: Any = options
        output = qkv.attend(query * 2, key, value, **given)
        return torch.relu(output if isinstance(output, Tensor) else output[0] * output[1][..., None]) + 1

    return block


def assert_the_same(block: Callable[..., Tensor], compiled: Callable[..., Tensor], given: list[Tensor]) -> None:
    sides = []
    for function in (compiled, block):
        torch.manual_seed(3)
        output = function(*given)
        with torch.inference_mode():
            torch.manual_seed(3)
            alone = function(*given)
        sides.append([output, alone, *torch.autograd.grad(output.square().sum(), given)])
    for got, right in zip(*sides, strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=0)


WHOLE: dict[str, dict[str, Any]] = {
    "no mask": {},
    "window": {"mask": WINDOW},
    "every kind of mask": {"mask": WINDOW | prefix(3) & ~dilated(2).shifted(1) | global_tokens(2) & everything()},
    "booleans": {"mask": (WINDOW, torch.ones(TOKENS, dtype=torch.bool))},
    "everything": {
        "mask": qkv.causal(),
        "softcap": 3.0,
        "bias": torch.ones(1, 4, 1, 1),
        "sinks": torch.zeros(4),
        "alibi": True,
        "scale": 0.3,
    },
    "rows without keys": {"mask": ~qkv.causal(), "empty_row": "uniform"},
    "dropout": {"mask": qkv.causal(), "dropout_p": 0.3},
    "lse": {"mask": WINDOW, "return_lse": True},
    "in low precision": {"precision": "low"},
}
"""What stands in one graph."""

IN_PARTS: dict[str, dict[str, Any]] = {
    "text": {"mask": "causal & window(5)"},
    "documents": {"mask": qkv.causal() & qkv.documents(IDS)},
    "lengths": {"mask": qkv.padding([70, 20], queries=True)},
    "a rule": {"mask": rule(lambda query, key: (query + key) % 3 > 0)},
}
"""What a graph can't hold: `attend` runs between two of them."""


@pytest.mark.parametrize("options", WHOLE.values(), ids=WHOLE.keys())
def test_one_graph_gives_the_same(options: dict[str, Any]) -> None:
    block = block_of(**options)
    assert_the_same(block, torch.compile(block, backend="aot_eager", fullgraph=True), heads())


@pytest.mark.parametrize("options", IN_PARTS.values(), ids=IN_PARTS.keys())
def test_beside_graphs_it_gives_the_same(options: dict[str, Any]) -> None:
    block = block_of(**options)
    assert_the_same(block, torch.compile(block, backend="aot_eager"), heads())


def noting(graphs: list[GraphModule]) -> Callable[..., Any]:
    """A backend of torch.compile that runs graphs as they are, forward and backward, and notes them."""

    def run(graph: GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    return aot_autograd(fw_compiler=run, bw_compiler=run)


def test_other_lengths_need_no_other_graph() -> None:
    graphs: list[GraphModule] = []
    block = block_of(mask=WINDOW, scale=0.3)
    compiled = torch.compile(block, backend=noting(graphs), fullgraph=True, dynamic=True)
    for tokens in (TOKENS, 33, 300):
        assert_the_same(block, compiled, heads(tokens))
    assert len(graphs) == 3  # forward and backward, and forward where no gradient is wanted


@pytest.mark.parametrize("mask", [WINDOW, qkv.causal() & qkv.documents(np.arange(4096) // 20)], ids=["window", "docs"])
def test_graphs_hold_no_scores(mask: Mask) -> None:
    graphs: list[GraphModule] = []
    block = block_of(mask=mask)
    assert_the_same(block, torch.compile(block, backend=noting(graphs)), heads(4096))
    made = [node.meta.get("val") for graph in graphs for node in graph.graph.nodes]
    assert 0 < max(x.numel() for x in made if isinstance(x, Tensor)) <= 2 * 4 * 4096 * 8


@pytest.mark.parametrize("precision", ["same", "high"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_operation_is_what_torch_is_told_of_it(dtype: torch.dtype, precision: str) -> None:
    query, key, value = heads(dtype=dtype)
    sinks = torch.zeros(4, dtype=dtype, requires_grad=True)
    given = read_arguments(query, key, value, WINDOW, sinks=sinks)
    numbers = (operation.coded(given.mask), given.scale, None, given.first, 0.0, precision)
    arguments = (query, key, value, None, sinks, None, None, None, *numbers)
    torch.library.opcheck(
        torch.ops.qkv.attend.default,
        arguments,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


def test_second_derivatives_of_a_graph_that_runs_as_it_is() -> None:
    block = block_of(mask=WINDOW)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    given = heads(20, torch.float64)
    seconds = []
    for function in (compiled, block):
        (grad,) = torch.autograd.grad(function(*given).square().sum(), given[0], create_graph=True)
        seconds.append(torch.autograd.grad(grad.square().sum(), given))
    for got, right in zip(*seconds, strict=True):
        torch.testing.assert_close(got, right)


def test_transforms_of_torch_func_inside() -> None:
    given = [x.detach() for x in heads()]

    def each(query: Tensor) -> Tensor:
        return torch.func.vmap(lambda one: block_of(mask=WINDOW)(one, *given[1:]))(query)

    stacked = torch.stack([given[0], given[0] + 1])
    torch.testing.assert_close(torch.compile(each, backend="aot_eager")(stacked), each(stacked))


def test_a_layer_in_one_graph() -> None:
    layer = Attention(16, 4, num_kv_heads=2, causal=True, window=5, rope="halves", alibi=True, sinks=True)
    x = torch.randn(2, 30, 16)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


@torch.no_grad()
def test_token_by_token_is_one_graph_too() -> None:
    layer = Attention(16, 4, num_kv_heads=2, causal=True, rope="halves")
    x, graphs, cache = torch.randn(1, 12, 16), list[GraphModule](), layer.new_cache()
    step = torch.compile(layer, backend=noting(graphs), fullgraph=True)
    steps = [step(token, cache=cache) for token in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x))
    assert len(graphs) <= 2  # that of the first token, and one with all lengths open


def test_what_is_exported_runs_without_qkv() -> None:
    class Module(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return block_of(mask=WINDOW)(query, key, value)

    given = tuple(x.detach() for x in heads())
    program = torch.export.export(Module(), given)
    torch.testing.assert_close(program.module()(*given), Module()(*given))
    assert not any("qkv" in str(node.target) for node in program.graph.nodes)
