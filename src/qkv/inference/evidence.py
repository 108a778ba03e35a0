"""Evidence: what a candidate says of itself, found in its names, arguments, attributes, arrays and source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from qkv.adapters.binding import Signature
from qkv.adapters.messages import Facts
from qkv.adapters.names import call_role_of, is_config, role_of
from qkv.adapters.polarity import spoken
from qkv.inference.comparisons import comparison_said
from qkv.masks import Sides


def attribute(facts: Facts, role: str, kind: Callable[[Any], Any]) -> tuple[str, Any] | None:
    """Name and value of the attribute with this role, the nearest to the candidate itself; None where it has none."""
    found = []
    for name, value in facts.attributes.items():
        if _role(name, facts) != role or value is None or isinstance(value, str):
            continue
        if isinstance(value, bool) != (kind is bool):
            continue
        found.append((name.count("."), name, kind(value)))
    return None if not found else min(found, key=lambda item: item[0])[1:]


def _role(name: str, facts: Facts) -> str | None:
    owner, _, own = name.rpartition(".")
    splits = (other.rpartition(".") for other in facts.attributes)
    return role_of(own, [other for of, _, other in splits if of == owner])


def takes(facts: Facts, role: str) -> str | None:
    """The name of the call's argument with this role; None where it has none."""
    return next((a.name for a in facts.call if call_role_of(a.name) == role and a.kind not in ("args", "kwargs")), None)


def own_source(facts: Facts) -> str:
    """The source where it is the user's own; a library's speaks of everything it can do."""
    return facts.source if facts.file and not facts.foreign else ""


def causal_evidence(facts: Facts) -> str | None:
    """From what it can be seen that the candidate is meant to be causal; None where nothing says so."""
    for name in (facts.name, facts.class_name):
        if re.search(r"causal|decoder|autoregressive|gpt|decode", name, re.IGNORECASE):
            return f"from its name {name}"
        if re.search("masked", name, re.IGNORECASE) and not _masked_otherwise(facts):
            return f"from its name {name}"
    flag = attribute(facts, "causal", bool)
    if flag is not None:
        return f"from {flag[0]}" if flag[1] else None
    for name, array in facts.arrays.items():
        square = len(array.shape) >= 2 and array.shape[-1] == array.shape[-2] and not array.learned
        if square and re.search(r"mask|tril|triu|causal|bias$", name):
            return f"from its buffer {name}"
    argument = takes(facts, "causal")
    # In torch's own layer is_causal is a hint beside a mask, and asks for nothing.
    if argument and facts.class_name != "MultiheadAttention":
        return f"asked for with its argument {argument}"
    (before, after), _ = window_said(facts) or ((None, None), "")
    source = own_source(facts)
    against = re.search(r"non.?causal|not causal|bidirectional", source, re.IGNORECASE)
    if against or all_seen_said(facts) or (after and after != before):
        return None
    word = re.search(
        r"causal\w*|\btri[lu]\b|\btri[lu]_(?:indices\w*)?(?=\()|\.tri(?=\()|look.?ahead|autoregressive|\bfuture\b|"
        r"subsequent",
        source,
        re.IGNORECASE,
    )
    said = word.group(0).lstrip(".") if word else comparison_said(source)
    return f"from {said!r} in its source" if said else None


def scale_by_default(facts: Facts) -> tuple[str, float] | None:
    """The number for the scale that stands in its constructor's signature, or in its config, and where; None for none.

    Its own attribute is no statement: a scale that is computed wrongly is kept there too. One is no scale.
    """
    told = [(f"{one.name}={one.default}", one.default) for one in facts.init if role_of(one.name) == "scale"]
    configs = ((name, value) for name, value in facts.attributes.items() if is_config(name.rpartition(".")[0]))
    told += [(name, value) for name, value in configs if _role(name, facts) == "scale"]
    return next(((name, float(value)) for name, value in told if type(value) is float and value not in (0, 1)), None)


