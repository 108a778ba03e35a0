"""Uncompiled: what torch.compile shall not look into.

In a file of its own, to be loaded when something is compiled: to be told this, torch loads its whole compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def as_written(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, run as it is written; the graph is parted there."""
    return function(*arguments)
