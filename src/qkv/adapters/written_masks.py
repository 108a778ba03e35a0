"""Written masks: in which forms a candidate may take a mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.binding import Signature
from qkv.adapters.messages import Array
from qkv.vocabulary import MaskMeaning


@dataclass(frozen=True)
class MaskForm:
    """How a mask is written for the candidate.

    Attributes:
        meaning: what its entries mean.
        axes: how many axes it has: 2 ``(query, key)``, 3 ``(batch, query, key)``, 4 ``(batch, 1, query, key)``; 1
            stands for ``(batch, key)``, which can say padding only.
        numbers: whether a boolean is given as 0.0 and 1.0.
    """

    meaning: MaskMeaning = "keep"
    axes: Literal[1, 2, 3, 4] = 2
    numbers: bool = False

    def written(self, may_attend: Array) -> Array:
        """``(batch, head, query, key)`` booleans, True = may attend, in this form."""
        mask = may_attend[:, :1]
        if (mask != may_attend).any():
            if self.axes != 4:
                raise NotApplicable("a mask without an axis of heads can't say what each head may attend to")
            mask = may_attend
        if self.axes == 1:
            if (mask != mask[:, :, :1]).any():
                raise NotApplicable("a mask over the keys can't say what each query may attend to")
            mask = mask[:, 0, 0]
        elif self.axes == 4:
            pass
        elif self.axes == 3:
            mask = mask[:, 0]
        elif mask.shape[0] == 1 or (mask == mask[:1]).all():
            mask = mask[0, 0]
        return self.encoded(mask)

    def encoded(self, mask: Array) -> Array:
        """A keep-mask of any shape with entries of this meaning."""
        if self.meaning == "additive":
            return np.where(mask, 0.0, -np.inf)
        said = mask if self.meaning == "keep" else ~mask
        return said.astype(np.float64) if self.numbers else said

    def __str__(self) -> str:
        return {"keep": "True may attend", "hide": "True is hidden", "additive": "a number added to the scores"}[
            self.meaning
        ]


def mask_forms(signature: Signature, meaning: MaskMeaning | None, hint: MaskMeaning | None) -> Iterator[MaskForm]:
    """Forms a mask argument may want, likeliest first: the meaning given, or hinted at by the source, or all three."""
    if not signature.has("mask"):
        yield MaskForm()
        return
    # In the convention of Hugging Face attention_mask keeps or is added; nobody hides with it.
    hides = signature.roles["mask"].name != "attention_mask" or hint == "hide"
    for said in [meaning] if meaning else [m for m in _ordered(hint) if hides or m != "hide"]:
        for axes in (2, 4, 3, 1):
            yield MaskForm(said, axes)
            if said != "additive":
                yield MaskForm(said, axes, numbers=True)


def _ordered(hint: MaskMeaning | None) -> list[MaskMeaning]:
    """The meanings to try. Source that fills by the mask, or takes it from one, doesn't add it."""
    usual: list[MaskMeaning] = ["keep", "additive", "hide"]
    if hint is None:
        return usual
    others = [meaning for meaning in usual if meaning != hint]
    return [hint, *(others if hint == "additive" else [meaning for meaning in others if meaning != "additive"])]
