"""`attend` under what programs do to tensors, graphs, masks and threads; each beside the same, computed plainly."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import qkv
from qkv.compute import attend, plan
from qkv.compute.arguments import read_arguments
from qkv.compute.composite import composite
from qkv.compute.planning import _tiles
from qkv.errors import SpecError
from qkv.masks import Mask, dilated, everything, per_head

TOKENS = 100
WINDOW = qkv.causal() & qkv.window(20)
IDS = np.tile(np.repeat([0, 1, 2], [10, 20, 5]), 3)[:TOKENS]
"""Documents that come back later."""

MASKS: dict[str, Callable[[], Mask]] = {
    "causal": qkv.causal,
    "causal window": lambda: WINDOW,
    "documents": lambda: qkv.causal() & qkv.documents(np.arange(TOKENS) // 30),
    "documents that come back": lambda: qkv.documents(IDS),
    "padding": lambda: qkv.padding([70, TOKENS]),
    "empty rows": lambda: ~qkv.causal(),
    "by head": lambda: per_head([qkv.causal(), qkv.window(9), dilated(3), everything()]),
}
every_mask = pytest.mark.parametrize("make", MASKS.values(), ids=MASKS.keys())


def draw(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def heads(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query, key and value."""
    return [draw(2, kv, TOKENS, 8, dtype=dtype, seed=seed).requires_grad_() for seed, kv in enumerate((4, 2, 2))]


def plainly(*given: Tensor, **options: Any) -> Tensor:
    """The same in float64, of all the scores."""
    options = {name: x.double() if isinstance(x, Tensor) else x for name, x in options.items()}
    query, key, value = (x.double() for x in given)
    return composite(read_arguments(query, key, value, **options)).output


def run(*given: Tensor, **options: Any) -> Any:
    return attend(*given, **options)


def assert_same(given: list[Tensor], near: float = 1e-4, **options: Any) -> None:
    """That output and gradients are those of the plain formula."""
    wanted = [x for x in (*given, options.get("bias"), options.get("sinks")) if x is not None]
    sides = [made(*given, **options) for made in (run, plainly)]
    cotangent = draw(*sides[0].shape, dtype=torch.float64)
    mine, its = (torch.autograd.grad((side * cotangent).sum(), wanted) for side in sides)
    for got, right in zip((sides[0], *mine), (sides[1], *its), strict=True):
        torch.testing.assert_close(got.double(), right.double(), atol=near, rtol=near)


# --- tensors ----------------------------------------------------------------------------------------------------------


def through(view: Callable[[Tensor], Tensor], *sizes: int) -> list[Tensor]:
    return [view(draw(*sizes, seed=seed).requires_grad_()) for seed in range(3)]


VIEWS: dict[str, Callable[[], list[Tensor]]] = {
    "axes exchanged": lambda: through(lambda x: x.transpose(1, 2), 2, TOKENS, 4, 8),
    "channels last but one": lambda: through(lambda x: x.mT, 2, 4, 8, TOKENS),
    "every second channel": lambda: through(lambda x: x[..., ::2], 2, 4, TOKENS, 16),
    "every second token": lambda: through(lambda x: x[:, :, ::2], 2, 4, 2 * TOKENS, 8),
    "one sequence for all": lambda: through(lambda x: x.expand(2, 4, TOKENS, 8), 1, 4, TOKENS, 8),
    "one head for all": lambda: through(lambda x: x.expand(2, 4, TOKENS, 8), 2, 1, TOKENS, 8),
    "one token for all": lambda: through(lambda x: x.expand(2, 4, TOKENS, 8), 2, 4, 1, 8),
    "one number for all": lambda: through(lambda x: x.expand(2, 4, TOKENS, 8), 1, 1, 1, 1),
    "the same three times": lambda: [draw(2, 4, TOKENS, 8).requires_grad_()] * 3,
    "parameters": lambda: [nn.Parameter(x.detach()) for x in heads()],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@every_mask
def test_any_view(view: Callable[[], list[Tensor]], make: Callable[[], Mask]) -> None:
    assert_same(view(), mask=make())


@pytest.mark.parametrize(
    "shape", [(), (TOKENS,), (TOKENS, 1), (2, 1, 1, TOKENS), (1, 4, TOKENS, 1), (1, 4, 1, 1), (2, 4, TOKENS, TOKENS)]
)
@every_mask
def test_the_gradient_of_a_bias_that_is_broadcast(shape: tuple[int, ...], make: Callable[[], Mask]) -> None:
    assert_same(heads(), mask=make(), bias=draw(*shape).requires_grad_(), near=1e-3)


def test_a_bias_that_is_one_number_in_memory() -> None:
    assert_same(heads(), mask=WINDOW, bias=draw(1, 4, 1, 1).requires_grad_().expand(2, 4, TOKENS, TOKENS))


@pytest.mark.parametrize("offset", [-200, -1, 7, 150, 10**6])
@every_mask
def test_queries_that_stand_anywhere(offset: int, make: Callable[[], Mask]) -> None:
    assert_same(heads(), mask=make(), query_offset=offset)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("softcap", [None, 30.0])
@every_mask
def test_scores_of_ten_thousand(dtype: torch.dtype, softcap: float | None, make: Callable[[], Mask]) -> None:
    query, key, value = heads()
    given = [x.detach().to(dtype).requires_grad_() for x in (100 * query, 100 * key, value)]
    output = run(*given, mask=make(), softcap=softcap)
    right = plainly(*given, mask=make(), softcap=softcap)
    torch.testing.assert_close(output.double(), right, atol=3e-2, rtol=3e-2)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(output.sum(), given))


