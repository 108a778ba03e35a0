"""Possible: the known arrays that an operation may have made of what is known above it, the likelier ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.adapters.recording import Operation, Ref
from qkv.scripts import moves, naming
from qkv.scripts.fused import FUSED, chains
from qkv.scripts.known import Array, Known
from qkv.scripts.reading import Reading, refs

PRODUCTS = frozenset({"matmul", "mm", "bmm", "dot", "inner", "einsum", "tensordot", "mv", "vdot", "vecdot", "linear"})
VIEWS = frozenset(
    {
        *(
            "T",
            "mT",
            "H",
            "t",
            "transpose",
            "swapaxes",
            "swapdims",
            "permute",
            "moveaxis",
            "reshape",
            "view",
            "getitem",
        ),
        *("unsqueeze", "squeeze", "expand_dims", "expand", "flatten", "unflatten", "rearrange", "contiguous", "clone"),
        *("copy", "float", "double", "to", "astype", "asarray", "as_tensor", "from_numpy", "numpy", "array", "tensor"),
        *("detach", "chunk", "split", "array_split", "tensor_split", "unbind", "select", "narrow"),
    }
)
_JOINING = frozenset(
    {"setitem", "add", "sum", "mul", "stack", "cat", "concat", "concatenate", "vstack", "hstack", "tensor", "array"}
)
_FEW = 3
"""Known arrays of which every pair is tried, whatever the operation."""


def in_own_order(reading: Reading, operation: Operation, value: int) -> bool:
    """Whether an operation may take rows in an order of their own: by a list or an array of places, or backwards.

    A table of embeddings, looked up by the words of a sentence, is no sentence: the rows are counted in what comes out.
    """
    if operation.name != "getitem":
        return operation.name not in VIEWS
    index = operation.arguments[1] if len(operation.arguments) > 1 else None
    parts = index if isinstance(index, list) else [index]
    picked = isinstance(index, list) and not any(isinstance(part, tuple | list | Ref) or part is None for part in parts)
    if picked and reading.array(value).ndim == reading.array(reading.parents[value][0]).ndim:
        return True  # a list of places; as many numbers between commas leave an axis out each
    return any(isinstance(part, list) or _is_places(reading, part) or _is_backwards(part) for part in parts)


def _is_places(reading: Reading, part: Any) -> bool:
    return isinstance(part, Ref) and reading.array(part.value).ndim > 0


def _is_backwards(part: Any) -> bool:
    return isinstance(part, tuple) and isinstance(part[-1], int) and part[-1] < 0


def possible(reading: Reading, operation: Operation, value: int, roots: Sequence[int]) -> Iterator[Known]:
    """The known arrays that one of an operation's results may be.

    Args:
        reading: what is known so far.
        operation: the operation.
        value: its result.
        roots: the nearest arrays above it that something is known of.
    """
    knowns = list(dict.fromkeys(reading.sights[root].known for root in roots))
    name = operation.name
    if name in FUSED:
        yield from chains(reading, operation)
    if name not in PRODUCTS:
        yield from _changed(reading, operation, value, roots)
    role = naming.role_of(reading.target(operation, value))
    if name in PRODUCTS or name in _JOINING or len(knowns) <= _FEW:
        pairs = [(left, right) for left in _queries_first(reading, roots) for right in knowns]
        # Two that are there are both used, though one may have the numbers of the other.
        for left, right in sorted(pairs, key=lambda pair: pair[0] is pair[1]):
            for known in moves.products(left, right):
                yield replace(known, role=role or _role_of(known)) if known.kind == "tokens" else known
                if known.kind == "scores" and name in _JOINING:
                    yield from moves.scaled_by_number(known, left.array.shape[-1])
    yield from _biased(reading, operation, knowns, role)
    if name in ("cat", "concat", "concatenate", "hstack"):
        yield from _joined(reading, operation)


def _queries_first(reading: Reading, roots: Sequence[int]) -> list[Known]:
    """What is known of these arrays, before all those that are one token: it is the one that looks at all others."""
    sights = [reading.sights[root] for root in roots]
    alone = [sight.known for sight in sights if sight.token is not None and sight.known.role != "key"]
    return list(dict.fromkeys([*alone, *(sight.known for sight in sights)]))


def _role_of(projected: Known) -> str:
    """What tokens are by the name of the matrix that they were projected with."""
    return next((source.role for source in projected.sources if source.kind == "matrix"), "")


def _changed(reading: Reading, operation: Operation, value: int, roots: Sequence[int]) -> Iterator[Known]:
    """What one known array becomes entry by entry, or by being cut into heads and put together again."""
    array, knowns = reading.array(value), list(dict.fromkeys(reading.sights[root].known for root in roots))
    alike = [root for root in roots if reading.array(root).shape == array.shape]
    if len(knowns) == 1 and alike:
        made = moves.elementwise(reading.sights[alike[-1]], reading.array(alike[-1]), array, operation.name)
        if made is not None:
            yield made
    for known in knowns if operation.name in VIEWS else ():
        if known.kind == "tokens":
            named = naming.role_of(reading.target(operation, value)) or known.role
            for root in roots:
                whole = _own_numbers(reading, root) if reading.sights[root].known is known else None
                parts = moves.cuts(known, whole, array) if whole is not None else ()
                yield from (replace(part, role=named) for part in parts)
            yield from moves.splits(known, array.shape)
        elif known.kind == "context":
            yield from moves.merges(known, array.shape)


def _own_numbers(reading: Reading, value: int) -> Array | None:
    """The known array that one of the script's is, in the script's own numbers; None where it is only a part of it."""
    sight = reading.sights[value]
    whole = sight.known.array
    if sight.index.size != whole.size:
        return None
    own = np.empty(whole.size)
    own[sight.index.reshape(-1)] = reading.array(value).reshape(-1)
    return own.reshape(whole.shape)


def _biased(reading: Reading, operation: Operation, knowns: Sequence[Known], role: str) -> Iterator[Known]:
    """Tokens or context vectors with a bias on each channel: of a layer, or added."""
    arrays = [(value, reading.array(value)) for value in refs(operation.arguments)]
    for known in knowns:
        if known.kind not in ("tokens", "context"):
            continue
        if operation.name == "add":
            shifted = (moves.shifted(known, array) for value, array in arrays if value not in reading.sights)
            yield from (made for made in shifted if made is not None)
        if operation.name == "linear" and len(arrays) > 2:
            held = reading.sights.get(arrays[1][0])
            whole = held is not None and held.known.kind == "matrix" and not held.fixed
            matrix = held.known if held and whole else Known("matrix", ("out", "in"), arrays[1][1], "given")
            for projected in moves.products(known, matrix):
                made = moves.shifted(projected, arrays[2][1])
                if made is not None:
                    yield replace(made, move="project", sources=(known, matrix), role=role)


def _joined(reading: Reading, operation: Operation) -> Iterator[Known]:
    """The context vectors of several heads side by side."""
    parts = [reading.sights.get(value) for value in refs(operation.arguments)]
    knowns = [part.known for part in parts if part is not None and part.known.kind == "context"]
    if knowns and len(knowns) == len(parts):
        array = np.concatenate([known.array for known in knowns], axis=-1)
        yield Known("context", knowns[0].axes, array, "merge", tuple(knowns))
