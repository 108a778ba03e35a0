"""Messages as bytes and back, without pickle: the process on the other side runs code that nobody has vouched for.

The bytes are a JSON text followed by the raw values of the arrays. In the text every container is a list that starts
with its kind: ``["tuple", 1, 2]``, ``["dict", ["a", 1]]``, ``["array", 0]``, ``["Argument", "x", "either", ...]``.
"""

from __future__ import annotations

import math
import struct
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from json import dumps, loads  # by name: a candidate may replace those of the module
from typing import Any, BinaryIO, Literal, Union

import numpy as np

from qkv.adapters.messages import (
    Argument,
    Array,
    ArrayFacts,
    Binding,
    Call,
    Config,
    Cotangent,
    Facts,
    Fresh,
    Handed,
    Reply,
    Returned,
    ScriptRun,
)
from qkv.adapters.recording import Operation, Place, Recording, Ref, Value
from qkv.errors import CandidateError

LARGEST_MESSAGE = 1 << 30
"""Bytes; what is longer is refused on both sides."""

LOST = 113
"""Exit code of a child whose pipes no longer work."""

_MAGIC = b"\x93QKV"
_FRAME = struct.Struct("<4sQ")
_HEADER = struct.Struct("<Q")
_RECORDS: dict[str, type] = {
    record.__name__: record
    for record in (
        *(Argument, ArrayFacts, Binding, Call, Config, Cotangent, Facts, Fresh, Handed, Reply, Returned, ScriptRun),
        *(Operation, Place, Recording, Ref, Value),
    )
}
_DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "float16", "float32", "float64", "complex64", "complex128"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}


class Unframed(Exception):  # noqa: N818 - a signal between two functions rather than an error
    """The stream holds something other than a message: what the interpreter wrote while it died."""


def encode(message: Any) -> bytes:
    """The bytes of a message: records, scalars, bytes, arrays, and lists, tuples and dicts of them.

    Raises:
        CandidateError: it holds something that can't be sent, or is too large.
    """
    arrays: list[Array] = []
    value = _pack(message, arrays, {})
    table = [[array.dtype.name, list(array.shape)] for array in arrays]
    text = dumps([value, table]).encode()
    body = b"".join([_HEADER.pack(len(text)), text, *(np.ascontiguousarray(array).data for array in arrays)])
    if len(body) > LARGEST_MESSAGE:
        raise CandidateError(f"{len(body) / 2**30:.1f} GiB of arrays are more than can be passed at once")
    return body


def decode(body: bytes) -> Any:
    """The message that `encode` made these bytes of.

    Raises:
        CandidateError: the bytes are no such message.
    """
    try:
        (length,) = _HEADER.unpack_from(body)
        start = _HEADER.size + length
        value, table = loads(body[_HEADER.size : start].decode())
        return _unpack(value, _read_arrays(body, start, table))
    except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError, OverflowError) as error:
        raise CandidateError(
            "the process that holds the candidate sent something that is no message",
            hint="the candidate may write to file descriptors that are not its own",
            detail=f"{type(error).__name__}: {error}"[:500],
        ) from None


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Nothing; writes one message with its length in front."""
    stream.write(_FRAME.pack(_MAGIC, len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message's bytes, or None at the end of the stream.

    Raises:
        Unframed: something else stands there; its first bytes are the exception's argument.
    """
    head = stream.read(_FRAME.size)
    if not head:
        return None
    if len(head) < _FRAME.size or not head.startswith(_MAGIC):
        raise Unframed(head)
    _, length = _FRAME.unpack(head)
    if length > LARGEST_MESSAGE:
        raise Unframed(b"a message of impossible length")
    body = stream.read(length)
    return body if len(body) == length else None


def _pack(value: Any, arrays: list[Array], seen: dict[int, int]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _pack(value.item(), arrays, seen)
    if isinstance(value, np.ndarray):
        return ["array", _pack_array(value, arrays, seen)]
    if isinstance(value, bytes):
        return ["bytes", value.decode("latin-1")]
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, *(_pack(item, arrays, seen) for item in value)]
    if isinstance(value, Mapping):
        return ["dict", *([_pack(key, arrays, seen), _pack(item, arrays, seen)] for key, item in value.items())]
    if isinstance(value, CandidateError):
        recording = _pack(value.recording, arrays, seen)
        return ["CandidateError", value.message, value.hint, value.detail, value.fatal, recording]
    if type(value).__name__ in _RECORDS:
        return [type(value).__name__, *(_pack(getattr(value, field.name), arrays, seen) for field in fields(value))]
    raise CandidateError(f"a {type(value).__name__} can't be passed to or from a candidate, only arrays and scalars")


def _pack_array(array: Array, arrays: list[Array], seen: dict[int, int]) -> int:
    # An array that is handed over twice arrives as one object: `attention(x, x, x)` may ask whether query is key.
    if id(array) not in seen:
        if array.dtype.name not in _DTYPES:
            raise CandidateError(f"an array of {array.dtype.name} can't be passed to or from a candidate")
        seen[id(array)] = len(arrays)
        arrays.append(array.astype(array.dtype.newbyteorder("="), copy=False))
    return seen[id(array)]


def _read_arrays(body: bytes, start: int, table: list[Any]) -> list[Array]:
    arrays, view = [], memoryview(body)  # slices of it are no copies
    for name, shape in table:
        dtype = _DTYPES[name]
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of shape {shape}")
        count = math.prod(shape)
        end = start + count * dtype.itemsize
        if end > len(body):
            raise ValueError("an array is cut short")
        # Order "C": a copy of its own, aligned, that may be written to.
        arrays.append(np.frombuffer(view[start:end], dtype, count).reshape(shape).copy(order="C"))
        start = end
    if start != len(body):
        raise ValueError("bytes are left over")
    return arrays


def _unpack(value: Any, arrays: list[Array]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *items = value
    if kind == "array":
        return arrays[items[0]]
    if kind == "dict":
        return {_unpack(key, arrays): _unpack(item, arrays) for key, item in items}
    contents = [_unpack(item, arrays) for item in items]
    if kind in ("list", "tuple"):
        return contents if kind == "list" else tuple(contents)
    if kind == "bytes":
        return str(contents[0]).encode("latin-1")
    if kind == "CandidateError":
        message, hint, detail, fatal, recording = contents
        error = CandidateError(str(message), hint=str(hint), detail=str(detail), fatal=fatal is True)
        error.recording = recording
        return error
    return _record(_RECORDS[kind], contents)


def _record(record: type, contents: list[Any]) -> Any:
    hints = _hints(record)
    if len(contents) != len(hints):
        raise ValueError(f"a {record.__name__} of {len(contents)} fields")
    for (name, hint), value in zip(hints.items(), contents, strict=True):
        if not _fits(value, hint):
            raise TypeError(f"{record.__name__}.{name} is a {type(value).__name__}")
    return record(*contents)


@cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a field's annotation promises, for the few forms of annotation in use here."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin in (Sequence, tuple):
        return isinstance(value, list | tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if hint is float:
        return isinstance(value, float | int)
    return isinstance(value, origin or hint)
