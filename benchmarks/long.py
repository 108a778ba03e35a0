"""What judging a long sequence costs beside running it once, and which faults stay visible when it is long.

Run: ``python -m benchmarks.long``, or ``python -m benchmarks.long 65536`` for the second table at that length alone.

Costs: a causal attention of 8 heads of 64 channels at 8,192 tokens, against one fused float32 run of it, in turn,
medians. The candidate is that fused attention, so its one run is part of a check's cost. Memory is what a run adds at
its peak, each in a process of its own, with an allocator that gives freed arrays back at once (glibc's, with its
threshold for that held at 1 MiB). The claim: a check at this length costs at most 3.5 of these runs and adds under
200 MB. As glibc is set by default it keeps 20 to 50 MB of freed arrays besides: 185 to 220 MB on a process's first
check, by how they happen to lie, and under 120 MB on later ones.

Faults: each is put into the oracle on a few rows with many keys. ``row`` is the largest error over the bar of that row
(above 1 it shows in a single row), and ``together`` the standard errors by which it shows in all of these rows, rounded
as that precision rounds (above 10 it is said).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from torch.nn import functional as F

from qkv.adapters.host import Host
from qkv.comparison import as_rows, round_to, rounded_run
from qkv.debugger import settled
from qkv.diagnosis import Observation, twin
from qkv.faults import CATALOGUE, Variant
from qkv.faults.masking import hidden_by
from qkv.long_sequence.answer import Answer
from qkv.long_sequence.judging import judged_at
from qkv.long_sequence.together import drifts, some_observations
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import Inputs, Run
from qkv.oracle.stages import allowed
from qkv.probes import Probe
from qkv.request import Request
from qkv.settling import Trial
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

LENGTH, HEADS, HEAD_DIM, TURNS = 8192, 8, 64, 5
SPEC = AttentionSpec(HEADS, HEADS, HEAD_DIM, mask=Causal(), query_offset="top_left")
WINDOW = 4096


class Cost(NamedTuple):
    """Seconds of one run, and the bytes it added at its peak."""

    seconds: float
    memory: int


def fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def dense(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The comparison that one would write: the plain formula in float64, beside the fused output."""
    query, key, value = (tensor.double() for tensor in tensors)
    scores = query @ key.transpose(-1, -2) / HEAD_DIM**0.5
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    right = scores.masked_fill(future, -torch.inf).softmax(-1) @ value
    return (fused(*tensors) - right).abs().amax(-1)


def cost(work: Callable[[], Any]) -> Cost:
    """What one run takes. Memory is sampled every few milliseconds."""
    process, done, peak = psutil.Process(), threading.Event(), [0]
    base = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], process.memory_info().rss - base)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    return Cost(seconds, peak[0])


def trial() -> Trial:
    """The fused attention, checked on short inputs."""
    host, request = Host(), Request(fused, {"num_heads": HEADS, "head_dim": HEAD_DIM, "causal": True})
    ready = settled(host, host.open(fused), request)[0]
    ready.run(quick=False)
    return ready


def works() -> dict[str, Callable[[], Any]]:
    """What is measured. The candidate is ready, and everything has been run once."""
    ready = trial()
    rng = np.random.default_rng(0)
    sizes = (1, HEADS, LENGTH, HEAD_DIM)
    tensors = [torch.from_numpy(rng.normal(size=sizes).astype(np.float32)) for _ in range(3)]
    fused(*tensors)
    return {
        "one fused float32 run": lambda: fused(*tensors),
        "qkv check at this length": lambda: judged_at(ready, LENGTH),
        "dense float64 comparison": lambda: dense(tensors),
    }


def memory_of(name: str) -> float:
    """What one of the works adds in a process of its own, in MB."""
    given_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    command = [sys.executable, "-m", "benchmarks.long", "--memory", name]
    return float(subprocess.run(command, env=given_back, check=True, capture_output=True, text=True).stdout)


