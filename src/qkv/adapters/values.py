"""Arrays on their way into a candidate and out of it: to its framework, dtype and strides, and back to float64."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from qkv.adapters.messages import Array, DType
from qkv.errors import CandidateError


def imported_torch() -> Any:
    """The torch package; called only where the candidate needs it, since importing it takes seconds.

    Raises:
        CandidateError: it is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise CandidateError(
            "the candidate needs torch, which is not installed", hint="pip install 'qkv[torch]'"
        ) from None
    return torch


def to_torch(array: Array, dtype: DType, device: Any = "cpu", *, strided: bool = False) -> Any:
    """A tensor of its own with these values; floating ones in the dtype, others in their kind."""
    torch = imported_torch()
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    tensor = torch.from_numpy(_spread(np.array(array, order="C"), strided))
    return tensor.to(device=device, dtype=getattr(torch, dtype) if array.dtype.kind == "f" else None)


def to_numpy(array: Array, dtype: DType, *, strided: bool = False) -> Array:
    """An array of its own with these values; floating ones in the dtype, others in their kind.

    Raises:
        CandidateError: the dtype is bfloat16, which NumPy does not have.
    """
    if dtype == "bfloat16":
        raise CandidateError("NumPy has no bfloat16", hint="use float64, float32 or float16")
    return _spread(np.array(array, dtype=dtype if array.dtype.kind == "f" else None, order="C"), strided)


def _spread(array: Array, strided: bool) -> Array:
    """The same values, with two axes changed about in memory where asked for: BHTD lies there as BTHD does.

    Where all along the first of four axes are the same, they lie there once: their stride is zero.
    """
    if not strided or array.ndim < 3:
        return array
    if array.ndim == 4 and array.shape[0] > 1 and (array == array[:1]).all():
        return np.lib.stride_tricks.as_strided(array[:1].copy(), array.shape, (0, *array.strides[1:]))
    axes = (0, 1) if array.ndim == 3 else (1, 2)
    return np.ascontiguousarray(array.swapaxes(*axes)).swapaxes(*axes)


def convert(value: Any, one: Any, path: str = "") -> Any:
    """The value with every array in it replaced by ``one(array, path)``, also inside lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return one(value, path)
    if isinstance(value, list | tuple):
        items = [convert(item, one, joined(path, place)) for place, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: convert(item, one, joined(path, key)) for key, item in value.items()}
    return value


def same_bits(left: Any, right: Any) -> bool:
    """Whether two tensors or two arrays have the same shape and hold the same bits; NaN is equal to itself."""
    if tuple(left.shape) != tuple(right.shape) or left.dtype != right.dtype:
        return False
    if isinstance(left, np.ndarray):
        return left.tobytes() == right.tobytes()
    torch = sys.modules["torch"]
    # Whole numbers of the same width compare several times as fast as bytes.
    bits = getattr(torch, {2: "int16", 4: "int32", 8: "int64"}.get(left.element_size(), "uint8"))
    return bool(torch.equal(*(one.detach().reshape(-1).contiguous().view(bits) for one in (left, right))))


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_name(value: Any) -> str:
    """Name of the dtype of a tensor or array: ``bfloat16``."""
    return str(value.dtype).removeprefix("torch.")


def to_float64(value: Any) -> Array:
    """An array of its own with the values of a tensor or array, floating ones as float64.

    Raises:
        CandidateError: the values are complex, or no numbers. The message goes on from a name of the array.
    """
    if is_tensor(value):
        value = readable(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise CandidateError(f"holds {'complex' if array.dtype.kind == 'c' else array.dtype.name} values",
                             hint="qkv compares real numbers")  # fmt: skip
    return np.array(array, dtype=np.float64 if array.dtype.kind == "f" else None)  # a copy, and no more than one


def readable(tensor: Any) -> Any:
    """A tensor's values as NumPy can take them.

    Raises:
        CandidateError: it holds no real numbers, or not one beside the other. The message goes on from its name.
    """
    if tensor.is_meta:
        raise CandidateError("is on the meta device, which holds no data", hint="make it on the CPU: device='cpu'")
    if tensor.is_nested:
        raise CandidateError("is a nested tensor, whose rows differ in length", hint="pad it to one length")
    if tensor.is_complex():
        raise CandidateError("holds complex values", hint="qkv compares real numbers")
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not sys.modules["torch"].strided:
        tensor = tensor.to_dense()
    tensor, torch = tensor.detach().cpu(), sys.modules["torch"]
    known = tensor.dtype in (torch.float64, torch.float32, torch.float16) or not tensor.is_floating_point()
    return (tensor if known else tensor.double()).numpy()  # NumPy has no bfloat16 or smaller


def joined(path: str, name: Any) -> str:
    """The path of what stands under that name: ``attentions.0``."""
    return f"{path}.{name}" if path else str(name)
