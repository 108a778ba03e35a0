"""The contents of an array at one moment, and the memory that it lies in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from qkv.adapters.messages import Array
from qkv.adapters.values import is_tensor

_WIDE = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}

# To ask whether one of these is a tensor takes longer than all else.
_PLAIN = {bool, int, float, str, list, tuple, dict, slice, type(None), type(Ellipsis)}


def is_watched(value: Any) -> bool:
    """Whether a value is an array of numbers, a tensor or NumPy's; one of NumPy's scalars counts as one."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc"
    return type(value) not in _PLAIN and is_tensor(value)


def contents(array: Any) -> Array:
    """The numbers of an array as NumPy has them, in its own memory where that can be had without a copy."""
    if isinstance(array, np.ndarray):
        return np.ndarray.view(array, np.ndarray)
    if not is_tensor(array):
        return np.asarray(array)
    torch = sys.modules["torch"]
    tensor = array.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    small = tensor.dtype.is_floating_point and tensor.dtype not in (torch.float64, torch.float32, torch.float16)
    return (tensor.double() if small else tensor).cpu().resolve_conj().resolve_neg().numpy()


def copied(array: Any) -> Array:
    """A copy of the numbers of an array, floating ones as float64."""
    numbers = contents(array)
    return np.array(numbers, dtype=_WIDE.get(numbers.dtype.kind, numbers.dtype), order="C")


def same(before: Array, array: Any) -> bool:
    """Whether an array still holds the numbers that were copied from it."""
    if isinstance(array, np.generic):
        return True
    numbers = contents(array)
    now = numbers.astype(_WIDE.get(numbers.dtype.kind, numbers.dtype), copy=False)
    return before.shape == now.shape and before.dtype == now.dtype and before.tobytes() == now.tobytes()


def size_of(array: Any) -> int:
    """Bytes of the copy that a recording holds of an array: its floating numbers are float64 there."""
    count = array.numel() if is_tensor(array) else array.size
    return int(count) * (array.dtype.itemsize if _is_discrete(array) else 8)


def _is_discrete(array: Any) -> bool:
    if is_tensor(array):
        return not (array.is_floating_point() or array.is_complex())
    return array.dtype.kind in "biu"


def memory(array: Any) -> int:
    """Where the memory begins that an array shares with its views: the same number for all of them."""
    if is_tensor(array):
        return int(array.untyped_storage().data_ptr())
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    base = getattr(array, "base", None)
    return memory(base) if is_tensor(base) else address(array)


def address(array: Any) -> int:
    """Where the first number of an array lies."""
    if is_tensor(array):
        return int(array.data_ptr())
    return int(array.__array_interface__["data"][0]) if isinstance(array, np.ndarray) else id(array)
