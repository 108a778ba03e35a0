"""Idle: masks that a script makes and reads nowhere, and helpers for one that it never calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from qkv.adapters.syntax import called
from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.allowed import taken_as_meant
from qkv.scripts.findings import Finding
from qkv.scripts.known import Array
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading
from qkv.scripts.spots import Spot, Written
from qkv.scripts.writing import hiding, remade, where_hidden
from qkv.vocabulary import HIDDEN_BELOW

_REGISTERED = re.compile(r"register_buffer\(\s*['\"](\w+)['\"]")
_MASKS = {"mask", "masks", "causal", "padding", "pad"}
"""Words by which a name says that it holds a mask."""


def idle_masks(
    mixes: Sequence[Mix], reading: Reading, text: Text, assumptions: list[str], unequal: Sequence[str]
) -> Iterator[Finding | str]:
    """What is wrong with a mask that nothing reads, where a mix that it fits has none; else why that can't be said.

    Args:
        mixes: every product of weights and values.
        reading: the script.
        text: its text.
        assumptions: takes up what was taken for granted.
        unequal: comparisons of its own that come out false: a mix without the mask may be held against one with it.
    """
    read = read_names(text.tree)
    for name, value in _unread(reading, text, read):
        mask = reading.array(value)
        bare = (replace(mix, last=True) for mix in mixes if mix.visible is None and mix.softmax is not None)
        fitting = [mix for mix in bare if _fits(mask, mix)]
        elsewhere = any(mix.visible is not None and _is(mask, mix) for mix in mixes)
        if fitting and (unequal or not elsewhere):
            said = f"{name} is a mask, and nothing reads it: every token sees all others, those that it hides too"
            yield not_applied(
                fitting[-1], said, applied(fitting[-1], value, name, text), seen_in(fitting[-1], mask), assumptions
            )
        elif not elsewhere:
            yield f"{name} is a mask that is made, and nothing reads it"
    if not any(mix.visible is not None for mix in mixes):
        yield from (f"{name} makes a mask, and nothing calls it" for name in _uncalled(text, read))


def read_names(tree: ast.Module) -> set[str]:
    """The last names of all that is read anywhere."""
    loaded = (node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Load))
    return {getattr(node, "id", "") or getattr(node, "attr", "") for node in loaded}


def _unread(reading: Reading, text: Text, read: set[str]) -> Iterator[tuple[str, int]]:
    """The variables and buffers that hold a mask and are read nowhere, the number of its array with each."""
    found = {binding.name: binding.value for binding in reading.run.bound}
    for value, sight in reading.sights.items():
        line = reading.line(value)
        if sight.known.kind == "mask" and line and (named := _REGISTERED.search(text.lines[line - 1])):
            found[f"self.{named[1]}"] = value
    for name, value in found.items():
        if name.rpartition(".")[2] not in read and _is_mask(reading, value, name):
            yield name, value


def _is_mask(reading: Reading, value: int, name: str) -> bool:
    """Whether an array is a mask: made by shape alone, or one of two values that its name calls so."""
    sight, array = reading.sights.get(value), reading.array(value)
    if sight is not None:
        return sight.known.kind == "mask"
    named = bool(_MASKS & set(naming.words(name)))
    return named and array.ndim > 1 and set(np.unique(array >= 0.5)) == {False, True} and len(np.unique(array)) == 2


def _fits(mask: Array, mix: Mix) -> bool:
    """Whether a mask has a column for each key of a mix, and a row for each of its queries or of its sequences.

    A buffer for the longest sequence has more of both.
    """
    shape = mix.weights.array.shape
    if mask.shape[-1] == mask.shape[-2] > shape[-1] == shape[-2]:
        return True
    return mask.shape[-1] == shape[-1] and mask.shape[-2] in (1, shape[-2], shape[0])


def _is(mask: Array, mix: Mix) -> bool:
    """Whether a mask says what a mix is masked with, either way round."""
    seen, rows = seen_through(mask), mix.visible
    return (
        rows is not None and seen.shape[-2:] == rows.shape[-2:] and bool((seen == rows).all() or (seen != rows).all())
    )


def seen_through(mask: Array) -> Array:
    """Where a mask lets through: what each token may do is see itself, and most of a padded sequence is no padding."""
    true = mask > HIDDEN_BELOW if mask.min() < 0 else mask.astype(bool)
    if mask.shape[-1] == mask.shape[-2]:
        own = np.diagonal(true, axis1=-2, axis2=-1)
        return true if own.all() else ~true
    return true if true.mean() >= 0.5 else ~true


def applied(mix: Mix, value: int, name: str, text: Text) -> Written:
    """The code that masks the scores of a mix with a mask in a variable: in the call of a helper that takes one."""
    mask, reading = mix.reading.array(value), mix.reading
    rows, scores = name, mix.weights.array.shape
    if mask.shape[-1] == mask.shape[-2] > scores[-1]:
        rows = f"{name}[..., :{scores[-2]}, :{scores[-1]}]"
    elif mask.ndim == 2 and mask.shape[-2] != scores[-2]:  # of sequences and their keys
        rows = f"{name}[{', '.join([':', *['None'] * (len(scores) - 2), ':'])}]"
    hidden = where_hidden(mix, value, rows, seen_through(mask)) or rows
    written = remade(mix, mix.softmax or mix.context, lambda scores: hiding(mix, scores, hidden))
    held = {binding.function for binding in reading.run.bound if binding.value == value and binding.name == name}
    for call in reading.calls(written.spot.operation) if written.spot.function not in held else ():
        argument = _argument(text, call.code)
        if call.function in held and argument:
            spot = Spot(reading, written.spot.operation, call)
            return Written(spot, f"{call.code[:-1]}, {argument}={name})")
    return written


def _argument(text: Text, call: str) -> str:
    """The argument for a mask that a call of the script's own function leaves out; empty for none."""
    try:
        made = ast.parse(call, mode="eval").body
    except SyntaxError:  # lines with comments between them are one line here
        return ""
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef) and node.name == called(made) and isinstance(made, ast.Call):
            given = [argument.arg for argument in node.args.args[: len(made.args)]]
            given += [keyword.arg or "" for keyword in made.keywords]
            left_out = (one.arg for one in node.args.args if one.arg not in given)
            return next((name for name in left_out if "mask" in naming.words(name)), "")
    return ""


def seen_in(mix: Mix, mask: Array) -> Array:
    """Where a mask lets through, ``(..., query, key)``; it may be one of sequences and keys, or of more tokens."""
    seen, (queries, keys) = seen_through(mask), mix.weights.array.shape[-2:]
    if mask.shape[-1] == mask.shape[-2] > keys:
        return seen[..., :queries, :keys]
    return seen[:, None] if mask.ndim == 2 and mask.shape[-2] != queries else seen


def not_applied(mix: Mix, said: str, written: Written, visible: Array, assumptions: list[str]) -> Finding:
    """The finding that a mask is made and not used, and what is taken for granted once it is."""
    finding = Finding.of("mask-not-applied", said, written, mix)
    if np.array_equal(visible.reshape(-1, *visible.shape[-2:])[0], np.tri(*visible.shape[-2:]) > 0):
        return finding
    assumptions.append(taken_as_meant(mix))
    return replace(finding, meant=visible)


def _uncalled(text: Text, read: set[str]) -> Iterator[str]:
    """The functions that make a causal mask by their names, and that nothing calls."""
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef) and node.name not in read:
            words = set(naming.words(node.name))
            if "mask" in words and (naming.causal_word(node.name) or words & {"subsequent", "future", "tril", "triu"}):
                yield f"{node.name}()"
