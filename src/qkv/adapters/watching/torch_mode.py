"""Torch's operations on their way: each call of a function or method of torch is taken down. Imports torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from qkv.adapters.watching.numpy_arrays import handed_on
from qkv.adapters.watching.recorder import Recorder, caller

_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag", "data"}
_METADATA = {"size", "dim", "ndimension", "numel", "stride", "is_contiguous", "type", "storage_offset", "data_ptr"}


@contextmanager
def torch_recorded(recorder: Recorder) -> Iterator[None]:
    """Nothing; meanwhile what torch is called for in this thread is taken down. Compiled code runs as it is written."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(TorchMode(recorder))
        yield


class TorchMode(TorchFunctionMode):
    """Takes down what is called while it is on."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """What the function gives."""
        kwargs = kwargs or {}
        name = _name(func)
        if not name or self._recorder.full:
            return func(*args, **kwargs)

        def run() -> Any:
            result = func(*args, **kwargs)
            return handed_on(result) if type(result) is np.ndarray else result

        return self._recorder.record(name, args, kwargs, run, caller())


def _name(func: Any) -> str:
    """What torch calls a function; empty for what reads no more than a tensor's form."""
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return attribute if attribute in _PROPERTIES and name == "__get__" else ""
    return "" if name in _METADATA else name.partition(".")[0]
