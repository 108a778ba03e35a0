"""What is said of each slip on the way to a mix, with the script's own names, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qkv.scripts.edits import with_number
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known
from qkv.scripts.mixes import Mix
from qkv.scripts.spots import Spot, Written, handed_over, spot_at
from qkv.scripts.writing import hiding, softmax_code, softmax_over_keys, turned, where_hidden


@dataclass(frozen=True)
class Slip:
    """A step that no right attention takes.

    Attributes:
        mix: the mix that it leads to.
        step: what it has made.
        spot: where it stands.
    """

    mix: Mix
    step: Known
    spot: Spot

    @property
    def said(self) -> str:
        """What the step was made of, in words for its author."""
        return self.mix.name(self.step.sources[0], "attn_scores") if self.step.sources else "attn_scores"

    @property
    def written(self) -> str:
        """The same as code that can stand there."""
        return self.spot.name(self.step.sources[0], "attn_scores") if self.step.sources else "attn_scores"


_OF_CALLS = frozenset({"softmax-twice", "scale-after-softmax"})
"""Slips of whoever calls a function, where it is one that makes the step."""

Words = tuple[str, str | Written]
"""What is wrong, and what to write instead; of a string alone in the place of the step."""


def finding_of(mix: Mix, step: Known) -> Finding:
    """The finding on a step that no right attention takes."""
    made = mix.made(step)
    made = _viewed_at(mix, made) if step.slip == "heads-split-by-view" else made
    reading = mix.reading
    spot = handed_over(reading, made, step.sources[0]) if step.slip in _OF_CALLS else spot_at(reading, made)
    slip = Slip(mix, step, spot)
    said, instead = _WORDS[step.slip](slip)
    written = instead if isinstance(instead, Written) else Written(slip.spot, instead)
    before = _before(slip) if step.slip == "dropout-in-eval" else written.before
    return Finding.of(step.slip, said, written._replace(before=before), mix)


def _viewed_at(mix: Mix, made: int) -> int:
    """The view that cuts an array up, of which others take out parts and move axes."""
    reading, operation = mix.reading, made
    while operation >= 0 and reading.operations[operation].name not in ("view", "reshape", "unflatten"):
        operation = next((reading.made_by.get(value, -1) for value in reading.above(operation)), -1)
    return made if operation < 0 else operation


def _scores(slip: Slip) -> Words:
    left, right = (slip.mix.name(one, "tokens") for one in slip.step.sources)
    said = f"a score is the dot product of a row of {left} with a row of {right}: @ with the second one transposed"
    one, other = (slip.spot.name(side, "tokens") for side in slip.step.sources)
    return said, f"{one} @ {turned(slip.mix, other, slip.step.sources[1].array.ndim)}"


def _mix(slip: Slip) -> Words:
    mix, spot = slip.mix, slip.spot
    said = f"each context vector is the sum of the rows of {mix.name(mix.value, 'values')}, each times its weight"
    return said, f"{spot.name(mix.weights, 'attn_weights')} @ {spot.name(mix.value, 'values')}"


def _no_softmax(slip: Slip) -> Words:
    said = (
        f"this is no softmax: that takes e to the power of each number in {slip.said}, and divides by their sum in "
        "the row"
    )
    return said, softmax_code(slip.mix, slip.written)


def _fill(slip: Slip) -> Words:
    fill = slip.step.number
    said = (
        f"hidden scores become {fill:g} here, and e to the power of that is {np.exp(min(fill, 50.0)):.3g} and "
        "not 0: the hidden tokens keep some weight. Only minus infinity leaves them none"
    )
    changed = with_number(slip.spot.code, fill, "-torch.inf" if slip.mix.is_torch else "-np.inf")
    return said, _masked(slip) if changed == slip.spot.code else changed


def _added(slip: Slip) -> Words:
    said = (
        f"{slip.step.number:g} is added to the scores, which hides nothing: a hidden score must become minus infinity"
    )
    return said, _masked(slip)


def _masked(slip: Slip) -> str:
    """The scores with a mask that their step is made with, minus infinity where it hides."""
    mix, spot, visible = slip.mix, slip.spot, slip.step.visible
    names = {value: name for name, value in mix.reading.held_at(spot.operation, spot.function).items()}
    hidden = (where_hidden(mix, one, names.get(one, ""), visible) for one in mix.reading.above(spot.operation))
    mask = next((one for one in hidden if one), "")
    if mask:
        return hiding(mix, slip.written, mask)
    return f"{hiding(mix, slip.written, 'mask')}   # mask: True where a token may not look"


def _over_all(slip: Slip) -> Words:
    return "all weights together sum to one here; each row must do so by itself", softmax_over_keys(slip.mix, slip.step)


def _over_others(slip: Slip) -> Words:
    over = slip.step.over
    said = f"softmax runs over the axis {over} here; it is a token's weights over all keys that must sum to one"
    return said, softmax_over_keys(slip.mix, slip.step)


def _twice(slip: Slip) -> Words:
    said = f"{slip.said} went through softmax before, and its rows sum to one already: this makes them more alike"
    return said, slip.written


def _late_scale(slip: Slip) -> Words:
    factor = slip.step.number
    said = (
        f"{slip.said} is multiplied by {factor:.4g} after softmax, and its rows no longer sum to one: scale the scores"
    )
    return said, softmax_code(slip.mix, f"attn_scores * {factor:.4g}")


def _dropout(slip: Slip) -> Words:
    said = (
        f"dropout sets weights to zero by chance and multiplies the others by {1 / (1 - slip.step.number):.3g}: "
        "each run gives other context vectors. It belongs in training alone"
    )
    code = slip.spot.code
    called = code.partition("(")[0]
    if _before(slip):
        return said, code
    if called.endswith("dropout") and "training" in code:
        return said, re.sub(r"training\s*=\s*\w+", "training=False", code)
    if called in ("F.dropout", "nn.functional.dropout", "torch.nn.functional.dropout"):
        return said, f"{code[:-1]}, training=False)"
    return said, f"{slip.written}   # leave dropout out"


def _before(slip: Slip) -> str:
    """The statement that turns a layer's dropout off; empty where no layer does it."""
    called, bracket, _ = slip.spot.code.partition("(")
    functional = called.rpartition(".")[0].endswith(("F", "functional", "torch"))
    return f"{called}.eval()" if bracket and called.replace(".", "").isidentifier() and not functional else ""


