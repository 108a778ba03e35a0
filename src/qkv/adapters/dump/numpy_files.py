"""``.npz`` files and folders of ``.npy`` files. Nothing is unpickled, and nothing is believed of its own size."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from qkv.adapters.dump.stored import Array, Contents, Stored
from qkv.errors import CandidateError

_BROKEN = (
    ValueError,
    EOFError,
    OSError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    zipfile.BadZipFile,
    zlib.error,
)
_VOIDS = {2: "bfloat16"}
"""What NumPy saves dtypes as that it doesn't know: raw entries of so many bytes. One byte could be either fp8."""


def folder_contents(path: Path) -> Contents:
    """The tensors of a folder of ``.npy`` files, each named as its file.

    Raises:
        CandidateError: there is none, or one of them can't be read.
    """
    files = sorted(path.rglob("*.npy"))
    if not files:
        others = sorted(file.name for file in path.iterdir())[:8]
        holds = f"it holds {', '.join(others)}" if others else "it is empty"
        raise CandidateError(
            f"the folder {path} holds no .npy file", hint=f"{holds}; save q.npy, k.npy, v.npy, out.npy"
        )
    contents = {}
    for file in files:
        if not file.is_file():  # a pipe would be waited for, and a link may lead to itself
            raise CandidateError(f"{file} is no regular file", hint="copy the tensors themselves into the folder")
        contents[".".join(file.relative_to(path).with_suffix("").parts)] = _stored(file)
    return contents


def array_contents(path: Path) -> Contents:
    """The one tensor of an ``.npy`` file, named as the file.

    Raises:
        CandidateError: it can't be read.
    """
    return {path.stem: _stored(path)}


def _stored(file: Path) -> Stored:
    with file.open("rb") as stream:
        return _header(cast("BinaryIO", stream), str(file), file.stat().st_size, partial(_from_file, file))


def npz_contents(path: Path) -> Contents:
    """The tensors of an ``.npz`` file.

    Raises:
        CandidateError: it isn't one, or one of its members can't be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            return {one.filename.removesuffix(".npy"): _member(archive, path, one) for one in members}
    except (*_BROKEN, NotImplementedError, RuntimeError) as error:
        raise _unreadable(str(path), error, "write it again with numpy.savez") from None


def _member(archive: zipfile.ZipFile, path: Path, member: zipfile.ZipInfo) -> Stored:
    where = f"{member.filename} in {path}"
    with archive.open(member) as stream:
        return _header(cast("BinaryIO", stream), where, member.file_size, partial(_from_zip, path, member.filename))


def _header(stream: BinaryIO, where: str, size: int, read: Any) -> Stored:
    """What the header of an array says, once it fits the size of what holds it."""
    try:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = reader(stream)
    except _BROKEN as error:
        raise _unreadable(where, error, "write it again with numpy.save") from None
    if dtype.hasobject:
        hint = "save plain arrays of numbers: numpy.save(name, numpy.asarray(array, dtype=float))"
        raise CandidateError(f"{where} holds pickled Python objects, which are never loaded", hint=hint)
    name = _VOIDS.get(dtype.itemsize, "") if dtype.kind == "V" else dtype.name
    if dtype.names is not None or not name or dtype.kind in "SUMm":
        hint = "save it as float32; a safetensors file holds bfloat16 and float8 too"
        raise CandidateError(f"{where} holds entries of {dtype}, which are no numbers known here", hint=hint)
    declared, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or declared != held:
        message = f"{where} is said to have shape {shape} of {dtype.name}, {declared} bytes, and holds {held}"
        raise CandidateError(message, hint="it may be cut short: write it again with numpy.save")
    return Stored(tuple(shape), name, partial(_typed, read, name))


def _typed(read: Any, name: str) -> Array:
    array: Array = read()
    if array.dtype.kind == "V":
        import ml_dtypes

        return array.view(getattr(ml_dtypes, name))
    return array


def _from_file(path: Path) -> Array:
    return cast("Array", np.load(path, allow_pickle=False))


def _from_zip(path: Path, member: str) -> Array:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            return cast("Array", np.lib.format.read_array(stream, allow_pickle=False))
    except _BROKEN as error:
        raise _unreadable(f"{member} in {path}", error, "write it again with numpy.savez") from None


def _unreadable(where: str, error: Exception, hint: str) -> CandidateError:
    if isinstance(error, CandidateError):
        return error
    said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return CandidateError(f"{where} can't be read: {said}", hint=hint)
