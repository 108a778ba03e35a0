"""Values of options that are no fields of a spec: JSON objects, times, sizes of memory."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import click


def json_option(text: str | None, flag: str, example: str) -> dict[str, Any]:
    """The JSON object that an option holds.

    Raises:
        click.UsageError: it is no JSON object.
    """
    if not text:
        return {}
    write = f"Write a JSON object: {flag} '{example}'"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{flag}: {error.msg} at character {error.pos + 1} of {text!r}. {write}") from None
    except (ValueError, RecursionError):
        raise click.UsageError(f"{flag} holds a number that is too long, or too many brackets. {write}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{flag} is {text!r}, which is no object. {write}")
    return value


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A time that a person may want to wait."""

    name = "seconds"
    least, most = 0.1, 86_400.0

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        # Not a number is in no range.
        if not self.least <= seconds <= self.most:
            flag = param.opts[0] if param else ""
            raise click.UsageError(
                f"{flag} is {str(value)!r}; write seconds from {self.least:g} to {self.most:g}: {flag} 60"
            )
        return seconds


class Memory(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, with a unit or without; 0 for no limit."""

    name = "bytes"
    least, most = 100 * 2**20, 2**50

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes that ``500M`` or ``4G`` stands for."""
        flag = param.opts[0] if param else ""
        match = re.fullmatch(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgt]?)i?b?\s*", str(value), re.IGNORECASE)
        if not match:
            raise click.UsageError(f"{flag} is {value!r}; write bytes, or a number with a unit: {flag} 4G")
        number = int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
        if number and number < self.least:
            raise click.UsageError(
                f"{flag} is {value!r}, less than Python and NumPy need themselves; write 100M or more, or 0 for no "
                f"limit: {flag} 1G"
            )
        if number > self.most:
            raise click.UsageError(f"{flag} is {value!r}, more than any machine has; for no limit write {flag} 0")
        return number
