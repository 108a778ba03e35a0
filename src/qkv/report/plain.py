"""Text that any terminal takes: in its own encoding, and without what it would act on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from qkv.spec import AttentionSpec

LIKE = {
    "✓": "ok",
    "✗": "x",
    "…": "...",
    "\u00d7": "x",
    "\u2013": "-",
    "—": "-",
    "\u2212": "-",
    "·": ".",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "─": "-",
    "│": "|",
    **dict.fromkeys("┌┐└┘▒", "+"),
    "█": "#",
}
"""What stands for a character where the encoding lacks it."""

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_TRICKS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""What shows nothing, changes the order of what stands around it, or is no character."""

_UNSTORABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML may hold, nor any UTF-8: https://www.w3.org/TR/xml/#charsets."""


def storable(text: str) -> str:
    """The text as any document can hold it, with the mark for a character that is none where it can't."""
    return _UNSTORABLE.sub("\ufffd", text)


def encodable(text: str, encoding: str) -> str:
    """The text with what the encoding lacks replaced, by a likeness where there is one."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(LIKE.get(one, one) if not _fits(one, encoding) else one for one in text)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _fits(one: str, encoding: str) -> bool:
    try:
        one.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def harmless(part: Any) -> Any:
    """The report without characters that a terminal would act on: much of its text is the candidate's."""
    return _rewritten(part, lambda text: _UNSEEN.sub("", text))


def visible(part: Any) -> Any:
    """The report with characters that nobody sees, or that change the order of others, written as what they are.

    So a page shows code as Python reads it: https://trojansource.codes.
    """
    return _rewritten(part, lambda text: _TRICKS.sub(lambda one: f"\u27e8U+{ord(one[0]):04X}\u27e9", text))


def _rewritten(part: Any, change: Callable[[str], str]) -> Any:
    if isinstance(part, str) and not isinstance(part, Enum):
        return change(part)
    if isinstance(part, list | tuple):
        return type(part)(_rewritten(item, change) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, AttentionSpec | type):
        own = {field.name: _rewritten(getattr(part, field.name), change) for field in dataclasses.fields(part)}
        return dataclasses.replace(part, **own)
    return part
