"""What each attention of a script is held to, and where in it that is taken from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known
from qkv.scripts.masking import is_causal
from qkv.scripts.mixes import Mix


def held_to(mixes: Sequence[Mix], findings: Sequence[Finding], text: Text) -> str:
    """What the context vectors of a script were held to, in words; a line for each kind, with its variable.

    Args:
        mixes: every product of weights and values.
        findings: all that is wrong.
        text: the script.
    """
    by_words: dict[str, list[str]] = {}
    for mix in mixes:
        own = [one for one in findings if one.mix is not None and one.mix.context is mix.context]
        words = ", ".join([_heads(mix, mixes), _scale(mix, own), _mask(mix, own, text)] if mix.product else [_GIVEN])
        name = mix.reading.name_of(mix.context) or _place(mix.reading.line_of(mix.operation), text)
        by_words.setdefault(words, []).append(name)
    if len(by_words) == 1:
        return next(iter(by_words))
    return "\n".join(f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in by_words.items())


def _place(line: int, text: Text) -> str:
    return text.place(line) if text.cells else f"line {line}"


_GIVEN = "weights as they are given, each row of which has to sum to one"


def _heads(mix: Mix, mixes: Sequence[Mix]) -> str:
    """How many heads there are, and their size; heads with names of their own lie side by side in the end."""
    context, dim = mix.context, mix.head_dim
    axis = "head" if "head" in context.axes else "batch" if _goes_into_channels(mix, "batch") else ""
    apart = context.array.shape[context.axes.index(axis)] if axis else 1
    joined = max((len(one.sources) for one in _merged(mix, mixes)), default=1)
    heads = f"{joined} heads side by side, each" if joined > 1 else f"{apart} head{'s' * (apart > 1)}"
    return f"{heads} of {dim} channel{'s' * (dim > 1)}"


def _goes_into_channels(mix: Mix, axis: str) -> bool:
    """Whether an axis of the context vectors is put together with their channels: it is that of heads then."""
    sights = (mix.reading.sights[value] for value in mix.reading.values_of(mix.context))
    return any(f"{axis}*{mix.context.axes[-1]}" in sight.axes for sight in sights)


def _merged(mix: Mix, mixes: Sequence[Mix]) -> Iterator[Known]:
    """The arrays in which the context vectors of this mix and others lie side by side."""
    contexts = {one.context for one in mixes}
    for known in mix.reading.knowns("context"):
        if known.move == "merge" and mix.context in known.sources and contexts.issuperset(known.sources):
            yield known


def _scale(mix: Mix, findings: Sequence[Finding]) -> str:
    right = mix.right_factor if any(one.fault.startswith("scale") for one in findings) else mix.factor
    if np.isclose(right, 1.0):
        return "scores not scaled" + ("" if mix.projected else " (no projection makes query and key)")
    usual = np.isclose(right, mix.head_dim**-0.5, rtol=1e-3)
    why = "query and key are projected" if mix.projected else "as it scales them"
    return f"scores times 1/sqrt({mix.head_dim}) ({why})" if usual else f"scores times {right:.4g} (as it scales them)"


def _mask(mix: Mix, findings: Sequence[Finding], text: Text) -> str:
    step = next((one for one in mix.path if one.move == "mask"), None)
    line = 0 if step is None else mix.reading.line_of(mix.made(step))
    where = f" ({_place(line, text)})" if line else ""
    if any(one.meant is not None for one in findings):
        return f"the mask that it makes{where}"
    meant = any(one.of_causal for one in findings)
    if is_causal(mix) or (meant and step is not None):
        return f"causal{where}"
    if meant:
        word = next(filter(naming.causal_word, mix.names()), "") or naming.causal_comment(text.source)
        return f"causal ('{word}' says so)" if word else "causal, by the mask that it makes"
    return f"the mask that it makes{where}" if step is not None else "no mask"
