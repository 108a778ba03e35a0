"""What is said of each slip on the way to a mix, with the script's own names, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from qkv.scripts.findings import Finding
from qkv.scripts.known import Array, Known
from qkv.scripts.mixes import Mix

Words = tuple[str, str]
"""What is wrong, and what to write instead."""


def finding_of(mix: Mix, step: Known) -> Finding:
    """The finding on a step that no right attention takes."""
    source = mix.name(step.sources[0], "attn_scores") if step.sources else "attn_scores"
    said, instead = _WORDS[step.slip](mix, step, source)
    before = _before(mix, step) if step.slip == "dropout-in-eval" else ""
    made = _viewed_at(mix, step.made) if step.slip == "heads-split-by-view" else step.made
    return Finding(step.slip, made, said, instead, mix, before)


def _viewed_at(mix: Mix, made: int) -> int:
    """The view that cuts an array up, of which others take out parts and move axes."""
    reading, operation = mix.reading, made
    while operation >= 0 and reading.operations[operation].name not in ("view", "reshape", "unflatten"):
        operation = next((reading.made_by.get(value, -1) for value in reading.above(operation)), -1)
    return made if operation < 0 else operation


def over_keys(mix: Mix, step: Known) -> str:
    """The expression that makes weights, its axis that of the keys."""
    code = mix.reading.code(step.made)
    rows = "dim=-1, keepdim=True" if mix.is_torch else "axis=-1, keepdims=True"
    changed = re.sub(r"\b(dim|axis)\s*=\s*-?\d+", r"\1=-1", code).replace(".sum()", f".sum({rows})")
    if changed != code:
        return changed
    return softmax_code(mix, mix.name(step.sources[0], "attn_scores"))


def of_other(mix: Mix, step: Known, source: str) -> str:
    """The expression that makes weights of scores, made of others."""
    code, own = mix.reading.code(step.made), mix.name(step.sources[0], "attn_scores")
    written = own if code.count(own) == 1 else own.removeprefix("(").removesuffix(")")
    return code.replace(written, source) if code.count(written) == 1 else softmax_code(mix, source)


def hiding(mix: Mix, scores: str, mask: str) -> str:
    """Scores that are minus infinity where a mask is True, in the script's framework."""
    return f"{scores}.masked_fill({mask}, -torch.inf)" if mix.is_torch else f"np.where({mask}, -np.inf, {scores})"


def drawn(mix: Mix, scores: str) -> str:
    """The statement that draws a causal mask for scores, True above the diagonal."""
    if mix.is_torch:
        return f"mask = torch.triu(torch.ones_like({scores}), diagonal=1).bool()"
    return f"mask = np.triu(np.ones({scores}.shape, dtype=bool), k=1)"


def where_hidden(mix: Mix, mask: int, visible: Array | None = None) -> str:
    """A variable that holds a mask, as an expression that is True where it hides; empty where that can't be told."""
    array, name = mix.reading.array(mask), mix.reading.name(mask)
    shape = array.shape[-2:]
    visible = np.tri(*shape) > 0 if visible is None else visible.reshape(-1, *visible.shape[-2:])[0]
    rows = array.reshape(-1, *shape)[0].astype(bool)
    if not name or rows.shape != visible.shape:
        return ""
    if np.array_equal(rows, ~visible):
        return name if array.dtype == bool else f"{name} == 1" if not mix.is_torch else f"{name}.bool()"
    return f"{name} == 0" if np.array_equal(rows, visible) else ""


def softmax_code(mix: Mix, scores: str) -> str:
    """A softmax over the keys, in the script's framework."""
    if mix.is_torch:
        return f"torch.softmax({scores}, dim=-1)"
    return f"np.exp({scores}) / np.exp({scores}).sum(axis=-1, keepdims=True)"


def _scores(mix: Mix, step: Known, source: str) -> Words:
    left, right = (mix.name(one, "tokens") for one in step.sources)
    said = f"a score is the dot product of a row of {left} with a row of {right}: @ with the second one transposed"
    return said, f"{left} @ {right}.T" if step.sources[1].array.ndim == 2 else f"{left} @ {right}.transpose(-2, -1)"


