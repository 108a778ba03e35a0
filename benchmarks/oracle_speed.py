"""What the three routes of the oracle cost, side by side: all stages at once, streamed in blocks, one token at a time.

The figures that last are the ratios: they hardly depend on the machine.

    python benchmarks/oracle_speed.py            the three routes on lengths that all of them can do
    python benchmarks/oracle_speed.py 65536      the stream alone on a long input
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from qkv.masks import Causal, SlidingWindow
from qkv.oracle import Inputs, run_stages
from qkv.oracle.one_token import one_token
from qkv.oracle.streaming import stream
from qkv.positions import Rope
from qkv.spec import AttentionSpec

SPEC = AttentionSpec(4, 2, mask=Causal(), rope=Rope())
HEAD_DIM = 32
LENGTHS = (256, 1024, 4096)
ONE_TOKEN_UP_TO = 1024


class Cost(NamedTuple):
    """What one run of a route took, and what it gave."""

    seconds: float
    peak: int
    result: Any


def main() -> None:
    if len(sys.argv) > 1:
        alone(int(sys.argv[1]))
    else:
        side_by_side()


def side_by_side() -> None:
    print(f"{SPEC.num_heads} heads of {HEAD_DIM} channels, causal, rope, float64; memory beside the inputs\n")
    print(f"{'length':>7} | {'stages':>18} | {'stream / stages':>24} | {'one token / all by stages':>25} | difference")
    for length in LENGTHS:
        inputs = inputs_of(length)
        stages = cost(lambda inputs=inputs: run_stages(SPEC, inputs).output)
        blocks = cost(lambda inputs=inputs: stream(SPEC, inputs))
        single = "not run"
        if length <= ONE_TOKEN_UP_TO:
            last = cost(lambda inputs=inputs, last=length - 1: one_token(SPEC, inputs, batch=0, query=last))
            single = f"{last.seconds / stages.seconds:.2f} of the time"
        print(
            f"{length:>7} | {stages.seconds:>6.2f} s {mebibytes(stages):>5.0f} MiB"
            f" | {blocks.seconds / stages.seconds:>5.2f} time {blocks.peak / stages.peak:>5.2f} memory"
            f" | {single:>25} | {np.abs(stages.result - blocks.result).max():.1e}"
        )


def alone(length: int) -> None:
    spec = SPEC.but(mask=Causal() & SlidingWindow(1024))
    blocks = cost(lambda: stream(spec, inputs_of(length)), repeats=0)
    whole = 8 * spec.num_heads * length**2 / 2**20
    print(f"{length} tokens, window of 1024: {blocks.seconds:.1f} s, {mebibytes(blocks):.0f} MiB")
    print(f"one array of all scores would take {whole:.0f} MiB, {whole / mebibytes(blocks):.0f} times as much")


def cost(work: Callable[[], Any], repeats: int = 3) -> Cost:
    """Time of the quickest of several runs, and the most memory held at once in one more, which may be the only one."""
    seconds = [timed(work)[0] for _ in range(repeats)]
    tracemalloc.start()
    traced, result = timed(work)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Cost(min(seconds, default=traced), peak, result)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def mebibytes(cost: Cost) -> float:
    return cost.peak / 2**20


def inputs_of(length: int) -> Inputs:
    rng = np.random.default_rng(0)
    key_value = (1, SPEC.kv_heads, length, HEAD_DIM)
    return Inputs(
        query=rng.normal(size=(1, SPEC.num_heads, length, HEAD_DIM)),
        key=rng.normal(size=key_value),
        value=rng.normal(size=key_value),
    )


if __name__ == "__main__":
    main()
