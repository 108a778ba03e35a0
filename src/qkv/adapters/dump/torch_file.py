"""A ``.pt`` or ``.pth`` file: torch alone can read it, in a process of its own with a time and a memory limit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from qkv.adapters.dump.stored import Array, Contents, Stored, dtype_named
from qkv.adapters.process import HostProcess


def torch_contents(path: Path, time_limit: float, memory_limit: int) -> Contents:
    """The tensors of a file that ``torch.save`` wrote; what isn't a tensor in it is passed by.

    Raises:
        CandidateError: it needs more than plain tensors to be unpickled, or broke a limit.
    """
    # Not closed here: the tensors are read from it later. It ends with the last of them.
    host = HostProcess(time_limit=time_limit, memory_limit=memory_limit).start()
    shapes = host.tensor_shapes(str(path))
    return {name: Stored(tuple(shape), dtype, partial(_read, host, path, name, dtype))
            for name, (shape, dtype) in shapes.items()}  # fmt: skip


def _read(host: HostProcess, path: Path, name: str, dtype: str) -> Array:
    array = host.tensor_array(str(path), name)
    return array if array.dtype.name == dtype else array.astype(dtype_named(dtype))
