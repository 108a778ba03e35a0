"""What a script lacks that makes no context vectors: what was found in it, what was not, and the next line to type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.known import Known
from qkv.scripts.lists import CONTEXT
from qkv.scripts.reading import Reading

SPEAKING = CONTEXT | {"scores", "score"}
"""Words of lists that a step of the attention is kept in."""


def without_context(reading: Reading, text: Text) -> tuple[str, str]:
    """Why nothing can be said of a script that makes no context vectors of arrays, and what to type next."""
    explain = f"qkv explain {text.file} says what each line makes"
    speaking = [name for name in reading.run.lists if naming.is_weights(name) or set(naming.words(name)) & SPEAKING]
    if speaking or not reading.run.frameworks or not reading.operations:
        these = f" ({', '.join(speaking)})" if speaking else ""
        said = (
            f"it computes with Python's own numbers and lists{these}, which are not followed, and no variable at its "
            "end has the numbers of context vectors"
        )
        return said, "make arrays of them: np.array(rows) or torch.tensor(rows)"
    if reading.run.skipped:
        lines = ", ".join(map(text.place, reading.run.skipped))
        missing = (
            f"a package is not installed, so {lines} could not be run, and there is no whole attention in the rest"
        )
        return missing, "install what it imports, and check it again"
    return next(_reasons(reading, text, explain))


def _reasons(reading: Reading, text: Text, explain: str) -> Iterator[tuple[str, str]]:
    for kind, words in (("weights", _weights), ("scores", _scores)):
        known = next(reversed(reading.knowns(kind)), None)
        if known is not None and not np.isnan(known.array).any():
            yield words(reading, text, known), explain
    yield from _not_numbers(reading, text)
    tokens = [known for known in reading.knowns("tokens") if known.axes[-2] == "token"]
    if tokens and all(known.array.shape[-2] == 1 for known in tokens):
        name = next(filter(None, map(reading.name_of, tokens)), "it")
        said = (
            f"{name} holds one token. Its one weight is 1 whatever its score is, so that nothing can be told of the "
            "way it is made"
        )
        yield said, f"give {name} more rows, one for each token, and check it again"
    yield "no attention was found in its variables: no product of tokens with tokens that goes on to a softmax", explain


def _weights(reading: Reading, text: Text, known: Known) -> str:
    return (
        f"it makes weights{_named(reading, text, known)}, and no context vectors of them: weights @ values is missing, "
        "or is made in a way unknown"
    )


def _scores(reading: Reading, text: Text, known: Known) -> str:
    return (
        f"it makes scores{_named(reading, text, known)}, and no weights of them: no softmax of them was found, nor "
        "anything that is made in its place"
    )


def _named(reading: Reading, text: Text, known: Known) -> str:
    name, line = reading.name_of(known), reading.line_of(known.made)
    parts = [name, text.place(line) if line else ""]
    return f" ({', '.join(filter(None, parts))})" if any(parts) else ""


def _not_numbers(reading: Reading, text: Text) -> Iterator[tuple[str, str]]:
    """The first array that holds NaN."""
    for number, value in enumerate(reading.run.recording.values):
        if value.array.dtype.kind != "f" or not np.isnan(value.array).any():
            continue
        name, line = reading.name(number), reading.line(number)
        place = f" ({text.place(line)})" if line else ""
        first = ", ".join(str(place) for place in np.argwhere(np.isnan(value.array))[0])
        said = (
            f"{name or 'an array'}{place} holds NaN, first at [{first}], and so does all that is made of it: nothing "
            "can be compared"
        )
        where = (
            f"torch.isnan({name}).nonzero()" if "torch" in reading.run.frameworks else f"np.argwhere(np.isnan({name}))"
        )
        yield said, f"print({where}) says where" if name else f"look at {text.place(line)}"
        return
