"""Dumps for tests to judge: the tensors of a small attention, in any format, dtype and order of axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from qkv.oracle import Inputs, Run, run_stages
from qkv.spec import AttentionSpec, spec_from_mapping

Array = np.ndarray[Any, np.dtype[Any]]

FIELDS = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "value_dim": 10, "causal": True}
SPEC = spec_from_mapping(FIELDS)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def run_of(
    spec: AttentionSpec = SPEC, *, batch: int = 2, queries: int = 7, keys: int = 7, dtype: str = "float32",
    replacements: Mapping[Any, Any] | None = None, seed: int = 0, **extra: Any,
) -> Run:  # fmt: skip
    """The oracle's run on numbers that ``dtype`` holds exactly."""
    rng = np.random.default_rng(seed)
    head_dim = spec.head_dim or 8
    shapes = {
        "query": (batch, spec.num_heads, queries, head_dim),
        "key": (batch, spec.kv_heads, keys, head_dim),
        "value": (batch, spec.kv_heads, keys, spec.value_dim or head_dim),
    }
    arrays = {name: rng.normal(size=shape).astype(dtype_of(dtype)).astype(float) for name, shape in shapes.items()}
    if spec.sinks:
        extra = {"sinks": rng.normal(size=spec.num_heads), **extra}
    with np.errstate(all="ignore"):
        return run_stages(spec.but(out_proj=False), Inputs(**arrays, **extra), replacements or {})


def heads_of(run: Run) -> Array:
    """The output, ``(batch, head, query, dim)``."""
    batch, queries = run.output.shape[:2]
    return run.output.reshape(batch, queries, run.spec.num_heads, -1).transpose(0, 2, 1, 3)


def arranged(array: Array, layout: str) -> Array:
    """``(batch, head, token, dim)`` in another order; E is all heads side by side."""
    if layout.endswith("E"):
        whole = array.transpose(0, 2, 1, 3).reshape(array.shape[0], array.shape[2], -1)
        return {"BTE": whole, "TE": whole[0], "TBE": whole.swapaxes(0, 1)}[layout]
    kept = array if "B" in layout else array[0]
    axes = [axis for axis in "BHTD" if axis in layout]
    return kept.transpose([axes.index(axis) for axis in layout])


def tensors_of(run: Run, layout: str = "BHTD", dtype: str = "float32") -> dict[str, Array]:
    """Query, key, value and output by short names."""
    inputs = run.inputs
    named = {"q": inputs.query, "k": inputs.key, "v": inputs.value, "out": heads_of(run)}
    return {
        name: np.ascontiguousarray(arranged(array, layout).astype(dtype_of(dtype))) for name, array in named.items()
    }


def write(path: Path, tensors: Mapping[str, Array]) -> Path:
    """The path, once the tensors are written there in the format that its suffix names."""
    if path.suffix == ".safetensors":
        save_file(dict(tensors), path)
    elif path.suffix == ".npz":
        np.savez(path, **tensors)
    elif path.suffix == ".pt":
        _write_torch(path, tensors)
    else:
        path.mkdir()
        for name, array in tensors.items():
            np.save(path / f"{name}.npy", array)
    return path


def _write_torch(path: Path, tensors: Mapping[str, Array]) -> None:
    import torch

    def tensor(array: Array) -> torch.Tensor:
        if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            return torch.tensor(array.astype(np.float32)).to(getattr(torch, array.dtype.name))
        return torch.tensor(array)

    torch.save({name: tensor(array) for name, array in tensors.items()}, path)
