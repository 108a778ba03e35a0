"""A tiny language model that comes with the package, of nothing but attention: two of the layers of `qkv.layers`.

`tiny()` is the model, in torch. `vocabulary()`, `weights()` and `trace()` give its words, its arrays and every number
that its attention makes on the way, and need NumPy alone. `python -m training` in the repository makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qkv.model.head_scores import induction as induction, previous_token as previous_token
from qkv.model.oracle_run import trace as trace
from qkv.model.storage import vocabulary as vocabulary, weights as weights
from qkv.model.vocabulary import Vocabulary as Vocabulary

if TYPE_CHECKING:
    from qkv.model.language_model import LanguageModel


def tiny() -> LanguageModel:
    """The embedded model, ready to be used: a torch module in float32, in evaluation."""
    from qkv.model.language_model import load  # what draws the weights needs no torch

    return load()
