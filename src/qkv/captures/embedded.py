"""The embedded model on a sentence: every number by the oracle, without torch."""

from __future__ import annotations

from qkv.captures.assembling import assembled
from qkv.errors import ShapeError
from qkv.model import trace, vocabulary
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import computed_heads

SENTENCE = "river rain winter garden wind snow river rain winter garden wind snow"
"""All of it is said twice: a head that looks at the token before, and induction heads, are plain to see."""


def view_of_embedded(text: str = SENTENCE, *, layer: int | None = None) -> AttentionView:
    """The weights of the embedded model.

    Args:
        text: words that it knows, apart from each other.
        layer: which of its two layers; None for both.

    Raises:
        SpecError: a word is not known.
    """
    known = vocabulary()
    numbers = known.tokens(text)
    runs = list(enumerate(trace(numbers)))
    if layer is not None and layer not in range(len(runs)):
        raise ShapeError(f"there are {len(runs)} layers, 0 to {len(runs) - 1}, and layer {layer} was asked for")
    runs = [(place, run) for place, run in runs if layer in (None, place)]
    layers = [LayerWeights(f"layer {place}", computed_heads(run.spec, run.inputs)) for place, run in runs]
    return assembled(
        layers,
        title="attention weights of qkv.model.tiny()",
        tokens=[known.words[number] for number in numbers],
        notes=["The language model that comes with qkv, computed by the oracle in float64"],
    )
