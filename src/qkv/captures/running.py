"""What a module or a model attends to while it runs on something: an input of its own, or a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qkv.captures.assembling import assembled
from qkv.captures.weights import layers_of_weights
from qkv.errors import CandidateError
from qkv.pictures.view import AttentionView


def view_of_run(module: Any, inputs: Any, *, sequence: int = 0, layer: int | None = None) -> AttentionView:
    """The weights that a torch module uses on some input, each attention in it a layer.

    Args:
        module: takes the input; a model of any kind, or anything else that can be called.
        inputs: its argument; a tuple for several, a mapping for named ones.
        sequence: which sequence of the batch.
        layer: which of the attentions, in the order in which they run; None for all.

    Raises:
        CandidateError: it raises, or computes no attention that can be heard.
    """
    from qkv.adapters.listening import listening  # imports torch

    with listening(module) as heard:
        try:
            _call(module, inputs)
        except CandidateError:
            raise
        except Exception as error:
            raise CandidateError(f"calling {_name(module)} raised {type(error).__name__}: {error}") from error
    if not heard:
        raise CandidateError(
            f"{_name(module)} ran, and no softmax or scaled_dot_product_attention of torch was heard in it",
            hint="without an input its weights are read from outside: qkv.show(module)",
        )
    return _view(heard, f"attention weights of {_name(module)}", sequence, layer)


def view_of_text(model: Any, tokenizer: Any, text: str, *, layer: int | None = None) -> AttentionView:
    """The weights of a language model of transformers on a text.

    Args:
        model: the model; or the name of one, or a folder, on this machine.
        tokenizer: cuts the text into tokens; None for the one that comes with a model that is named.
        text: the text.
        layer: which layer; None for all.

    Raises:
        CandidateError: there is no such model or layer, or it raises.
    """
    from qkv.adapters.language_models import attended, load_model, tokens_of  # imports torch

    name = model if isinstance(model, str) else _name(model)
    if isinstance(model, str):
        loaded = load_model(model)
        model, tokenizer = loaded.model, tokenizer or loaded.tokenizer
    if tokenizer is None:
        raise CandidateError(
            f"{name} was given a text and no tokenizer", hint="qkv.show(model, text=…, tokenizer=tokenizer)"
        )
    given, texts = tokens_of(tokenizer, text)
    notes = ["The attention of its encoder is shown"] if getattr(model.config, "is_encoder_decoder", False) else []
    title = f"attention weights of {name}"
    return _view(attended(model, given), title, 0, layer, texts, notes)


def _view(
    heard: Sequence[Any], title: str, sequence: int, layer: int | None, tokens: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> AttentionView:  # fmt: skip
    arrays = {_called_as(place, one.module): one.weights for place, one in enumerate(heard)}
    layers, read = layers_of_weights(arrays, sequence=sequence, layer=layer)
    return assembled(layers, title=title, notes=[*notes, *read], tokens=tokens)


def _called_as(place: int, module: str) -> str:
    """A layer's name: its number, and the module where that says more."""
    return f"layer {place}" if not module or module.isdigit() else f"layer {place} · {module}"


def _call(module: Any, inputs: Any) -> None:
    if isinstance(inputs, dict) or hasattr(inputs, "keys"):  # what a tokenizer gives is a mapping too
        module(**inputs)
    elif isinstance(inputs, tuple):
        module(*inputs)
    else:
        module(inputs)


def _name(module: Any) -> str:
    return str(getattr(module, "__name__", None) or type(module).__name__)