@pytest.mark.parametrize("mask", [qkv.causal(), WINDOW, everything()], ids=str)
def test_scores_beyond_float16(mask: Mask) -> None:
    same, value = torch.full((1, 1, TOKENS, 8), 300.0).half(), draw(1, 1, TOKENS, 8).half()
    assert torch.finfo(torch.float16).max < 8 * 300.0**2
    output = run(same, same, value, mask=mask)
    torch.testing.assert_close(output.double(), plainly(same, same, value, mask=mask), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("sink", [torch.inf, -torch.inf, 1e30, -1e30])
@every_mask
def test_a_sink_without_bounds(sink: float, make: Callable[[], Mask]) -> None:
    """One that is infinite takes all, and one that is minus infinity is none, also where there is nothing else."""
    given, sinks = heads(), torch.full((4,), sink)
    with torch.no_grad():
        for output in (
            run(*given, mask=make(), sinks=sinks),
            run(*given, mask=make(), sinks=sinks, return_weights=True)[0],
        ):
            right = torch.zeros(()) if sink > 0 else run(*given, mask=make())
            torch.testing.assert_close(output, right.expand_as(output))


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min])
def test_a_row_of_which_all_is_very_low_has_weights_that_sum_to_one(low: float) -> None:
    query, key, value = (x.detach() for x in heads())
    bias = torch.zeros(TOKENS, TOKENS).masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), low)
    bias[9] = low
    fused = run(query, key, value, bias=bias)
    output, weights = run(query, key, value, bias=bias, return_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, TOKENS))
    torch.testing.assert_close(output, fused, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["query", "key", "value"])
def test_what_is_no_number_stays_in_its_document(number: float, place: int) -> None:
    """Where documents are of 32 tokens and more, so that each is computed by itself."""
    given = [x.detach() for x in heads()]
    mask = qkv.documents(np.arange(TOKENS) // 50)
    right = run(*given, mask=mask)
    given[place][:, :, 60, 3] = number
    got = run(*given, mask=mask)
    assert torch.equal(got[:, :, :50], right[:, :, :50])
    assert not got[:, :, 60].isfinite().all()


def test_keys_and_values_of_padding_may_hold_anything() -> None:
    mask = qkv.causal() & qkv.padding([70, TOKENS])
    query, key, value = (x.detach() for x in heads())
    right = run(query, key, value, mask=mask)
    key[0, :, 70:] = value[0, :, 70:] = torch.nan
    given = [x.requires_grad_() for x in (query, key, value)]
    got = run(*given, mask=mask)
    assert torch.equal(got, right)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(got.sum(), given))


def test_a_learned_factor_is_refused() -> None:
    learned: Any = torch.tensor(0.3, requires_grad=True)
    for name in ("scale", "softcap"):
        with pytest.raises(SpecError, match=f"{name} requires a gradient, and gets none"):
            run(*heads(), **{name: learned})
    with pytest.raises(SpecError, match="scale is inf, and must be finite"):
        run(*heads(), scale=torch.inf)


# --- graphs -----------------------------------------------------------------------------------------------------------

GRAPHS: list[dict[str, Any]] = [{}, {"softcap": 3.0}, {"dropout_p": 0.3}]