def all_seen_said(facts: Facts) -> str | None:
    """The words of its documentation by which a query sees later keys too; None where nothing says so."""
    if re.search(r"(?<!non.)(?<!not.)(?<!non)causal|future|autoregressive|masked", facts.doc, re.IGNORECASE):
        return None
    said = re.search(_ALL_SEEN, facts.doc, re.IGNORECASE)
    return f"from {' '.join(said[0].split())!r}" if said else None


_ALL_SEEN = (
    r"\b(?:non.?causal|not causal|bidirectional)\w*|\b(?:look|attend|see)(?:s|ing)?\s+(?:(?:at|to|over)\s+)?"
    r"(?:all|every)\s+(?:the\s+)?(?:(?:other|source|memory|encoder|context|input)\s+)?(?:tokens?|positions?|keys?|words?)\b"
    r"(?!\s+(?:before|up|until|so far|that|which|(?:to|on|in) (?:its|the)|already|seen|within|from))"
)


def _masked_otherwise(facts: Facts) -> bool:
    """Whether a mask is given to it, or its documentation names one that isn't causal."""
    given = any(takes(facts, role) for role in ("mask", "bias", "padding", "lengths", "documents", "cu_seqlens"))
    other = (
        r"\bpad(ding|ded)?\b|\bdocuments?\b|\bsegments?\b|\bprefix\b|\bblocks?\b|non.?causal|not causal|bidirectional"
    )
    return given or bool(re.search(other, prose(facts), re.IGNORECASE))


def window_said(facts: Facts) -> tuple[Sides, str] | None:
    """How many keys a query sees before and after its own, and what says so; None where nothing does."""
    named = {role: found for role in _WINDOW_ROLES if (found := attribute(facts, role, int))}
    sides = _sides({role: number for role, (_, number) in named.items()})
    if sides != (None, None):
        return sides, f"from {' and '.join(name for name, _ in named.values())}"
    arguments = {role: one for role, one in Signature.of(facts.call).roles.items() if role in _WINDOW_ROLES}
    sides = _sides({role: one.default for role, one in arguments.items()})
    if sides != (None, None):
        return sides, f"from {', '.join(f'{one.name}={one.default}' for one in arguments.values())}"
    words = window_in_words(prose(facts))
    return ((words[0] - 1, words[0] - 1), words[1]) if words else None


_WINDOW_ROLES = ("window", "left_window", "right_window")


def _sides(said: Mapping[str, Any]) -> Sides:
    """Keys before and after a query's own, by the roles of numbers that speak of a window; None for no bound."""
    whole, left, right = (said.get(role) for role in _WINDOW_ROLES)
    if isinstance(whole, tuple):
        left, right = whole
    elif type(whole) is int and whole > 0:
        return whole - 1, whole - 1
    if type(left) is not int:
        return None, None
    if type(right) is not int:
        return (left, left) if left > 0 else (None, None)
    return (None, None) if left == right == 0 else (left if left >= 0 else None, right if right >= 0 else None)


def window_named(facts: Facts) -> str | None:
    """The name that speaks of a window without saying how wide it is; None where none does."""
    names = (name for name in (facts.name, facts.class_name) if re.search(_NARROW, name, re.IGNORECASE))
    return next(names, None)


_NARROW = r"sliding|banded|(^|_)swa(_|$)|^swa[A-Z]|local_?(window|att)"
_KEYS = r"(?:keys?|tokens?|positions?)"
_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"window(?:[ -]?(?:size|length|width))?\s*(?:of|=|is|:|\()?\s*(?:size|length|width)?\s*(\d+)", 0),
    (rf"(\d+)[ -]{_KEYS}[ -](?:(?:sliding|local|causal|attention)[ -])*window", 0),
    (rf"\b(?:sees?|seeing)\s+(?:(?:only|just|at most|the|its|last|latest|nearest)\s+)*(\d+)\s+{_KEYS}", 0),
    (
        r"\b(?:sees?|attends?|attending|looks?|window|visible)\b[^.;]*?\b(?:last|latest|most recent)\s+(\d+)\s+"
        rf"{_KEYS}(?!\s+before)",
        0,
    ),
    (rf"\bitself\s+and\s+(?:(?:only|the|its|last|previous)\s+)*(\d+)\s+(?:previous\s+|earlier\s+)?{_KEYS}", 1),
)
"""How a window is spoken of, and whether the query's own key comes on top. "The previous 4" may count it or not."""


