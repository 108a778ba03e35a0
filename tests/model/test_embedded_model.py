"""What ships in the package: that it loads, does what is said of it, and that its attention is right."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from training.__main__ import head_scores
from training.grammar import WORDS
from training.loop import skill

import qkv
from qkv.model import induction, previous_token, tiny, trace, vocabulary, weights
from qkv.model.language_model import LanguageModel
from qkv.model.oracle_run import SPEC

TEXT = (
    "anna wood has a red kite . ben hill said honey rain gold . the parrot said honey rain gold . anna wood has a red"
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny()


def test_it_loads_in_a_fraction_of_a_second(model: LanguageModel) -> None:
    start = time.perf_counter()
    tiny()
    assert time.perf_counter() - start < 0.5
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_words_weights_and_trace_need_no_torch() -> None:
    code = (
        "import sys; from qkv.model import trace, vocabulary, weights\n"
        "weights(); trace(vocabulary().tokens('anna has a kite')); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_the_words_are_those_of_the_stories_it_was_trained_on() -> None:
    assert list(vocabulary().words) == WORDS
    assert weights()["embedding.weight"].shape[0] == len(WORDS)


def test_it_foretells_what_earlier_words_settle(model: LanguageModel) -> None:
    learnt = skill(model, count=50)
    assert learnt.recalled > 0.99
    assert learnt.recall_loss < 0.05


def test_it_goes_on_with_what_the_text_settles(model: LanguageModel) -> None:
    assert model.generate(TEXT, words=1) == f"{TEXT} kite"
    assert model.generate("ben hill said honey rain gold bread . the parrot said honey", words=4).endswith(
        "honey rain gold bread ."
    )


def test_one_head_looks_one_back_and_others_at_what_came_after_the_same_word(model: LanguageModel) -> None:
    scores = head_scores(model, sequences=20)
    assert scores["previous token"][0].max() > 0.7
    assert scores["induction"][1].max() > 0.7
    # Neither is there by itself: a head that attends to all earlier tokens alike has about 0.1 of each.
    assert scores["previous token"][1].max() < 0.2
    assert scores["induction"][0].max() < 0.2


def test_the_heads_do_the_same_in_a_sentence(model: LanguageModel) -> None:
    tokens = model.tokens("ben hill said honey rain gold bread . the parrot said honey rain gold")
    attn_weights = model.attention_weights(tokens).detach()  # layer head query key
    assert attn_weights.shape == (2, 4, 14, 14)
    best = head_scores(model, sequences=5)["induction"][1].argmax()
    assert attn_weights[1, best, -3:].argmax(-1).tolist() == [4, 5, 6], "after honey, rain, gold came rain, gold, bread"


def test_trace_gives_the_weights_of_the_model(model: LanguageModel) -> None:
    tokens = model.tokens(TEXT)
    traced = np.stack([run.weights[0] for run in trace(tokens.tolist())])  # layer head query key
    assert np.abs(traced - model.attention_weights(tokens).detach().numpy()).max() < 1e-5
    assert previous_token(traced).shape == (2, 4)
    assert induction(traced, tokens).shape == (2, 4)


def test_a_batch_is_its_texts_side_by_side(model: LanguageModel) -> None:
    texts = ["anna wood has a red kite", "where is the blue drum ?"]
    batch = torch.stack([model.tokens(text) for text in texts])
    torch.testing.assert_close(model(batch), torch.stack([model(tokens) for tokens in batch]))
    assert model.attention_weights(batch).shape == (2, 2, 4, 6, 6)


@pytest.mark.parametrize("layer", [0, 1])
def test_each_attention_is_right(layer: int, model: LanguageModel) -> None:
    report = qkv.check(model.attentions[layer], SPEC)
    assert report.verdict == "right", report


def inside(model: LanguageModel, layer: int) -> dict[str, Tensor]:
    """Query, key and value before rope, and the context vectors made of them, (batch, head, token, head_dim)."""
    seen: dict[str, Tensor] = {}

    def note(name: str) -> Callable[..., None]:
        return lambda module, args, made=None: seen.update({name: args[0] if made is None else made})

    attention = f"attentions.{layer}"
    for name in ("q_proj", "k_proj", "v_proj"):
        model.get_submodule(f"{attention}.{name}").register_forward_hook(note(name))
    model.get_submodule(f"{attention}.out_proj").register_forward_pre_hook(note("output"))
    model(model.tokens(TEXT)[None])
    return {name: x.detach().unflatten(-1, (-1, 16)).transpose(1, 2).contiguous() for name, x in seen.items()}


@pytest.mark.parametrize(("pairing", "verdict"), [("halves", "right"), ("adjacent", "wrong")])
@pytest.mark.parametrize("layer", [0, 1])
def test_each_attention_is_right_with_its_own_weights_on_a_text(
    layer: int, pairing: str, verdict: str, tmp_path: Path
) -> None:
    file = tmp_path / "layer.safetensors"
    save_file(inside(tiny(), layer), file)
    spec = {"num_heads": 4, "num_kv_heads": 2, "causal": True, "out_proj": False, "rope": {"pairing": pairing}}
    assert qkv.check(str(file), spec, layout="BHTD").verdict == verdict
