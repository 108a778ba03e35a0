"""A language model of transformers and what it attends to in a text. Local files only. Imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.adapters.listening import MOST_ENTRIES, Heard, listening
from qkv.errors import CandidateError


@dataclass(frozen=True)
class Loaded:
    """A model and what cuts texts into its tokens."""

    model: Any
    tokenizer: Any


def load_model(name: str) -> Loaded:
    """A model in evaluation and its tokenizer, from a folder or from what was downloaded earlier.

    Code that a model brings along is not run.

    Raises:
        CandidateError: transformers is not installed, or there is no such model on this machine.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
    try:
        from transformers import AutoModel, AutoTokenizer
    except ModuleNotFoundError:
        raise CandidateError("transformers is not installed", hint="pip install 'qkv[hf]'") from None
    parts = []
    for kind, what in ((AutoModel, "model"), (AutoTokenizer, "tokenizer")):
        try:
            with _quiet():
                parts.append(kind.from_pretrained(name, local_files_only=True))
        except Exception as error:  # noqa: BLE001 - whatever the files make of the library
            raise _not_loaded(name, what, error) from None
    return Loaded(parts[0].eval(), parts[1])


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing; meanwhile transformers shows no bars, and doesn't report weights that have no part in attention."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _not_loaded(name: str, what: str, error: Exception) -> CandidateError:
    if not Path(name).is_dir():
        hint = "nothing is downloaded: name a folder that save_pretrained wrote, or a model that was used here before"
        return CandidateError(f"there is no {what} of the name {name!r} on this machine", hint=hint)
    held = ", ".join(sorted(file.name for file in Path(name).iterdir())[:8]) or "nothing"
    hint = f"it should hold config.json, weights and a tokenizer, as save_pretrained writes them; it holds {held}"
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CandidateError(f"transformers can't load a {what} from {name}: {said}", hint=hint)


def tokens_of(tokenizer: Any, text: str) -> tuple[dict[str, Any], list[str]]:
    """What the model is given for a text, and the text of each of its tokens.

    Raises:
        CandidateError: the text has no token.
    """
    given = dict(tokenizer(text, return_tensors="pt"))
    numbers = given["input_ids"][0].tolist()
    if not numbers:
        raise CandidateError("the text has no token", hint='write some words: --text "the cat sat on the mat"')
    return given, [_text(tokenizer, number) for number in numbers]


def _text(tokenizer: Any, number: int) -> str:
    text = str(tokenizer.decode([number]))
    # A part of a character is no text; its name in the vocabulary says which.
    return text if text and "\ufffd" not in text else str(tokenizer.convert_ids_to_tokens(number))


def attended(model: Any, given: dict[str, Any]) -> list[Heard]:
    """The weights of every layer, in order, as the model itself hands them out; where it can't, as they are heard.

    Args:
        model: a model of transformers.
        given: the arguments of its call.

    Raises:
        CandidateError: it raises, or the weights are too many.
    """
    _must_be_few(model, given)
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
    try:
        with _eager(model) as can, torch.no_grad():
            weights = getattr(model(**given, output_attentions=True), "attentions", None) if can else None
            if weights and all(isinstance(one, torch.Tensor) and one.ndim == 4 for one in weights):
                return [Heard(str(layer), one.float()) for layer, one in enumerate(weights)]
        with listening(model) as heard:
            model(**given)
    except CandidateError:
        raise
    except Exception as error:
        raise CandidateError(f"the model raised {type(error).__name__}: {error}") from error
    return heard


@contextmanager
def _eager(model: Any) -> Iterator[bool]:
    """Whether the model now computes its attention in plain operations; afterwards it does as before."""
    before = getattr(model.config, "_attn_implementation", None)
    able = hasattr(model, "set_attn_implementation")
    if able:
        with suppress(ValueError):
            model.set_attn_implementation("eager")
    try:
        yield able and model.config._attn_implementation == "eager"
    finally:
        if able and before:
            model.set_attn_implementation(before)


def _must_be_few(model: Any, given: dict[str, Any]) -> None:
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    layers, heads = (getattr(config, name, 1) or 1 for name in ("num_hidden_layers", "num_attention_heads"))
    batch, length = given["input_ids"].shape
    if batch * layers * heads * length**2 > MOST_ENTRIES:
        most = int((MOST_ENTRIES / layers / heads) ** 0.5)
        message = f"{length} tokens in {layers} layers of {heads} heads make more weights than are kept"
        raise CandidateError(message, hint=f"give a text of at most {most} tokens")