def window_in_words(text: str) -> tuple[int, str] | None:
    """The window's size that a text speaks of, and the words it uses; None for several sizes or none."""
    found = [(int(one[1]) + own, one[0]) for said, own in _WINDOWS for one in re.finditer(said, text, re.IGNORECASE)]
    sizes = {size for size, _ in found if size > 0}
    return (min(sizes), f"from {' '.join(found[0][1].split())!r}") if len(sizes) == 1 else None


def prose(facts: Facts) -> str:
    """Its documentation and the comments in its source, without the code between them."""
    return ". ".join([facts.doc, *spoken(own_source(facts))])


def corner_said(facts: Facts) -> tuple[str, str] | None:
    """The causal corner that its documentation names, ``bottom_right`` or ``top_left``, and the words it uses."""
    said = re.search(r"(bottom|top|lower|upper).?(right|left)", f"{facts.doc} {own_source(facts)}", re.IGNORECASE)
    if said is None:
        return None
    return ("top_left" if said.group(2).lower() == "left" else "bottom_right"), said.group(0)


def speaks_of_groups(facts: Facts) -> bool:
    """Whether its source shares key and value heads."""
    words = r"repeat_interleave|n_rep\b|kv_heads|num_key_value|gqa|mqa|grouped|//\s*\w+\.(shape|size)"
    return bool(takes(facts, "enable_gqa") or re.search(words, own_source(facts), re.IGNORECASE))


def speaks_of_rope(facts: Facts) -> bool:
    """Whether its source or its parts turn query and key by position."""
    parts = " ".join((*facts.submodules.values(), *facts.arrays))
    words = r"\brope\b|rotary|rotate_half|apply_rope|freqs_cis|inv_freq|view_as_complex|\bpolar\b|\brotate\b"
    return bool(re.search(words, f"{facts.source} {parts}", re.IGNORECASE))


def pairs_adjacent_channels(facts: Facts) -> bool:
    """Whether its source looks like rope on pairs ``2i, 2i + 1``.

    What takes channels apart says it. Where nothing does, to interleave angles does; keys are interleaved for groups.
    """
    pairs = r"view_as_complex|view_as_real|\[\s*\.\.\.\s*,\s*(0|1)?::2\s*\]|\bpolar\b"
    halves = r"rotate_half|\.chunk\(\s*2\b|//\s*2\s*:?\s*\]|\bhalf\s*:|:\s*half\b"
    if re.search(pairs, facts.source, re.IGNORECASE):
        return True
    return "interleav" in facts.source.lower() and not re.search(halves, facts.source, re.IGNORECASE)


def base_in_source(facts: Facts) -> tuple[str, float] | None:
    """The number above 100 that its source raises to powers, as rope does with its base; None for several."""
    found = re.findall(r"(?<![\w.])(\d+(?:\.\d*)?(?:e\d+)?)\s*\*\*", own_source(facts), re.IGNORECASE)
    numbers = {float(number) for number in found if float(number) > 100}
    return (f"the {min(numbers):g} ** in its source", min(numbers)) if len(numbers) == 1 else None


def empty_row_said(facts: Facts) -> tuple[str, str] | None:
    """What its documentation says a query gets that may attend to nothing, and the words it uses."""
    text = f"{facts.doc} {own_source(facts)}"
    said = re.search(
        r"[^.;\n]*\b(nothing|no keys?|fully masked|empty row|all masked)\b[^.;\n]*\b(zeros?|nan|uniform|mean)\b",
        text,
        re.IGNORECASE,
    )
    if said is None:
        return None
    rule = {"zero": "zero", "zeros": "zero", "nan": "nan"}.get(said.group(2).lower(), "uniform")
    return rule, said.group(0).strip()