def _split(slip: Slip) -> Words:
    said = (
        "this view cuts up the tokens and not the channels: take the heads out of the last axis, then move their axis"
    )
    return said, f"{slip.written}.view(batch, num_tokens, num_heads, head_dim).transpose(1, 2)   # by their own names"


def _merged(slip: Slip) -> Words:
    said = "the heads lie one behind the other: without a transpose this puts different tokens side by side"
    whole = "reshape(batch, num_tokens, num_heads * head_dim)"
    return said, f"{slip.written}.transpose(1, 2).{whole}   # by their own names"


def _tiled(slip: Slip) -> Words:
    sides = slip.step.sources
    heads, few = (side.array.shape[side.axes.index("head")] for side in sides)
    said = (
        f"{few} heads of {slip.mix.name(sides[1], 'keys and values')} serve {heads} heads here, taken in turn: the "
        f"first {heads // few} heads share the first one, so head h belongs to h // {heads // few}"
    )
    return said, f"{slip.spot.code}   # of head h // {heads // few}"


_WORDS: dict[str, Callable[[Slip], Words]] = {
    "transpose-forgotten": _scores,
    "scores-of-channels": _scores,
    "elementwise": _scores,
    "elementwise-mix": _mix,
    "value-turned": _mix,
    "softmax-missing": _no_softmax,
    "masked-scores-zeroed": _fill,
    "mask-fill-too-small": _fill,
    "mask-added-as-number": _added,
    "softmax-over-all": _over_all,
    "softmax-over-heads-or-batch": _over_others,
    "softmax-twice": _twice,
    "scale-after-softmax": _late_scale,
    "dropout-in-eval": _dropout,
    "heads-split-by-view": _split,
    "heads-merged-by-view": _merged,
    "kv-heads-tiled": _tiled,
}
