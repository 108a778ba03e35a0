"""Something else put where a value stands, until it is put back."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any


def put(put_back: ExitStack, container: Any, key: Any, value: Any) -> None:
    """Nothing; puts a value into a container, and in the end what was there, unless the candidate has replaced it.

    Args:
        put_back: what runs in the end.
        container: a list or a dict, such as the variables of a module.
        key: the place in it.
        value: what is to stand there meanwhile.
    """
    before = container[key]

    def restore() -> None:
        with suppress(LookupError):
            if container[key] is value:
                container[key] = before

    container[key] = value
    put_back.callback(restore)
