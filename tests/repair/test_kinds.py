"""Faults of many kinds, each planted in three styles of code, are mended, and the mended file is found right."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.repair import patched, request_for
from benchmarks.styles import style_name, styles, variants

from qkv.adapters.host import Host
from qkv.debugger import judge
from qkv.report import Verdict

MODULE, NUMPY, EINSUM, FUNCTION = "article_multi_head", "numpy_weights", "einsum_module", "functional_bhtd"
GPT, LLAMA, GEMMA, FUSED = "nanogpt", "llama_like", "gemma_like", "sdpa_module"

KINDS = {
    "bias-term": (MODULE, EINSUM, GPT),
    "causal-inverted": (FUNCTION, LLAMA, FUSED),
    "causal-missing": (FUNCTION, GPT, FUSED),
    "causal-one-ahead": (EINSUM, GEMMA, FUSED),
    "causal-strict": (MODULE, LLAMA, FUSED),
    "dropout-in-eval": (FUNCTION, GPT, FUSED),
    "heads-merged-by-view": (MODULE, NUMPY, LLAMA),
    "heads-split-by-view": (NUMPY, GPT, GEMMA),
    "key-value-swapped": (MODULE, GPT, FUSED),
    "mask-added-as-number": (EINSUM, FUNCTION, LLAMA),
    "mask-after-softmax": (MODULE, EINSUM, GEMMA),
    "mask-fill-too-small": (FUNCTION, GPT, LLAMA),
    "masked-scores-zeroed": (MODULE, EINSUM, FUNCTION),
    "output-projection-missing": (NUMPY, GPT, FUSED),
    "projection-transposed": (NUMPY, EINSUM, LLAMA),
    "scale-after-softmax": (NUMPY, EINSUM, FUNCTION),
    "scale-by-model-width": (NUMPY, EINSUM, FUSED),
    "scale-inverted": (NUMPY, FUNCTION, LLAMA),
    "scale-missing": (NUMPY, GPT, FUSED),
    "scale-other-constant": (MODULE, FUNCTION, FUSED),
    "scale-twice": (NUMPY, EINSUM, FUNCTION),
    "scores-transposed": (NUMPY, EINSUM, FUSED),
    "softmax-low-precision": (NUMPY, EINSUM, FUNCTION),
    "softmax-over-heads-or-batch": (NUMPY, EINSUM, FUNCTION),
    "softmax-over-queries": (NUMPY, MODULE, FUNCTION),
    "strided-read-as-contiguous": (NUMPY, MODULE, FUNCTION),
    "value-is-key": (NUMPY, EINSUM, FUSED),
    "weights-times-key": (NUMPY, EINSUM, GPT),
    "window-off-by-one": (GEMMA, "numpy_decode", "document_module"),
}

QUICK = {
    ("softmax-over-queries", NUMPY),
    ("scale-missing", NUMPY),
    ("causal-inverted", FUNCTION),
    ("value-is-key", FUSED),
}
"""What is tried without the slow tests."""

STYLES = {style_name(style): style for style in styles()}


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        pytest.param(fault, name, marks=() if (fault, name) in QUICK else pytest.mark.slow, id=f"{fault} {name}")
        for fault, names in KINDS.items()
        for name in names
    ],
)
def test_a_planted_fault_is_mended(fault: str, name: str, tmp_path: Path) -> None:
    style = STYLES[name]
    (planted,) = (variant for variant in variants(style) if variant.label == fault)
    path = tmp_path / "candidate.py"
    path.write_text(planted.source, encoding="utf-8")
    report = patched(path, style.NAME, list(style.OPTIONS), seconds=60.0)
    assert report.verdict is Verdict.WRONG
    assert report.patch is not None
    assert path.read_text(encoding="utf-8") == planted.source
    request = replace(
        request_for(path, style.NAME, list(style.OPTIONS)), instead={str(path.absolute()): report.patch.edited}
    )
    with contextlib.redirect_stdout(io.StringIO()):
        assert judge(request, Host()).verdict is Verdict.RIGHT


def test_the_table_is_as_wide_as_is_said() -> None:
    assert len(KINDS) >= 25
    assert all(len(set(names)) >= 3 for names in KINDS.values())
