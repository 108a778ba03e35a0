"""The mask as plain fields: causal, window, prefix and documents for the usual forms, an expression for every other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qkv.errors import SpecError
from qkv.masks import And, Causal, Documents, Everything, Mask, Or, Prefix, SlidingWindow, Unexplained, parse_mask

PLAIN: Mapping[str, Any] = {"causal": False, "window": None, "prefix": None, "documents": False}
"""The fields that make a mask of the usual form, and what each is when it plays no part."""


def mask_from_fields(values: Mapping[str, Any], where: str) -> Mask:
    """The mask that the fields describe: ``((causal & window) | prefix) & documents``, each part where it is given.

    Args:
        values: the fields of :data:`PLAIN` and ``mask``, checked already.
        where: what the fields stand in, for the message.

    Raises:
        SpecError: an expression beside the plain fields, or a prefix that can have no effect.
    """
    given = {name: values[name] for name, default in PLAIN.items() if values[name] != default}
    if values["mask"] is not None:
        if given:
            raise _both_forms(given, values["mask"], where)
        if values["mask"] == str(Unexplained()):
            raise SpecError(
                f"{where}: mask is 'unexplained': no one known mask lets through the keys that were seen in all heads. "
                'Say which is meant: --mask "causal & window(5)"; or one a head, by the heads that the answer lists: '
                '--mask "per_head([causal, causal & window(5)])"'
            )
        return parse_mask(values["mask"])
    if given.keys() & {"prefix"} and not given.keys() & {"causal", "window"}:
        raise SpecError(
            f"{where}: prefix is {given['prefix']} without causal or window. A prefix opens the first tokens to "
            "queries that a mask would hide them from, and nothing is hidden here: add causal for a prefix model, "
            f'or if the first tokens are all that may be seen, write mask "prefix({given["prefix"]})"'
        )
    return _joined(given)


def _joined(given: Mapping[str, Any]) -> Mask:
    mask: Mask | None = Causal() if "causal" in given else None
    if "window" in given:
        window = SlidingWindow(given["window"])
        mask = window if mask is None else mask & window
    if "prefix" in given and mask is not None:
        mask = mask | Prefix(given["prefix"])
    if "documents" in given:
        mask = Documents() if mask is None else mask & Documents()
    return Everything() if mask is None else mask


def _both_forms(given: Mapping[str, Any], expression: str, where: str) -> SpecError:
    names = [name if value is True else f"{name}({value})" for name, value in given.items()]
    return SpecError(
        f"{where}: mask is {expression!r} and {', '.join(given)} {'are' if len(given) > 1 else 'is'} given too. Write "
        f"one or the other: how the two should be joined can't be known. As one expression: mask "
        f'"{" & ".join([*names, f"({expression})"])}" where both must allow a key, | where either may'
    )


def fields_from_mask(mask: Mask) -> dict[str, Any]:
    """The fields that :func:`mask_from_fields` makes the same mask of.

    Raises:
        SpecError: part of the mask is none of qkv's own masks, so that no text says what it is.
    """
    plain = _plain_fields(mask)
    if plain is not None:
        return {**PLAIN, **plain, "mask": None}
    if mask == Unexplained():
        return {**PLAIN, "mask": str(mask)}
    try:
        same = parse_mask(str(mask)) == mask
    except SpecError:
        same = False
    if not same:
        raise SpecError(
            f"the mask {mask} can't be written down: only the masks of qkv.masks, joined by &, | and ~, have a text"
        )
    return {**PLAIN, "mask": str(mask)}


def _plain_fields(mask: Mask) -> dict[str, Any] | None:
    """The plain fields of a mask of the usual form; None for any other form."""
    given: dict[str, Any] = {}
    rest: Mask | None = mask
    match rest:
        case Documents():
            given["documents"], rest = True, None
        case And(left=rest, right=Documents()):
            given["documents"] = True
    match rest:
        case Or(left=rest, right=Prefix(length=length)):
            given["prefix"] = length
    match rest:
        case Causal(ahead=0):
            given["causal"], rest = True, None
        case SlidingWindow(size=size):
            given["window"], rest = size, None
        case And(left=Causal(ahead=0), right=SlidingWindow(size=size)):
            given["causal"], given["window"], rest = True, size, None
        case Everything() if not given:
            rest = None
    # What was read is trusted only if it gives the same mask again.
    return given if rest is None and _joined(given) == mask else None
