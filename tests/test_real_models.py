"""The attentions of transformers and torch, through the adapters in examples/: right, and named when a line is wrong.

A planted fault takes the source of a class or a function from the installed library, changes one line of it, and puts
the result in its place for as long as the test runs.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

sys.path.append(str(Path(__file__).parent / "real_models"))

from calls import call
from plants import WRONG, Model, Plant

EXAMPLES = Path(__file__).parent.parent / "examples"

Judge = Callable[..., Any]


OPEN: dict[str, str] = {}
"""What qkv does not do yet, and why. A case that starts to pass fails here, and its line goes."""


def cases(how: str, candidates: Iterable[str]) -> list[Any]:
    """The candidates, each as a parameter of its own."""
    return [pytest.param(candidate, marks=open_marks(f"{how} {candidate}")) for candidate in candidates]


def open_marks(case: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(reason=OPEN[case])] if case in OPEN else []


@pytest.fixture(scope="module")
def judging() -> Iterator[Judge]:
    """Calls a function of real_models/judging.py in a process of its own, which is the same for all tests."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        yield lambda name, *args: process.submit(call, name, *args).result(timeout=120)


# --- right ------------------------------------------------------------------------------------------------------------

FROM_TRANSFORMERS = (
    "gpt2_attention.py",
    "llama_attention.py",
    "mistral_attention.py",
    "qwen3_attention.py",
    "gemma2_attention.py",
    "gpt_neox_attention.py",
    "gpt_oss_attention.py",
    "phi3_attention.py",
    "olmo2_attention.py",
    "bloom_attention.py",
    "mpt_attention.py",
    "bert_attention.py:eager",
    "bert_attention.py:sdpa",
)
FROM_TORCH: dict[str, dict[str, Any]] = {
    "torch_attention.py:multi_head": {"num_heads": 6, "projection_bias": True},
    "torch_attention.py:CausalMultiHead": {"num_heads": 6, "projection_bias": True, "causal": True},
    "torch_attention.py:scaled_dot_product": {"num_heads": 6, "num_kv_heads": 2},
    "torch_attention.py:causal_scaled_dot_product": {
        "num_heads": 6, "num_kv_heads": 2, "causal": True, "query_offset": "top_left",
    },
}  # fmt: skip


@pytest.mark.parametrize("candidate", cases("config", FROM_TRANSFORMERS))
def test_an_attention_of_transformers_is_right_by_its_config(candidate: str, judging: Judge) -> None:
    judgement = judging("by_config", candidate)
    assert judgement.verdict == "right", judgement


@pytest.mark.parametrize("candidate", cases("inferred", [*FROM_TRANSFORMERS, *FROM_TORCH]))
def test_an_attention_is_right_by_what_it_says_of_itself(candidate: str, judging: Judge) -> None:
    judgement = judging("by_fields", candidate, {})
    assert judgement.verdict == "right", judgement


@pytest.mark.parametrize("candidate", cases("flags", FROM_TORCH))
def test_an_attention_of_torch_is_right_by_flags(candidate: str, judging: Judge) -> None:
    judgement = judging("by_fields", candidate, FROM_TORCH[candidate])
    assert judgement.verdict == "right", judgement


@pytest.mark.slow
@pytest.mark.parametrize(("window", "code", "faults"), [(5, 0, []), (6, 1, ["window-off-by-one"])])
def test_the_command_holds_an_attention_to_the_window_of_its_config(
    window: int, code: int, faults: list[str], judging: Judge, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({**json.loads(judging("config_of", "mistral_attention.py")), "sliding_window": window})
    )
    command = [Path(sys.executable).with_name("qkv"), "check", EXAMPLES / "mistral_attention.py"]
    done = subprocess.run(
        [*command, "--spec", config, "--format", "json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert [fault["id"] for fault in json.loads(done.stdout)["faults"]] == faults


# --- wrong ------------------------------------------------------------------------------------------------------------

PLANTED = [
    pytest.param(
        model,
        plant,
        id=f"{model.candidate.replace('_attention.py', '')}-{plant.fault}-{plant.where.rpartition(':')[2]}",
        marks=open_marks(f"{plant.fault} {model.candidate}") + ([pytest.mark.slow] if number % 3 else []),
    )
    for model in WRONG
    for number, plant in enumerate(model.plants)
]
"""Every third of a model is tried in any run, the others where slow tests are."""


@pytest.mark.parametrize(("model", "plant"), PLANTED)
def test_one_changed_line_is_named(model: Model, plant: Plant, judging: Judge) -> None:
    judgement = judging("with_plant", model, plant)
    assert judgement.verdict == "wrong", judgement
    assert judgement.faults == [plant.fault], judgement


CALLED_WRONGLY = [
    ("causal_scaled_dot_product", "is_causal=True, ", "", "causal-missing"),
    ("causal_scaled_dot_product", "is_causal=True", "is_causal=True, scale=1.0", "scale-missing"),
    ("causal_scaled_dot_product", "query, key, value, is_causal", "query, key, key, is_causal", "value-is-key"),
    ("causal_scaled_dot_product", "is_causal=True", "is_causal=True, dropout_p=0.1", "dropout-in-eval"),
    ("CausalMultiHead", "attn_mask=mask", "attn_mask=mask.mT", "causal-inverted"),
    ("CausalMultiHead", "attn_mask=mask", "attn_mask=torch.triu(mask, 2)", "causal-one-ahead"),
    ("CausalMultiHead", "attn_mask=mask", "attn_mask=mask.clamp(min=-5.0)", "mask-fill-too-small"),
]


@pytest.mark.parametrize(("name", "line", "instead", "fault"), CALLED_WRONGLY)
def test_torch_called_wrongly_is_named(
    name: str, line: str, instead: str, fault: str, judging: Judge, tmp_path: Path
) -> None:
    source = (EXAMPLES / "torch_attention.py").read_text()
    assert line in source
    changed = tmp_path / "changed.py"
    changed.write_text(source.replace("import torch.nn", "import torch\nimport torch.nn").replace(line, instead))
    judgement = judging("by_fields", f"{changed}:{name}", FROM_TORCH[f"torch_attention.py:{name}"])
    assert judgement.verdict == "wrong", judgement
    assert judgement.faults == [fault], judgement
