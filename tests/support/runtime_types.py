"""The checker that the tests put on every annotation of qkv."""

from __future__ import annotations

from typing import Any

from beartype import BeartypeConf, beartype

# An int may stand where a float is asked for, as type checkers allow.
_CONF = BeartypeConf(is_pep484_tower=True)


def check(annotated: Any) -> Any:
    """The function or class, checking its arguments and what it returns against their annotations."""
    return beartype(conf=_CONF)(annotated)
