"""Edits of shapes come out as people write them."""

from __future__ import annotations

import ast

import pytest

from qkv.repair.code import Code
from qkv.repair.rules import shaping


@pytest.mark.parametrize(
    ("source", "mended"),
    [
        ("y = x.permute(0, 2, 3, 1).reshape(b, t)", "y = x.permute(0, 2, 1, 3).reshape(b, t)"),
        ("y = x.transpose(1, 2).reshape(b, t)", "y = x.reshape(b, t)"),
        ("y = (w @ v).reshape(b, t)", "y = (w @ v).transpose(1, 2).reshape(b, t)"),
        ("y = x.reshape(b, t)", "y = x.transpose(1, 2).reshape(b, t)"),
    ],
)
def test_axes_are_exchanged_in_what_exchanges_them_already(source: str, mended: str) -> None:
    code = Code(f"import torch\n{source}\n".encode())
    found = [code.edited(change.edits) for node in ast.walk(code.tree) for change in shaping.merged(code, node)]
    assert f"import torch\n{mended}\n".encode() in found
    assert all(one is not None and b").transpose(2, 3).re" not in one for one in found if b"permute" in (one or b""))
