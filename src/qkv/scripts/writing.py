"""Writing: code of one step in a script's framework, and with its own names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from qkv.scripts.edits import SUMS, over_keys_in, with_brackets, with_code, without_brackets
from qkv.scripts.known import Array, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import refs
from qkv.scripts.spots import Spot, Written, handed_over, spot_at


def softmax_code(mix: Mix, scores: str) -> str:
    """A softmax over the keys."""
    if mix.is_torch:
        return f"torch.softmax({without_brackets(scores)}, dim=-1)"
    return f"np.exp({scores}) / np.exp({scores}).sum(axis=-1, keepdims=True)"


def shares(mix: Mix, rows: str) -> str:
    """Rows divided by their sums."""
    return f"{rows} / {rows}.sum({'dim=-1, keepdim=True' if mix.is_torch else 'axis=-1, keepdims=True'})"


def hiding(mix: Mix, scores: str, mask: str) -> str:
    """Scores that are minus infinity where a mask is True."""
    return f"{scores}.masked_fill({mask}, -torch.inf)" if mix.is_torch else f"np.where({mask}, -np.inf, {scores})"


def drawn(mix: Mix, scores: str) -> str:
    """The statement that draws a causal mask for scores, True above the diagonal."""
    if mix.is_torch:
        return f"mask = torch.triu(torch.ones_like({without_brackets(scores)}), diagonal=1).bool()"
    return f"mask = np.triu(np.ones({scores}.shape, dtype=bool), k=1)"


def turned(mix: Mix, tokens: str, ndim: int) -> str:
    """Tokens with their last two axes exchanged."""
    return f"{tokens}.T" if ndim == 2 else f"{tokens}.{'transpose' if mix.is_torch else 'swapaxes'}(-2, -1)"


def where_hidden(mix: Mix, mask: int, name: str, visible: Array | None = None) -> str:
    """A variable that holds a mask, as an expression that is True where it hides; empty where that can't be told.

    Args:
        mix: the mix that it belongs to.
        mask: the number of its array.
        name: the variable; empty for none.
        visible: where it lets through; None for a causal mask's.
    """
    array = mix.reading.array(mask)
    shape = array.shape[-2:]
    visible = np.tri(*shape) > 0 if visible is None else visible.reshape(-1, *visible.shape[-2:])[0]
    rows = array.reshape(-1, *shape)[0].astype(bool)
    if not name or rows.shape != visible.shape:
        return ""
    if np.array_equal(rows, ~visible):
        return name if array.dtype == bool else f"{name} == 1" if not mix.is_torch else f"{name}.bool()"
    return f"{name} == 0" if np.array_equal(rows, visible) else ""


def over_keys(mix: Mix, step: Known) -> Written | None:
    """The code that makes weights, each softmax and each sum in it over the keys; None where they are so already.

    It is written where the axis is: in the expression itself, where the sums are made that it divides by, or in the
    call that tells a function its axis.
    """
    made = mix.made(step)
    ndim = mix.reading.array(mix.reading.operations[made].results[0]).ndim
    if ndim < 2:
        return None  # one token's weights have no other axis
    own = spot_at(mix.reading, made)
    for spot in _spots_of_axes(mix, own):
        told = "" if spot.operation != made or spot.place == own.place else own.function.rpartition(".")[2]
        changed = over_keys_in(spot.code, ndim, is_torch=mix.is_torch, told=told)
        if changed != spot.code:
            return Written(spot, changed)
    return None


def softmax_over_keys(mix: Mix, step: Known) -> Written:
    """The same; the whole softmax anew where there is no axis to change."""
    own = spot_at(mix.reading, mix.made(step))
    source = step.sources[0].sources[0] if step.sources[0].move == "exp" else step.sources[0]
    anew = Written(own, softmax_code(mix, own.name(source, "attn_scores")))
    return over_keys(mix, step) or anew


def _spots_of_axes(mix: Mix, own: Spot) -> Iterator[Spot]:
    reading, made = mix.reading, own.operation
    yield own
    for value in refs(reading.operations[made].arguments):
        sums = reading.made_by.get(value, -1)
        if sums >= 0 and reading.operations[sums].name in SUMS and (spot := spot_at(reading, sums)).place is not None:
            yield spot
    if re.search(r"\b(dim|axis)\s*=\s*[a-z]", own.code):
        yield from (Spot(reading, made, call) for call in reading.calls(made)[:1])


def remade(mix: Mix, step: Known, change: Callable[[str], str]) -> Written:
    """The code with which a step takes scores that something was done to before.

    Args:
        mix: the mix that it belongs to.
        step: the step.
        change: makes of the scores, as they are written, what is to stand in their place.
    """
    source, made = step.sources[0], mix.made(step)
    spot = handed_over(mix.reading, made, source, mix.made(source))
    name, written = spot.variable(source), spot.name(source, "attn_scores")
    code, times = with_code(spot.code, written, change(written))
    if times == 1:
        return Written(spot, code)
    first = handed_over(mix.reading, mix.uses(source)[0], source, mix.made(source))
    if name and first.variable(source) == name:
        return Written(first, first.code, f"{name} = {change(name)}")
    own = spot_at(mix.reading, mix.made(source))
    if own.place is not None and not mix.reading.operations[own.operation].in_place:
        return Written(own, change(with_brackets(own.code)))
    return Written(spot, softmax_code(mix, change(written)))
