"""A sequence in chunks: the oracle gives what it gives at once, and hosts call one candidate several times in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qkv.adapters.caches.contents import gone_on
from qkv.adapters.host import Host
from qkv.adapters.messages import Call, Handed
from qkv.errors import CandidateError
from qkv.oracle import Inputs, run_stages
from qkv.spec import spec_from_mapping

# --- the oracle -------------------------------------------------------------------------------------------------------

SPECS: list[dict[str, Any]] = [
    {"causal": True, "window": 3, "rope": {"pairing": "halves"}, "softcap": 3.0},
    {"causal": True, "alibi": True, "query_offset": "top_left"},
    {"mask": "causal | prefix(2)"},
]


def inputs(**more: Any) -> Inputs:
    rng = np.random.default_rng(3)
    shapes = {"query": (2, 4, 7, 8), "key": (2, 2, 7, 8), "value": (2, 2, 7, 6)}
    return Inputs(**{name: rng.normal(size=shape) for name, shape in shapes.items()}, **more)


@pytest.mark.parametrize("fields", SPECS, ids=str)
@pytest.mark.parametrize("steps", [(7,), (4, 1, 1, 1), (2, 3, 2)], ids=str)
def test_what_comes_in_chunks_gives_what_it_gives_at_once(fields: dict[str, Any], steps: tuple[int, ...]) -> None:
    spec = spec_from_mapping({"num_heads": 4, "num_kv_heads": 2, **fields})
    at_once, in_chunks = run_stages(spec, inputs()), run_stages(spec, inputs(steps=steps))
    np.testing.assert_allclose(in_chunks.output, at_once.output, rtol=0, atol=1e-14)
    np.testing.assert_allclose(in_chunks.weights, at_once.weights, rtol=0, atol=1e-14)


def test_without_a_mask_a_chunk_sees_the_tokens_so_far() -> None:
    spec = spec_from_mapping({"num_heads": 4, "num_kv_heads": 2})
    weights = run_stages(spec, inputs(steps=(4, 3))).weights
    assert (weights[:, :, :4, 4:] == 0).all()
    assert (weights[:, :, :4, :4] > 0).all()
    assert (weights[:, :, 4:] > 0).all()


# --- the host ---------------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Gives the sum of all it was ever given, and does harm to its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.cache = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x if self.cache is None else self.cache + x
        self.weight.mul_(2)
        return self.cache * self.weight


def appending(x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
    cache.append(x)
    return sum(cache)


def ignoring(x: torch.Tensor, cache: Any = None) -> torch.Tensor:
    return x


ONE = np.ones((1, 1))


def outputs(candidate: Any, *calls: Call) -> list[float]:
    host = Host()
    host.open(candidate)
    reply = host.call(Call(calls[0].args, calls[0].kwargs, then=calls[1:]))
    return [float(one.returned[0].array[0, 0]) for one in (reply, *reply.then)]


def test_calls_in_turn_share_a_state_and_the_next_does_not() -> None:
    host = Host()
    host.open(Counting())
    host.assign({"weight": np.ones(1)})
    for _ in range(2):
        reply = host.call(Call((ONE,), then=[Call((2 * ONE,))]))
        assert [float(one.returned[0].array[0, 0]) for one in (reply, *reply.then)] == [2.0, 12.0]
        assert "cache" in reply.kept


def test_a_cache_goes_from_call_to_call() -> None:
    with_cache = [Call((number * ONE, Handed("cache", []))) for number in (1, 2, 3)]
    assert outputs(appending, *with_cache) == [1.0, 3.0, 6.0]


def test_a_cache_that_nothing_happens_to_is_no_cache() -> None:
    with pytest.raises(CandidateError, match="leaves nothing in its argument 'cache'"):
        outputs(ignoring, *[Call((ONE, Handed("cache"))) for _ in range(2)])


KEYS, VALUES = np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 4))
OUTPUT, WEIGHTS = np.zeros((1, 3, 8)), np.zeros((1, 2, 3, 3))


@pytest.mark.parametrize(
    ("result", "cache"),
    [
        ((OUTPUT, (KEYS, VALUES)), (KEYS, VALUES)),
        ((OUTPUT, WEIGHTS, (KEYS, VALUES)), (KEYS, VALUES)),
        ((OUTPUT, KEYS, VALUES), (KEYS, VALUES)),
        ({"output": OUTPUT, "past_key_values": (KEYS, VALUES)}, (KEYS, VALUES)),
        ((OUTPUT, {"k": KEYS, "v": VALUES}), {"k": KEYS, "v": VALUES}),
        ((OUTPUT, WEIGHTS), None),
        (OUTPUT, None),
    ],
    ids=["pair", "behind the weights", "apart", "by name", "dict", "weights only", "none"],
)
def test_the_cache_in_what_was_returned(result: Any, cache: Any) -> None:
    assert gone_on(result, {"cache": None}) == {"cache": cache}


def test_two_caches_that_are_filled_in_place_stay() -> None:
    held = {"k_cache": KEYS, "v_cache": VALUES}
    assert gone_on(OUTPUT, held) == held
