"""A ``.safetensors`` file, without any framework."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np

from qkv.adapters.dump.stored import Array, Contents, Stored, dtype_named
from qkv.errors import CandidateError

_DTYPES = {
    "BOOL": "bool",
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "C64": "complex64",
} | {f"{kind[0]}{bits}": f"{kind[1]}{bits}" for kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)}
"""The format's names of dtypes; the library's own reader for NumPy knows only those of NumPy."""


def safetensors_contents(path: Path) -> Contents:
    """The tensors of a ``.safetensors`` file.

    Raises:
        CandidateError: it isn't one, or is cut short.
    """
    from safetensors import SafetensorError, safe_open

    try:
        # Checks the header, and each tensor's place in the file against its shape.
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        raise CandidateError(
            f"{path} is no safetensors file that could be read: {error}",
            hint="it may be cut short: write it again, with safetensors.numpy.save_file or safetensors.torch.save_file",
        ) from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name: _stored(path, name, entry, 8 + length) for name, entry in header.items()}


def _stored(path: Path, name: str, entry: dict[str, list[int]], start: int) -> Stored:
    written = str(entry["dtype"])
    if written not in _DTYPES:
        raise CandidateError(f"{name} in {path} is stored as {written}, which is no kind of number known here")
    dtype, shape = _DTYPES[written], tuple(entry["shape"])
    return Stored(shape, dtype, partial(_read, path, dtype, shape, start + entry["data_offsets"][0]))


def _read(path: Path, dtype: str, shape: tuple[int, ...], start: int) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    return np.fromfile(path, dtype_named(dtype), count, offset=start).reshape(shape)
