"""qkv tells whether an attention is right, and when it is not, which fault gives exactly its numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkv.compute import attend as attend, plan as plan
    from qkv.debugger import check as check, compare_dumps as compare_dumps
    from qkv.errors import CandidateError as CandidateError, QkvError as QkvError, SpecError as SpecError
    from qkv.identifier import identify as identify, read_weights as read_weights
    from qkv.masks import (
        causal as causal,
        documents as documents,
        padding as padding,
        prefix as prefix,
        window as window,
    )
    from qkv.oracle import Inputs as Inputs, Parameters as Parameters, run_stages as run_stages
    from qkv.pictures.figure import draw as draw
    from qkv.report import Report as Report, Verdict as Verdict
    from qkv.report.terminal import as_text as as_text
    from qkv.shaper import predict_shapes as predict_shapes
    from qkv.spec import AttentionSpec as AttentionSpec, read_spec as read_spec
    from qkv.viewer import show as show

_HOMES = {
    "check": "qkv.debugger",
    "compare_dumps": "qkv.debugger",
    "identify": "qkv.identifier",
    "read_weights": "qkv.identifier",
    "show": "qkv.viewer",
    "AttentionSpec": "qkv.spec",
    "read_spec": "qkv.spec",
    "predict_shapes": "qkv.shaper",
    "attend": "qkv.compute",
    "plan": "qkv.compute",
    "causal": "qkv.masks",
    "window": "qkv.masks",
    "prefix": "qkv.masks",
    "documents": "qkv.masks",
    "padding": "qkv.masks",
    "run_stages": "qkv.oracle",
    "Inputs": "qkv.oracle",
    "Parameters": "qkv.oracle",
    "draw": "qkv.pictures.figure",
    "Report": "qkv.report",
    "Verdict": "qkv.report",
    "as_text": "qkv.report.terminal",
    "QkvError": "qkv.errors",
    "SpecError": "qkv.errors",
    "CandidateError": "qkv.errors",
}
"""Where each public name lives. It is imported when it is first used, so that ``import qkv`` costs nothing."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'qkv' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