def costs() -> None:
    all_works = works()
    turns = [{name: cost(work) for name, work in all_works.items()} for _ in range(TURNS)]
    print(f"{HEADS} heads of {HEAD_DIM} channels, causal, {LENGTH:,} tokens; medians of {TURNS} runs in turn")
    for name in all_works:
        ratio = statistics.median(turn[name].seconds / turn["one fused float32 run"].seconds for turn in turns)
        print(f"{name:26} {ratio:6.2f} runs {memory_of(name):8.0f} MB", flush=True)


def dropped(keys: Callable[[Run], Any]) -> Callable[[Run], Run]:
    """The mask stage without some keys."""
    return lambda run: hidden_by(run, allowed(run) & ~keys(run))


def small_faults(window: bool) -> Iterator[Variant]:
    """The smallest faults that there are: one key of many."""
    off_by_one = CATALOGUE["window-off-by-one" if window else "causal-one-ahead"]
    for variant in list(off_by_one.variants(spec_of(window)))[:2]:
        yield Variant(variant.fault, variant.replacements, f"{variant.fault.id} {variant.note}".strip())
    fault = CATALOGUE["mask-not-applied"]
    keys: dict[str, Callable[[Run], Any]] = {
        "its own key dropped": lambda run: run.positions().key == run.positions().query,
        "the key before it dropped": lambda run: run.positions().key == run.positions().query - 1,
        "key 0 dropped": lambda run: run.positions().key == 0,
        "one key of each 64 dropped": lambda run: run.positions().key % 64 == 63,
        "the last key of all dropped": lambda run: run.positions().key == run.inputs.lengths[1] - 1,
    }
    for note, which in keys.items():
        if not window or note != "key 0 dropped":
            yield Variant(fault, {Stage.MASK: dropped(which)}, note)


def spec_of(window: bool) -> AttentionSpec:
    return SPEC.but(mask=Causal() & SlidingWindow(WINDOW)) if window else SPEC


def answer(length: int, dtype: str, window: bool) -> Answer:
    """A right candidate's answer, but for its output, which only a few rows of need to be made."""
    rng = np.random.default_rng(1)
    sizes = (1, HEADS, length, HEAD_DIM)
    query, key, value = (round_to(rng.normal(size=sizes), dtype).astype(np.float32) for _ in range(3))
    inputs = Inputs(query=query, key=key, value=value)
    output = np.broadcast_to(np.zeros(1, np.float32), (1, length, HEADS * HEAD_DIM))
    return Answer(spec_of(window), Probe("long", "", inputs), output, dtype, None, judge_empty_rows=False)


def shown(given: Answer, observations: list[Observation], variant: Variant) -> str:
    """How visible a fault is, in single rows and in all together."""
    row, seen = 0.0, []
    for observation in observations:
        run, expected = observation.expected.run, observation.expected
        faulty = twin(run, variant.replacements)
        if faulty is not None:
            off = np.abs(as_rows(faulty.output, HEADS) - expected.rows).max(axis=-1)
            row = max(row, float((off / expected.tolerance).max()))
            rounded = rounded_run(run, given.dtype, {}, 1).output
            seen.append(replace(observation, output=rounded + faulty.output - run.output))
    found = drifts(seen, [variant])
    return f"{row:12.2g}{found[0].share / found[0].error if found else 0.0:12.0f}"


def visible(length: int) -> None:
    dtypes = ("float32", "float16", "bfloat16")
    print(f"\nthe smallest faults at {length:,} tokens; the window is {WINDOW:,}")
    print(f"{'fault':48}" + "".join(f"{dtype:>24}" for dtype in dtypes))
    print(" " * 48 + "".join(f"{'row':>12}{'together':>12}" for _ in dtypes))
    for window in (False, True):
        cells: dict[str, str] = {}
        for dtype in dtypes:
            given = answer(length, dtype, window)
            observations = list(some_observations(given))
            for variant in small_faults(window):
                cells[variant.note] = cells.get(variant.note, "") + shown(given, observations, variant)
        for note, row in cells.items():
            print(f"{note:48}{row}", flush=True)


def main() -> None:
    match sys.argv[1:]:
        case ["--memory", name]:
            print(cost(works()[name]).memory / 1e6)
        case [length]:
            visible(int(length))
        case _:
            costs()
            visible(65_536)


if __name__ == "__main__":
    main()