def _mix(mix: Mix, step: Known, source: str) -> Words:
    weights, value = mix.name(mix.weights, "attn_weights"), mix.name(mix.value, "values")
    return f"each context vector is the sum of the rows of {value}, each times its weight", f"{weights} @ {value}"


def _no_softmax(mix: Mix, step: Known, source: str) -> Words:
    said = (
        f"this is no softmax: that takes e to the power of each number in {source}, and divides by their sum in the row"
    )
    return said, softmax_code(mix, source)


def _fill(mix: Mix, step: Known, source: str) -> Words:
    fill = step.number
    said = (
        f"hidden scores become {fill:g} here, and e to the power of that is {np.exp(min(fill, 50.0)):.3g} and "
        "not 0: the "
        "hidden tokens keep some weight. Only minus infinity leaves them none"
    )
    return said, _masked(mix, step, source)


def _added(mix: Mix, step: Known, source: str) -> Words:
    said = f"{step.number:g} is added to the scores, which hides nothing: a hidden score must become minus infinity"
    return said, _masked(mix, step, source)


def _masked(mix: Mix, step: Known, source: str) -> str:
    code, reading = mix.reading.code(step.made), mix.reading
    if "masked_fill" in code:
        return re.sub(r",[^,()]+\)$", ", -torch.inf)", code)
    masks = [
        one for one in reading.above(step.made) if one in reading.sights and reading.sights[one].known.kind == "mask"
    ]
    hidden = (where_hidden(mix, one, step.visible) for one in masks)
    mask = next((one for one in hidden if one), "")
    return (
        hiding(mix, source, mask)
        if mask
        else f"{hiding(mix, source, 'mask')}   # mask: True where a token may not look"
    )


def _over_all(mix: Mix, step: Known, source: str) -> Words:
    return "all weights together sum to one here; each row must do so by itself", over_keys(mix, step)


def _over_others(mix: Mix, step: Known, source: str) -> Words:
    said = f"softmax runs over the axis {step.over} here; it is a token's weights over all keys that must sum to one"
    return said, over_keys(mix, step)


def _twice(mix: Mix, step: Known, source: str) -> Words:
    return f"{source} went through softmax before, and its rows sum to one already: this makes them more alike", source


def _late_scale(mix: Mix, step: Known, source: str) -> Words:
    said = (
        f"{source} is multiplied by {step.number:.4g} after softmax, and its rows no longer sum to one: scale "
        "the scores"
    )
    return said, softmax_code(mix, f"attn_scores * {step.number:.4g}")


def _dropout(mix: Mix, step: Known, source: str) -> Words:
    said = (
        f"dropout sets weights to zero by chance and multiplies the others by {1 / (1 - step.number):.3g}: "
        "each run gives "
        "other context vectors. It belongs in training alone"
    )
    code = mix.reading.code(step.made)
    called = code.partition("(")[0]
    if _before(mix, step):
        return said, code
    if called.endswith("dropout") and "training" in code:
        return said, re.sub(r"training\s*=\s*\w+", "training=False", code)
    if called in ("F.dropout", "nn.functional.dropout", "torch.nn.functional.dropout"):
        return said, f"{code[:-1]}, training=False)"
    return said, f"{source}   # leave dropout out"


def _before(mix: Mix, step: Known) -> str:
    """The statement that turns a layer's dropout off; empty where no layer does it."""
    called, bracket, _ = mix.reading.code(step.made).partition("(")
    functional = called.rpartition(".")[0].endswith(("F", "functional", "torch"))
    return f"{called}.eval()" if bracket and called.replace(".", "").isidentifier() and not functional else ""


def _split(mix: Mix, step: Known, source: str) -> Words:
    said = (
        "this view cuts up the tokens and not the channels: take the heads out of the last axis, then move their axis"
    )
    return said, f"{source}.view(batch, num_tokens, num_heads, head_dim).transpose(1, 2)   # by their own names"


def _merged(mix: Mix, step: Known, source: str) -> Words:
    said = "the heads lie one behind the other: without a transpose this puts different tokens side by side"
    return said, f"{source}.transpose(1, 2).reshape(batch, num_tokens, num_heads * head_dim)   # by their own names"


_WORDS: dict[str, Callable[[Mix, Known, str], Words]] = {
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
}
