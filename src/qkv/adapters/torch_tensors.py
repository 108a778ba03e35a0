"""The tensors of a file that ``torch.save`` wrote. It runs in the child process: only there torch is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from qkv.adapters.messages import Array
from qkv.errors import CandidateError

DEEPEST = 8
"""Containers inside containers that are looked into."""


def torch_shapes(path: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every tensor by its dotted name.

    Raises:
        CandidateError: the file is none of tensors alone, or can't be read.
    """
    return {name: (tuple(tensor.shape), _dtype(tensor)) for name, tensor in _tensors(path).items()}


def torch_array(path: str, name: str) -> Array:
    """The tensor of this name; in a dtype that NumPy lacks as float32, which holds all its numbers."""
    return _array(_tensors(path)[name])


def _tensors(path: str) -> Mapping[str, Any]:
    try:
        return _loaded(path, Path(path).stat().st_mtime_ns)
    except OSError as error:
        raise CandidateError(f"{path} can't be read: {error.strerror}") from None


@lru_cache(maxsize=1)  # torch goes through the whole file, and its tensors are asked for one by one
def _loaded(path: str, written: int) -> Mapping[str, Any]:
    """Every tensor by its dotted name, of the file as it was `written` then."""
    import torch

    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes the unpickler raise
        said = str(error).splitlines()[0] if str(error) else ""
        hint = "save a plain dict of tensors: torch.save({'query': q, 'key': k, 'value': v, 'output': out}, path)"
        message = f"{path} can't be loaded with weights_only=True: {type(error).__name__}: {said[:200]}"
        raise CandidateError(message, hint=hint) from None
    return dict(_inside(held, "", 0))


def _inside(held: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(held, torch.Tensor):
        yield name or "tensor", held.dequantize() if held.is_quantized else held
    elif depth < DEEPEST and isinstance(held, Mapping | list | tuple):
        for key, value in held.items() if isinstance(held, Mapping) else enumerate(held):
            yield from _inside(value, f"{name}.{key}" if name else str(key), depth + 1)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _array(tensor: Any) -> Array:
    tensor = tensor.detach()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    small = tensor.dtype.is_floating_point and tensor.element_size() < 4 and _dtype(tensor) != "float16"
    return np.ascontiguousarray((tensor.float() if small else tensor).resolve_conj().resolve_neg().numpy())
