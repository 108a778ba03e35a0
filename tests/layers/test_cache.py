from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

import qkv
from drawn_layers import EMBED, drawn_layer_specs, layer_of, randomise, tokens
from qkv.errors import ShapeError, SpecError
from qkv.layers import Attention, Cache, FixedCache, GrowingCache, LatentAttention, RingCache
from qkv.masks import global_tokens, prefix
from qkv.positions import Rope
from qkv.spec import AttentionSpec

LATENT: dict[str, Any] = {"latent_dim": 9, "head_dim": 8, "rope_dim": 4, "value_dim": 10, "causal": True}


@pytest.fixture(autouse=True)
def _no_grad() -> Any:
    with torch.no_grad():
        yield


def windowed(window: int = 5, **options: Any) -> Attention:
    layer = Attention(EMBED, 6, causal=True, window=window, **{"num_kv_heads": 2, "head_dim": 8, **options})
    layer = layer.double().eval()
    randomise(layer)
    return layer


def in_chunks(layer: Callable[..., Tensor], x: Tensor, steps: list[int], cache: Cache) -> Tensor:
    return torch.cat([layer(chunk, cache=cache) for chunk in x.split(steps, dim=1)], dim=1)


@st.composite
def splits(draw: st.DrawFn, total: int) -> list[int]:
    """A way of handing over so many tokens: at once, one by one, or in any chunks."""
    steps: list[int] = []
    while sum(steps) < total:
        steps.append(draw(st.integers(1, total - sum(steps))))
    return draw(st.sampled_from([[total], [1] * total, steps, [total - 3, 1, 1, 1]]))


# --- prefill = token by token = chunks --------------------------------------------------------------------------------


@settings(max_examples=8)
@given(spec=drawn_layer_specs(), steps=splits(total=17), kind=st.sampled_from(["own", "fixed"]))
def test_in_whatever_chunks_it_comes_a_causal_layer_gives_the_same(
    spec: AttentionSpec, steps: list[int], kind: str
) -> None:
    layer, x = layer_of(spec.but(mask=spec.mask & qkv.causal())), tokens(2, 17, EMBED)
    cache = layer.new_cache(17 if kind == "fixed" else None)
    torch.testing.assert_close(in_chunks(layer, x, steps, cache), layer(x), rtol=0, atol=1e-11)
    assert cache.length == 17


@settings(max_examples=6)
@given(
    steps=splits(total=30),
    window=st.integers(1, 9),
    more=st.integers(0, 3),
    options=st.sampled_from([{"rope": "halves"}, {"alibi": True}, {"rope": Rope(dims=4), "sinks": True}]),
)
def test_a_ring_of_the_windows_size_or_more_gives_what_all_keys_give(
    steps: list[int], window: int, more: int, options: dict[str, Any]
) -> None:
    layer, x = windowed(window, **options), tokens(2, 30, EMBED)
    cache = RingCache(window + more)
    torch.testing.assert_close(in_chunks(layer, x, steps, cache), layer(x), rtol=0, atol=1e-11)
    assert cache.length - cache.first == window + more


@pytest.mark.parametrize("steps", [[17], [1] * 17, [5, 1, 1, 7, 3]], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"query_latent_dim": 7, "rope": "adjacent"}, {"rope": None}, {"mask": qkv.window(4)}],
    ids=str,
)
def test_a_latent_layer_gives_the_same_by_its_latent_vectors(steps: list[int], options: dict[str, Any]) -> None:
    layer, x = LatentAttention(EMBED, 3, **{**LATENT, **options}).double(), tokens(2, 17, EMBED)
    randomise(layer)
    cache = layer.new_cache()
    torch.testing.assert_close(in_chunks(layer, x, steps, cache), layer(x), rtol=0, atol=1e-12)
    held = cache.append(torch.zeros(2, 1, 1, 13).double(), torch.zeros(2, 1, 1, 0).double())
    kept = 4 if "mask" in options else 18
    assert held.key.shape == (2, 1, kept, 13), "so many numbers a token, for all heads and both key and value"
    assert held.value.numel() == 0


