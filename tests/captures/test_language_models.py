"""Language models of transformers with a text: tiny ones, built here, from a folder or handed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.adapters import listening
from qkv.adapters.language_models import attended, tokens_of
from qkv.errors import CandidateError, ShapeError
from qkv.pictures.view import AttentionView

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[UNK]", "the", "cat", "sat", "on", "mat", "<script>", "ben"]
TEXT = "the cat sat on the mat"


def config() -> Any:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": len(WORDS)}
    return transformers.LlamaConfig(
        num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0, **sizes
    )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    cut = tokenizers.Tokenizer(words)
    cut.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=cut, unk_token="[UNK]")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config(), attn_implementation="sdpa").eval()


@pytest.fixture(scope="module")
def folder(model: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def dense(view: AttentionView) -> Any:
    return np.stack([head.rows(slice(0, view.shape[0])).weights for head in view.heads])


@torch.no_grad()
def test_a_model_with_a_text_shows_its_own_weights(model: Any, tokenizer: Any) -> None:
    view = qkv.show(model, text=TEXT, tokenizer=tokenizer)
    own = transformers.AutoModel.from_config(config(), attn_implementation="eager").eval()
    own.load_state_dict(model.state_dict())
    wanted = own(**tokens_of(tokenizer, TEXT)[0], output_attentions=True).attentions
    np.testing.assert_array_equal(dense(view), torch.cat(wanted)[:, :, :].flatten(0, 1).numpy())
    assert view.tokens == TEXT.split()
    assert [layer.name for layer in view.layers] == ["layer 0", "layer 1"]
    assert not view.heads[0].rows(slice(0, 6)).may_attend[0, 1:].any()
    assert model.config._attn_implementation == "sdpa", "it is left as it was"


def test_what_is_heard_is_what_the_model_says(model: Any, tokenizer: Any) -> None:
    given, _ = tokens_of(tokenizer, TEXT)
    with listening.listening(model) as heard:
        model(**given)
    for one, other in zip(heard, attended(model, given), strict=True):
        torch.testing.assert_close(one.weights.nan_to_num(), other.weights)


def test_a_model_that_gives_no_weights_is_listened_to(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dense(qkv.show(model, text=TEXT, tokenizer=tokenizer))
    monkeypatch.setattr(type(model), "set_attn_implementation", lambda *_: None)
    view = qkv.show(model, text=TEXT, tokenizer=tokenizer)
    np.testing.assert_allclose(np.nan_to_num(dense(view)), whole, atol=1e-6)
    assert [layer.name for layer in view.layers] == [f"layer {n} · layers.{n}.self_attn" for n in (0, 1)]


def test_a_folder_is_a_model_too(folder: Path, model: Any, tokenizer: Any) -> None:
    view = qkv.show(str(folder), text=TEXT, layer=1)
    assert [layer.name for layer in view.layers] == ["layer 1"]
    np.testing.assert_allclose(dense(view), dense(qkv.show(model, text=TEXT, tokenizer=tokenizer, layer=1)), atol=1e-6)
    with pytest.raises(ShapeError, match="there are 2 layers, 0 to 1, and layer 7 was asked for"):
        qkv.show(str(folder), text=TEXT, layer=7)


def test_tokens_of_a_text_stand_in_the_page_as_text(model: Any, tokenizer: Any) -> None:
    html = qkv.show(model, text="the <script> sat", tokenizer=tokenizer).html()
    assert "\\u003cscript\\u003e" in html


def test_an_encoder_and_decoder_shows_the_encoder(tokenizer: Any) -> None:
    sizes = {"d_model": 16, "d_kv": 4, "num_layers": 2, "num_heads": 4, "d_ff": 16, "vocab_size": len(WORDS)}
    t5 = transformers.AutoModel.from_config(transformers.T5Config(decoder_start_token_id=0, **sizes)).eval()
    view = qkv.show(t5, text=TEXT, tokenizer=tokenizer)
    assert (len(view.layers), len(view.heads), view.shape) == (2, 8, (6, 6))
    assert "The attention of its encoder is shown" in view.notes


def test_nothing_is_looked_for_on_the_network() -> None:
    with pytest.raises(
        CandidateError, match="there is no model of the name 'nobody/nothing' on this machine"
    ) as caught:
        qkv.show("nobody/nothing", text=TEXT)
    assert "nothing is downloaded" in caught.value.hint


def test_a_folder_that_is_no_model_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(CandidateError, match="can't load a model from") as caught:
        qkv.show(str(tmp_path), text=TEXT)
    assert "it holds config.json" in caught.value.hint


def test_a_text_needs_tokens_and_a_tokenizer(model: Any, tokenizer: Any) -> None:
    with pytest.raises(CandidateError, match="LlamaModel was given a text and no tokenizer"):
        qkv.show(model, text=TEXT)
    with pytest.raises(CandidateError, match="the text has no token"):
        qkv.show(model, text=" ", tokenizer=tokenizer)


def test_a_text_that_is_too_long_says_how_long_it_may_be(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qkv.adapters.language_models.MOST_ENTRIES", 2 * 4 * 25)
    with pytest.raises(CandidateError, match="6 tokens in 2 layers of 4 heads") as caught:
        qkv.show(model, text=TEXT, tokenizer=tokenizer)
    assert caught.value.hint == "give a text of at most 5 tokens"
