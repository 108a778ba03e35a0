"""Pages of attention weights beside those of bertviz, circuitsvis and attnview: bytes, time and memory.

Run: ``python -m benchmarks.pictures``, or with words that name cases: ``python -m benchmarks.pictures 4,096``.

The others come from PyPI into a throw-away environment, with the same torch. Each page is made in a process of its own,
from random causal heads of 64 channels. The others are given the weights, as they need them; time is what making the
page's text takes of all cores together, and for qkv includes computing the weights from query and key. Memory is the
process's peak, its imports and inputs included. First view is what stands in qkv's page up to its finer pictures; the
others have no such part. What a page loads from elsewhere isn't counted.

The claims: one head of 4,096 tokens has a first view under 0.5 MB, 12 layers of 12 heads at 512 tokens come in under
15 MB, and one head of 131,072 tokens takes less than 1 GB of memory.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

OTHERS = ("bertviz==1.4.1", "circuitsvis==1.43.3", "attnview==0.5.1")
HEAD_DIM = 64
LONGEST = 1200
"""Seconds that a page may take."""


class Case(NamedTuple):
    """How many layers, heads of each and tokens; and whether the others are asked too."""

    layers: int
    heads: int
    tokens: int
    others: bool = True

    def __str__(self) -> str:
        return f"{self.layers} x {self.heads} heads, {self.tokens:,} tokens"


CASES = (Case(1, 12, 1024), Case(12, 12, 512), Case(1, 1, 4096), Case(1, 1, 131_072, others=False))


class Page(NamedTuple):
    """What a page took: CPU seconds, bytes of file, first view and memory; and of how many rows it shows one."""

    seconds: float
    size: int
    first_view: int
    memory: int
    one_of: int

    def __str__(self) -> str:
        sizes = f"{self.size / 1e6:.1f} MB | {self.first_view / 1e6:.2f} MB"
        rows = f", 1 of {self.one_of} rows" if self.one_of > 1 else ""
        return f"{sizes} | {self.seconds:.1f} s{rows} | {self.memory / 1e6:,.0f} MB"


# --- in a process of its own; only qkv's may import qkv ---------------------------------------------------------------


def queries_and_keys(case: Case) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each layer, ``(head, token, channel)`` in float32."""
    rng = np.random.default_rng(0)
    for _ in range(case.layers):
        query, key = (rng.normal(size=(case.heads, case.tokens, HEAD_DIM)).astype(np.float32) for _ in range(2))
        yield query, key


def weights(case: Case) -> list[Any]:
    """Of each layer, ``(head, query, key)`` as a tensor."""
    import torch

    def of_layer(query: np.ndarray, key: np.ndarray) -> Any:
        scores = torch.from_numpy(query) @ torch.from_numpy(key).transpose(1, 2) / HEAD_DIM**0.5
        future = torch.ones(case.tokens, case.tokens, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -torch.inf).softmax(-1)

    return [of_layer(query, key) for query, key in queries_and_keys(case)]


def by_qkv(case: Case) -> Callable[[], str]:
    from qkv.masks import Causal
    from qkv.oracle import Inputs
    from qkv.pictures.attention import LayerWeights
    from qkv.pictures.view import AttentionView
    from qkv.pictures.weights import computed_heads
    from qkv.spec import AttentionSpec

    spec = AttentionSpec(num_heads=case.heads, mask=Causal())
    layers = [
        LayerWeights(f"layer {at}", computed_heads(spec, Inputs(query=query[None], key=key[None], value=key[None])))
        for at, (query, key) in enumerate(queries_and_keys(case))
    ]
    view = AttentionView(layers=layers, tokens=[f"t{at}" for at in range(case.tokens)])
    return view.html


def by_bertviz(case: Case) -> Callable[[], str]:
    from bertviz import head_view

    given, tokens = [layer[None] for layer in weights(case)], [f"t{at}" for at in range(case.tokens)]
    return lambda: head_view(given, tokens, html_action="return").data


def by_circuitsvis(case: Case) -> Callable[[], str]:
    import torch
    from circuitsvis.attention import attention_heads

    given, tokens = torch.cat(weights(case)), [f"t{at}" for at in range(case.tokens)]
    return lambda: str(attention_heads(given, tokens))


def by_attnview(case: Case) -> Callable[[], str]:
    from attnview import from_cache, render_html

    given = {f"blocks.{at}.attn.hook_pattern": layer[None] for at, layer in enumerate(weights(case))}
    tokens = [f"t{at}" for at in range(case.tokens)]
    return lambda: render_html(from_cache(given, tokens=tokens))


TOOLS = {"qkv": by_qkv, "bertviz": by_bertviz, "circuitsvis": by_circuitsvis, "attnview": by_attnview}


def make(tool: str, case: Case) -> Page:
    """Makes a page in this process."""
    work = TOOLS[tool](case)
    started = time.process_time()
    text = work()
    seconds = time.process_time() - started
    first = text.partition('class="qkv-detail"')[0] if tool == "qkv" else text
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampled = re.search(r"1 of (\d+) queries was computed", first) if tool == "qkv" else None
    return Page(seconds, len(text.encode()), len(first.encode()), kilobytes * 1024, int(sampled[1]) if sampled else 1)


# --- side by side -----------------------------------------------------------------------------------------------------


def measured(python: str, tool: str, case: Case) -> str:
    """A cell of the table; where no page was made, why."""
    command = [python, __file__, "--make", tool, json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return f"no page in {LONGEST} s | | |"
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return f"no page: {said[-1] if said else f'it ended with {done.returncode}'} | | |"
    return str(Page(*json.loads(done.stdout.splitlines()[-1])))


def environment(folder: str) -> str:
    """An environment with the others, and its interpreter."""
    import torch

    venv.create(folder, with_pip=True)
    python = str(Path(folder) / "bin" / "python")
    wanted = [f"torch=={torch.__version__.partition('+')[0]}", *OTHERS]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return python


def main(words: tuple[str, ...] = ()) -> None:
    cases = [case for case in CASES if not words or any(word in str(case) for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        others = environment(folder) if any(case.others for case in cases) else ""
        print("| | by | file | first view | CPU time | memory |\n| --- | --- | ---: | ---: | ---: | ---: |")
        for case in cases:
            for tool in TOOLS if case.others else ("qkv",):
                python = sys.executable if tool == "qkv" else others
                print(f"| {case} | {tool} | {measured(python, tool, case)} |", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--make", tool, case]:
            print(json.dumps(make(tool, Case(*json.loads(case)))))
        case words:
            main(tuple(words))