@settings(max_examples=6)
@given(seed=st.integers(0, 999), kind=st.sampled_from(["growing", "fixed", "ring"]))
def test_guesses_that_are_taken_back_leave_no_trace(seed: int, kind: str) -> None:
    layer, x = windowed(rope="halves"), tokens(2, 26, EMBED)
    cache: Cache = {"growing": GrowingCache, "fixed": lambda: FixedCache(30), "ring": lambda: RingCache(5, spare=4)}[
        kind
    ]()
    draw = torch.Generator().manual_seed(seed)
    rows = [layer(x[:, :8], cache=cache)]
    while cache.length < 26:
        right, wrong = (int(torch.randint(0, 4, (), generator=draw)) for _ in range(2))
        right = min(right + 1, 26 - cache.length)
        at = cache.length
        guess = torch.cat([x[:, at : at + right], tokens(2, wrong, EMBED, seed=seed)], dim=1)
        rows.append(layer(guess, cache=cache)[:, :right])
        cache.rewind(wrong)
    torch.testing.assert_close(torch.cat(rows, dim=1), layer(x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("cache", [GrowingCache(), FixedCache(12), RingCache(5)], ids=repr)
def test_a_cache_that_is_reset_begins_anew_in_the_same_memory(cache: Cache) -> None:
    layer, x = windowed(rope="adjacent", alibi=True), tokens(2, 12, EMBED)
    layer(x, cache=cache)
    memory = cache.append(*(torch.zeros(2, 2, 0, 8).double(),) * 2).key.untyped_storage().data_ptr()
    cache.reset()
    assert cache.length == cache.first == 0
    torch.testing.assert_close(in_chunks(layer, -x, [4, 8], cache), layer(-x), rtol=0, atol=1e-11)
    assert cache.append(*(torch.zeros(2, 2, 0, 8).double(),) * 2).key.untyped_storage().data_ptr() == memory


@pytest.mark.parametrize("new", [GrowingCache, lambda: FixedCache(20), lambda: RingCache(5)])
def test_masks_of_a_call_count_the_keys_that_came_before(new: Any) -> None:
    layer, x = windowed(rope="halves"), tokens(2, 20, EMBED)
    left_padded = torch.ones(2, 1, 1, 20, dtype=torch.bool)
    left_padded[1, ..., :16] = False
    documents = qkv.documents([[0] * 9 + [1] * 11, [0] * 18 + [1] * 2])
    for mask in (left_padded, documents):
        cache, rows = new(), []
        for chunk in x.split([6, 1, 1, 5, 7], dim=1):
            so_far = cache.length + chunk.shape[1]
            cut = mask[..., :so_far] if isinstance(mask, Tensor) else qkv.documents(mask.ids.array[:, :so_far])
            rows.append(layer(chunk, mask=cut, cache=cache))
        torch.testing.assert_close(torch.cat(rows, dim=1), layer(x, mask=mask), rtol=0, atol=1e-11)


@pytest.mark.parametrize("table", [False, True])
def test_a_layers_mask_speaks_of_positions_in_a_ring_too(table: bool) -> None:
    layer, x = windowed(mask=~prefix(12)), tokens(2, 20, EMBED)
    mask = torch.ones(1, dtype=torch.bool) if table else None
    rows = in_chunks(lambda chunk, cache: layer(chunk, mask=mask, cache=cache), x, [8, 1, 3, 1, 7], layer.new_cache())
    torch.testing.assert_close(rows, layer(x), rtol=0, atol=1e-11)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_step_copies_no_past() -> None:
    cache, key = GrowingCache(), torch.zeros(1, 1, 1, 4)
    places = [cache.append(key, key).key.untyped_storage().data_ptr() for _ in range(1000)]
    moves = sum(one != other for one, other in pairwise(places))
    assert moves <= 5, "from 64 tokens by doubling"
    ring = RingCache(64)
    places = [ring.append(key, key).key.untyped_storage().data_ptr() for _ in range(1000)]
    assert sum(one != other for one, other in pairwise(places)) <= 1000 / 32


def test_a_ring_takes_no_more_however_long_the_text() -> None:
    cache = RingCache(64, spare=8)
    cache.append(torch.zeros(1, 1, 5000, 4), torch.zeros(1, 1, 5000, 4))
    held = cache.append(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
    assert held.key.shape[2] == 64, "what the query sees, and no more"
    assert held.first == 5001 - 64
    assert held.key.untyped_storage().nbytes() <= 2 * 72 * 4 * 4


def test_it_is_filled_in_inference_mode_and_used_outside_of_it() -> None:
    layer, x = windowed(), tokens(1, 9, EMBED)
    cache = layer.new_cache()
    with torch.inference_mode():
        first = layer(x[:, :6], cache=cache)
    second = layer(x[:, 6:], cache=cache)
    torch.testing.assert_close(torch.cat([first, second], dim=1), layer(x), rtol=0, atol=1e-11)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_full_cache_says_its_numbers_and_stays_as_it_was() -> None:
    layer, x = windowed(), tokens(1, 9, EMBED)
    cache = layer.new_cache(8)
    layer(x[:, :6], cache=cache)
    with pytest.raises(SpecError, match=r"it holds 6 tokens of max_length=8, and 3 more were given"):
        layer(x[:, 6:], cache=cache)
    assert cache.length == 6
    layer(x[:, 6:8], cache=cache)


def test_no_further_back_than_there_are_keys() -> None:
    layer, x = windowed(), tokens(1, 30, EMBED)
    growing, ring = GrowingCache(), RingCache(5, spare=3)
    for cache in (growing, ring):
        layer(x, cache=cache)
    growing.rewind(30)
    ring.rewind(2)
    ring.rewind(2)
    with pytest.raises(SpecError, match=r"keys from 20 on, and those before 22 are gone\.\nMake .*, spare=5"):
        ring.rewind(2)
    with pytest.raises(SpecError, match=r"the cache has seen 0 tokens"):
        growing.rewind(1)


def test_a_ring_is_refused_by_a_layer_that_sees_further_on_its_first_token() -> None:
    for mask in (None, qkv.window(6), qkv.window(5) | prefix(1), qkv.window(5) | global_tokens(2)):
        layer = Attention(12, 3, causal=True, mask=mask)
        with pytest.raises(SpecError, match=r"this cache keeps 5 keys, .*\nGive the layer .*window=5"):
            layer(torch.randn(1, 1, 12), cache=RingCache(5))


def test_other_sequences_sizes_and_dtypes_are_refused(unchecked: None) -> None:
    layer, cache = windowed(), GrowingCache()
    layer(tokens(2, 3, EMBED), cache=cache)
    with pytest.raises(ShapeError, match=r"the keys have 3 along axis batch, and the cache holds 2"):
        layer(tokens(3, 1, EMBED), cache=cache)
    with pytest.raises(ShapeError, match=r"the keys have 6 along axis kv_head, and the cache holds 2"):
        windowed(num_kv_heads=6)(tokens(2, 1, EMBED), cache=cache)
    with pytest.raises(SpecError, match=r"the keys are torch\.float32 on cpu, and the cache holds torch\.float64"):
        layer.float()(tokens(2, 1, EMBED).float(), cache=cache)
    assert cache.length == 3


def test_a_mask_that_is_refused_leaves_the_cache_as_it_was(unchecked: None) -> None:
    layer, x = windowed(), tokens(2, 9, EMBED)
    cache = layer.new_cache()
    layer(x[:, :6], cache=cache)
    for mask in (torch.ones(3, 8, dtype=torch.bool), torch.ones(3, 9), qkv.padding([9, 10])):
        with pytest.raises((ShapeError, TypeError)):
            layer(x[:, 6:], mask=mask, cache=cache)
        assert cache.length == 6


def test_a_gradient_and_cross_attention_are_refused() -> None:
    layer, x = windowed(), tokens(1, 4, EMBED)
    with torch.enable_grad(), pytest.raises(SpecError, match=r"Wrap the call in torch\.no_grad\(\)"):
        layer(x, cache=GrowingCache())
    with pytest.raises(SpecError, match=r"In cross-attention leave the cache out"):
        layer(x, x, cache=GrowingCache())


@pytest.mark.parametrize("make", [lambda: FixedCache(0), lambda: RingCache(0), lambda: RingCache(4, spare=-1)])
def test_sizes_that_hold_nothing_are_refused(make: Any) -> None:
    with pytest.raises(SpecError, match="it counts tokens"):
        make()
