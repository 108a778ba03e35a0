"""Polarity: what the documentation says that True means in a mask."""

from __future__ import annotations

import re
from typing import Literal

from qkv.adapters.messages import Facts


def spoken(source: str) -> list[str]:
    """The docstrings and comments in a source, without the code between them."""
    told = re.findall(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'|#([^\n]*)', source, re.DOTALL)
    return ["".join(one) for one in told]


def polarity_said(facts: Facts, argument: str) -> Literal["keep", "hide"] | None:
    """Whether True keeps or hides in this argument, where a sentence that names it says so; None for no word or both.

    Sentences such as ``key_padding_mask: (B, S), True where padded``, ``0 = masked`` or ``True for real tokens``.
    """
    # A library's documentation speaks of all its masks; torch's own layer, handed over as an object, has no file.
    if facts.foreign or (facts.class_name == "MultiheadAttention" and not facts.file):
        return None
    text = " ".join(" ".join([facts.doc, *spoken(facts.source)]).split())
    found: set[Literal["keep", "hide"]] = set()
    for sentence in re.findall(rf"\b{re.escape(argument)}\b([^.;]*)", text):
        if re.search(r"\b(?:inf|added|additive)\b", sentence, re.IGNORECASE):
            continue  # its entries are numbers, not truths
        for value, said in _CLAUSE.findall(sentence):
            word = _WORD.search(said)
            if word is not None:
                turns = bool(word["no"]) + (value.lower() in ("false", "0"))
                found.add("hide" if bool(word["hides"]) != bool(turns % 2) else "keep")
    return found.pop() if len(found) == 1 else None


_CLAUSE = re.compile(r"\b(True|False|1|0)s?\b(?!\s*[,)])\s*((?:(?!\b(?:True|False|1|0)\b)[^,])*)", re.IGNORECASE)
"""A value, and what is said of it up to the next comma or value; no number in a shape."""

_WORD = re.compile(
    r"(?P<no>\b(?:not?|non|never|isn't|aren't|can't|cannot|mustn't)\b[\s-]*(?:\w+\s+){0,2}?)?\b"
    r"(?:(?P<hides>pad\w*|masked|mask(?:s|ed)? out|hidden|hides?|ignored?|blocked|excluded|disallowed|dropped)"
    r"|(?:real|valid|keeps?|kept|attend\w*|visible|allowed|tokens?|seen|looked at|counts?))\b",
    re.IGNORECASE,
)
"""The first word that says what becomes of a key, and what turns it round."""
