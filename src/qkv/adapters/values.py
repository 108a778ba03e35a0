"""Arrays on their way into a candidate and out of it: to its framework, dtype and strides, and back to float64."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from qkv.adapters.messages import Array, DType, Returned
from qkv.errors import CandidateError

MOST_RETURNED = 1000
DEEPEST = 20
"""Levels of lists, dicts and the like that are followed."""


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
    """The same values, with two axes changed about in memory where asked for: BHTD lies there as BTHD does."""
    if not strided or array.ndim < 3:
        return array
    axes = (0, 1) if array.ndim == 3 else (1, 2)
    return np.ascontiguousarray(array.swapaxes(*axes)).swapaxes(*axes)


def convert(value: Any, one: Any, path: str = "") -> Any:
    """The value with every array in it replaced by ``one(array, path)``, also inside lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return one(value, path)
    if isinstance(value, list | tuple):
        items = [convert(item, one, _join(path, place)) for place, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: convert(item, one, _join(path, key)) for key, item in value.items()}
    return value


def same_bits(left: Any, right: Any) -> bool:
    """Whether two tensors or two arrays have the same shape and hold the same bits; NaN is equal to itself."""
    if tuple(left.shape) != tuple(right.shape) or left.dtype != right.dtype:
        return False
    if isinstance(left, np.ndarray):
        return left.tobytes() == right.tobytes()
    torch = sys.modules["torch"]
    as_bytes = [one.detach().reshape(-1).contiguous().view(torch.uint8) for one in (left, right)]
    return bool(torch.equal(*as_bytes))


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
        value = _readable(value)
    array = np.array(value)
    if array.dtype.kind not in "biuf":
        raise CandidateError(f"holds {'complex' if array.dtype.kind == 'c' else array.dtype.name} values",
                             hint="qkv compares real numbers")  # fmt: skip
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _readable(tensor: Any) -> Any:
    """A tensor's values as NumPy can take them."""
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
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def flatten(result: Any) -> list[Returned]:
    """Every array in a result with the path it stood at, in order; numbers in nested lists count as an array.

    A list of arrays of one shape, such as the rows that a loop has collected, is one array too, after all others.

    Raises:
        CandidateError: an array holds complex values or no numbers.
    """
    found = []
    for path, value in _leaves(result, "", ()):
        try:
            found.append(Returned(path, to_float64(value), dtype_name(value)))
        except CandidateError as error:
            place = f" at {path!r}" if path else ""
            raise CandidateError(f"the array that it returned{place} {error.message}", hint=error.hint) from None
        if len(found) == MOST_RETURNED:
            break
    stacked = _stacked(result)
    return found if stacked is None else [*found, stacked]


def _leaves(value: Any, path: str, within: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The arrays in a result. What holds itself, or is nested deeper than any result, is not followed."""
    plain = isinstance(value, int | float) and not isinstance(value, np.generic)
    if value is None or plain or isinstance(value, str | bytes):
        return
    if len(within) > DEEPEST or id(value) in within:
        return
    within = (*within, id(value))
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        yield path, value
    elif (numbers := _as_numbers(value)) is not None:
        yield path, numbers
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, _join(path, key), within)
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=False):
            yield from _leaves(item, _join(path, name), within)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name, None), _join(path, field.name), within)
    elif hasattr(value, "__array__"):
        yield path, np.asarray(value)


def _innermost(value: Any) -> Any:
    """The first thing in nested lists that is no list; the value itself where that is none."""
    for _ in range(DEEPEST):
        if not isinstance(value, list | tuple) or not value:
            return value
        value = value[0]
    return None


def _as_numbers(value: Any) -> Array | None:
    """The array that nested lists of numbers spell, Python's, NumPy's or torch's; None for anything else."""
    first = _innermost(value)
    if first is value or isinstance(first, str | bytes):
        return None
    if is_tensor(first) and first.dim() == 0:
        value, first = _to_numbers(value, 0), 0.0
    if not isinstance(first, int | float | np.number | np.bool_):
        return None
    try:
        array = np.array(value)
    except (ValueError, TypeError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _to_numbers(value: Any, depth: int) -> Any:
    if isinstance(value, list | tuple) and depth < DEEPEST:
        return [_to_numbers(item, depth + 1) for item in value]
    return to_float64(value) if is_tensor(value) else value


def _stacked(value: Any) -> Returned | None:
    """Lists of arrays that all have one shape as one array; None for anything else."""
    first = _innermost(value)
    if not isinstance(value, list) or not (is_tensor(first) or isinstance(first, np.ndarray)) or not first.ndim:
        return None
    try:
        array = np.array(_to_numbers(value, 0))
    except (ValueError, TypeError, CandidateError):
        return None
    return Returned("", to_float64(array), dtype_name(first)) if array.dtype.kind in "biuf" else None


def describe(value: Any, depth: int = 2) -> str:
    """A result in words: ``tuple of Tensor (2, 7, 48), None``. The dtype is told where it is none of a float's."""
    if value is None:
        return "None"
    name = type(value).__name__
    if is_tensor(value) or isinstance(value, np.ndarray | np.generic):
        kind = dtype_name(value)
        return f"{name}{'' if 'float' in kind else f' of {kind}'} {_shape(value)}"
    if isinstance(value, bool | int | float | str):
        return f"{name} {value!r}"[:80]
    if depth and isinstance(value, Mapping):
        return f"{name} of " + (
            ", ".join(f"{k}: {describe(v, depth - 1)}" for k, v in list(value.items())[:6]) or "nothing"
        )
    if depth and isinstance(value, list | tuple):
        more = ", …" if len(value) > 6 else ""
        return f"{name} of " + (", ".join(describe(item, depth - 1) for item in value[:6]) or "nothing") + more
    return name


def _shape(value: Any) -> str:
    return "of rows that differ" if is_tensor(value) and value.is_nested else str(tuple(value.shape))


def _join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)