@pytest.mark.parametrize("options", GRAPHS, ids=str)
def test_a_graph_is_gone_through_more_than_once(options: dict[str, Any]) -> None:
    given = heads()
    output = run(*given, mask=WINDOW, **options)
    first, second = (torch.autograd.grad(output.sum(), given, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    torch.autograd.grad(output.sum(), given)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(output.sum(), given)


def test_a_tensor_that_was_changed_in_place_is_noticed() -> None:
    x = 1 * heads()[0]
    output = run(x, x, x, mask=WINDOW)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_hooks_see_the_gradients_and_what_is_saved() -> None:
    x, saved = heads()[0], []

    def keep(kept: Tensor) -> Tensor:
        saved.append(kept.shape)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
        output = run(x, x, x, mask=WINDOW)
    plain = torch.autograd.grad(run(x, x, x, mask=WINDOW).sum(), x)[0]
    output.register_hook(lambda grad: 2 * grad)
    output.sum().backward()
    torch.testing.assert_close(x.grad, 2 * plain)
    assert len(saved) == 5  # query, key, value, output and log-sum-exp: nothing of the scores
    assert max(shape.numel() for shape in saved) == x.numel()


@pytest.mark.parametrize("options", GRAPHS, ids=str)
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_computes_the_same_again(options: dict[str, Any], reentrant: bool) -> None:
    given = heads()
    sides = []
    for again in (False, True):
        torch.manual_seed(5)
        one: Callable[..., Tensor] = lambda *x: run(*x, mask=WINDOW, **options)  # noqa: E731
        output = checkpoint(one, *given, use_reentrant=reentrant) if again else one(*given)
        torch.rand(3)
        for x in given:
            x.grad = None
        output.sum().backward()
        sides.append([output, *(x.grad for x in given)])
    for one_side, other in zip(*sides, strict=True):
        torch.testing.assert_close(one_side, other)


@pytest.mark.parametrize("options", [{}, {"softcap": 5.0}, {"sinks": draw(4)}, {"return_weights": True}], ids=str)
def test_autocast_casts_what_comes_in_and_nothing_else(options: dict[str, Any]) -> None:
    query, key, value = heads()
    low = [x.detach().bfloat16().requires_grad_() for x in (query, key, value)]
    right = run(*low, mask=WINDOW, **options)
    with torch.autocast("cpu", torch.bfloat16):
        got = run(query, key.bfloat16(), value, mask=WINDOW, **options)
        assert run(*(x.double() for x in low), mask=WINDOW).dtype == torch.float64
    for mine, its in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, right)), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("options", [{}, {"softcap": 5.0}], ids=str)
def test_a_backward_pass_inside_autocast_is_as_exact_as_outside(options: dict[str, Any]) -> None:
    given = heads()
    output = run(*given, mask=WINDOW, **options)
    outside = torch.autograd.grad(output.sum(), given, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.autograd.grad(output.sum(), given)
    assert all(torch.equal(one, other) for one, other in zip(outside, inside, strict=True))


@every_mask
def test_what_was_kept_in_inference_mode_serves_training(make: Callable[[], Mask]) -> None:
    _tiles.cache_clear()
    mask, given = make(), heads()
    with torch.inference_mode():
        run(*given, mask=mask)
        run(*given, mask=mask, return_weights=True)
    assert_same(given, mask=mask)
    (grad,) = torch.autograd.grad(run(*given, mask=mask).square().sum(), given[0], create_graph=True)
    grad.sum().backward()


# --- masks, threads, memory -------------------------------------------------------------------------------------------


@every_mask
def test_masks_are_copied_and_pickled(make: Callable[[], Mask]) -> None:
    mask, given = make(), [x.detach() for x in heads()]
    right = run(*given, mask=mask)
    for other in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert other == mask
        assert hash(other) == hash(mask)
        _tiles.cache_clear()
        assert torch.equal(run(*given, mask=other), right)


def test_threads_share_a_mask() -> None:
    given, masks = heads(), [make() for make in MASKS.values()]
    right = [plainly(*given, mask=mask).detach() for mask in masks]
    _tiles.cache_clear()

    def work() -> list[Tensor]:
        return [run(*given, mask=mask).double() for mask in masks]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            for got, expected in zip(done.result(), right, strict=True):
                torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_hundred_thousand_documents_of_one_token() -> None:
    count = 100_000
    x = draw(1, 1, count, 8).requires_grad_()
    output = run(x, x, x, mask=qkv.causal() & qkv.documents(np.arange(count)))
    torch.testing.assert_close(output, x)
    output.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_the_plan_of_tensors_without_memory_is_that_of_the_same_tensors() -> None:
    sizes = [(1, 8, 1000, 64), (1, 2, 1000, 64), (1, 2, 1000, 64)]
    there, nowhere = ([torch.empty(size, device=device) for size in sizes] for device in ("cpu", "meta"))
    for options in ({}, {"alibi": True}, {"softcap": 3.0}, {"mask": WINDOW}):
        assert plan(*nowhere, **options) == plan(*there, **options)
    assert run(*nowhere, mask=WINDOW).shape == sizes[0]


LONG = """
import threading, psutil, torch, qkv
done, most = threading.Event(), [0]
def watch():  # getrusage would count what the process was forked from
    while not done.wait(0.005):
        most[0] = max(most[0], psutil.Process().memory_info().rss)
watcher = threading.Thread(target=watch)
watcher.start()
x = torch.randn(1, 1, 131072, 64, requires_grad=True)
qkv.attend(x, x, x, mask=qkv.causal() & qkv.window(256)).sum().backward()
done.set()
watcher.join()
print(most[0])
"""


@pytest.mark.slow
def test_a_window_over_131072_tokens_and_back_takes_less_than_a_gigabyte() -> None:
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 1e9  # all scores would take 64 GB
