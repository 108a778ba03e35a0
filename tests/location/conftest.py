"""A right file with one change, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.adapters.host import Host
from qkv.adapters.opening import Conventions
from qkv.debugger import judge
from qkv.report import Report
from qkv.request import Request


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Report]:
    """The report on the class or function that a source defines."""

    def report(source: str, **given: Any) -> Report:
        path = tmp_path / "candidate.py"
        path.write_text(source)
        init = {"init": {"d_in": 24, "d_out": 24, "num_heads": 3, "context_length": 64}} if "d_in" in source else {}
        name = next(
            (match[1] for match in re.finditer(r"^class (\w+)\(nn.Module\)", source, re.MULTILINE)), "attention"
        )
        conventions = Conventions(**init)  # type: ignore[arg-type]
        request = Request(
            f"{path}:{name}", {"causal": True, **given}, False, conventions, 0, 20.0, 1 << 32, patch_seconds=0.0
        )
        return judge(request, Host())

    return report


@pytest.fixture
def changed() -> Callable[[str, str, str], tuple[str, int]]:
    """The source with one line changed, and that line's number."""

    def change(source: str, old: str, new: str) -> tuple[str, int]:
        assert source.count(old) == 1
        return source.replace(old, new), source[: source.index(old)].count("\n") + 1

    return change
