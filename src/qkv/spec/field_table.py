"""The fields of a spec: one table from which files, flags, messages and docs are made."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qkv.errors import SpecError


@dataclass(frozen=True)
class Type:
    """What a field's value may be.

    Attributes:
        text: the type in words, as it stands after "must be".
        accepts: whether a value from JSON or TOML is of this type.
        example: a value to show in a message.
        of_flag: what the text after a flag is turned into; bool for a flag that takes no text.
        choices: the words that may stand there, where only these may.
        most: the largest size a number may have.
    """

    text: str
    accepts: Callable[[Any], bool]
    example: Any
    of_flag: type
    choices: tuple[str, ...] = ()
    most: float = math.inf

    def takes(self, value: Any) -> bool:
        """Whether a value is of this type, and not a number larger than any attention has."""
        return self.accepts(value) and not (isinstance(value, int | float) and abs(value) > self.most)


LARGEST_SIZE = 1 << 16
"""Heads, or channels: several times what the largest models have. More would fill the memory, or take days."""

LARGEST_POSITION = 2_000_000_000
"""Tokens."""

LARGEST_NUMBER = 1e30
"""In arithmetic, its square still is a number."""


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _is_row(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(_is_number(item) for item in value)


def _choice(*words: str) -> Type:
    text = "one of " + ", ".join(f'"{word}"' for word in words)
    return Type(text, lambda value: isinstance(value, str) and value in words, words[0], str, words)


def _whole(least: int, example: int, most: int) -> Type:
    text = f"a whole number of {least} or more"
    return Type(text, lambda value: _is_whole(value) and value >= least, example, int, most=most)


_COUNT = _whole(1, 6, LARGEST_SIZE)
_TOKENS = _whole(1, 6, LARGEST_POSITION)
_LENGTH = _whole(0, 3, LARGEST_POSITION)
_NUMBER = Type("a finite number", _is_number, 0.5, float, most=LARGEST_NUMBER)
_YES_NO = Type("true or false", lambda value: isinstance(value, bool), True, bool)
_TEXT = Type("an expression in text", lambda value: isinstance(value, str), "causal & window(5) | prefix(3)", str)
_OFFSET = Type(
    '"bottom_right", "top_left" or a whole number',
    lambda value: _is_whole(value) or value in ("bottom_right", "top_left"),
    "bottom_right",
    str,
    most=LARGEST_POSITION,
)


def _is_alibi(value: object) -> bool:
    if not isinstance(value, Mapping):
        return isinstance(value, bool) or _is_row(value)
    slopes, signed = value.get("slopes"), value.get("signed", False)
    return set(value) <= {"slopes", "signed"} and (slopes is None or _is_row(slopes)) and isinstance(signed, bool)


_ALIBI = Type('true, false, a list of slopes, one per head, or {"slopes": null, "signed": true}', _is_alibi, True, bool)
_TABLE = Type(
    "a list with one row of numbers per head",
    lambda value: isinstance(value, list | tuple) and len(value) > 0 and all(_is_row(row) for row in value),
    [[0.1, 0.0, 0.2]],
    str,
)
_ROPE = Type(
    'an object such as {"pairing": "halves", "base": 10000.0}, or the pairing alone',
    lambda value: isinstance(value, Mapping | str),
    {"pairing": "halves", "base": 10000.0},
    str,
    ("halves", "adjacent"),
)
_SCALING = Type(
    'an object such as {"kind": "linear", "factor": 2.0}',
    lambda value: isinstance(value, Mapping),
    {"kind": "linear", "factor": 2.0},
    str,
)


@dataclass(frozen=True)
class Field:
    """One field of the spec.

    Attributes:
        name: as in JSON and in Python.
        type: what its value may be; null too where the default is null.
        default: what a missing field means.
        help: one line for the docs and for ``--help``.
        group: what the field belongs to (``rope``, ``rope_scaling``); empty for the spec itself.
    """

    name: str
    type: Type
    default: Any
    help: str
    group: str = ""

    @property
    def flag(self) -> str:
        """The option of the command line: ``--heads``, ``--kv-heads``, ``--rope-base``."""
        return "--" + f"{self.group}_{self.name}".strip("_").removeprefix("num_").replace("_", "-")

    def checked(self, value: Any, where: str) -> Any:
        """The value itself if it is of the field's type.

        Raises:
            SpecError: it isn't.
        """
        if self.type.takes(value) or (value is None and self.default is None):
            return value
        null = ", or null" if self.default is None else ""
        entry = json.dumps({self.name: self.type.example})[1:-1]
        raise SpecError(
            f"{where}: {self.name} is {shown(value)}, and must be {self._what_it_must_be(value, null)}. "
            f"{self.name} stands for: {self.help}. Write for instance: {entry}"
        )

    def checked_flag(self, value: Any) -> Any:
        """The value of the field's flag itself if it is of the field's type.

        Raises:
            SpecError: it isn't; the message speaks of the flag.
        """
        if self.type.takes(value):
            return value
        given = cut(repr(value) if isinstance(value, str) else str(value))
        raise SpecError(
            f"{self.flag} is {given}, and must be {self._what_it_must_be(value)}. "
            f"It stands for: {self.help}. Write for instance: {self.flag} {self.type.example}"
        )

    def _what_it_must_be(self, value: Any, null: str = "") -> str:
        return f"{self.type.most} at most" if self.type.accepts(value) else self.type.text + null


FIELDS: tuple[Field, ...] = (
    Field("num_heads", _COUNT, 1, "query heads"),
    Field("num_kv_heads", _COUNT, None, "key/value heads; as many as query heads by default"),
    Field("head_dim", _COUNT, None, "channels of one head's query and key"),
    Field("value_dim", _COUNT, None, "channels of one head's value; head_dim by default"),
    Field("embed_dim", _COUNT, None, "channels of one token of x"),
    Field("scale", _NUMBER, None, "what the scores are multiplied by; 1/sqrt(head_dim) by default"),
    Field("causal", _YES_NO, False, "a token uses itself and earlier tokens only"),
    Field("window", _TOKENS, None, "how many keys a query sees, itself included; without causal, on both sides"),
    Field("prefix", _LENGTH, None, "how many first tokens every query sees, whatever causal and window say"),
    Field("documents", _YES_NO, False, "texts packed into one sequence don't see each other"),
    Field(
        "mask", _TEXT, None, 'any other mask, for instance "causal & window(5) | prefix(3)"; instead of the four above'
    ),
    Field("query_offset", _OFFSET, "bottom_right", "position of the first query; bottom_right is key_len - query_len"),
    Field(
        "rope",
        _ROPE,
        None,
        "query and key are turned by their position; halves pairs i with i + dim/2, adjacent 2i with 2i+1",
    ),
    Field("alibi", _ALIBI, False, "slope times distance is taken off the scores"),
    Field("relative_bias", _TABLE, None, "a number per head and distance, from -reach to reach, added to the scores"),
    Field("softcap", _NUMBER, None, "c in c * tanh(scores / c)"),
    Field("sinks", _YES_NO, False, "each head has a learned score that takes weight and gives no value"),
    Field(
        "qk_norm", _choice("head", "width"), None, "query and key are normalised, per head or over all heads together"
    ),
    Field("dropout_p", _NUMBER, 0.0, "probability that a weight is dropped in training; evaluation drops none"),
    Field("projection_bias", _YES_NO, False, "the projections to query, key and value add a bias"),
    Field("out_proj", _YES_NO, True, "the merged heads go through an output projection"),
    Field("empty_row", _choice("zero", "nan", "uniform"), "zero", "what a query gets that may attend to nothing"),
)
"""Every field of a spec, in the order it is written. The command line makes its options of these, docs their list."""

ROPE_FIELDS: tuple[Field, ...] = (
    Field("pairing", _choice("halves", "adjacent"), "halves", "which channels turn together", "rope"),
    Field("base", _NUMBER, 10000.0, "base of the geometric row of frequencies (rope_theta)", "rope"),
    Field("dims", _COUNT, None, "how many of the head's channels turn, the first ones; all by default", "rope"),
    Field("scaling", _SCALING, None, "how the frequencies are changed for longer texts", "rope"),
)
"""The fields of ``rope``."""

SCALING_FIELDS: tuple[Field, ...] = (
    Field("kind", _choice("linear", "llama3", "yarn"), "linear", "which frequencies are divided", "rope_scaling"),
    Field("factor", _NUMBER, 1.0, "new length over old length", "rope_scaling"),
    Field("original_length", _TOKENS, 8192, "tokens of the original training length", "rope_scaling"),
    Field("low_freq_factor", _NUMBER, 1.0, "llama3: slower than this many turns are divided", "rope_scaling"),
    Field("high_freq_factor", _NUMBER, 4.0, "llama3: faster than this many turns stay", "rope_scaling"),
    Field("beta_fast", _NUMBER, 32.0, "yarn: faster than this many turns stay", "rope_scaling"),
    Field("beta_slow", _NUMBER, 1.0, "yarn: slower than this many turns are divided", "rope_scaling"),
    Field("attention_factor", _NUMBER, None, "yarn: what query and key are multiplied by", "rope_scaling"),
    Field("truncate", _YES_NO, True, "yarn: the ramp begins and ends at whole channels", "rope_scaling"),
)
"""The fields of ``rope.scaling``."""


def no_fields(value: object, where: str) -> SpecError:
    """The error for a value in the place of an object of named fields."""
    return SpecError(
        f"{where} is {shown(value)}, and must be an object of named fields. Write for instance: "
        '{"num_heads": 6, "causal": true}'
    )


def shown(value: object) -> str:
    """A value as JSON writes it, cut when long, with its type in words."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    text = cut(text)
    words = {
        str: "text",
        bool: "a yes or no",
        int: "a whole number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    kind = words.get(type(value), "nothing" if value is None else type(value).__name__)
    return f"{text} ({kind})"


def cut(text: str) -> str:
    """The text, without its end where it is long."""
    return text if len(text) <= 60 else text[:57] + "..."
