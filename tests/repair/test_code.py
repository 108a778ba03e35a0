"""Edits of a file leave every byte outside of them alone, however it is written."""

from __future__ import annotations

import ast
import codecs
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st

from qkv.adapters.syntax import called
from qkv.repair.code import Code, Edit, integer, number
from qkv.repair.search import Suspicion, changes

SOURCE = '''\
# Überschrift: Q·Kᵀ
import functools
import math

import torch


def outer(größe):
    """A docstring with 'quotes' and (brackets)."""

    @functools.wraps(outer)
    def attention(q, k, v, *, größe=größe):
        def kürze(x): return (x)  # one line
        scores = kürze(q @ k.transpose(-2, -1)) / (größe ** 0.5); scale = 1
        weights = torch.softmax(
            scores,  # by key
            dim=-2,
        )
        return weights @ v

    return attention
'''


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The same file with other line ends, indentation, encoding and mark."""
    text = SOURCE.replace("    ", draw(st.sampled_from(["\t", "    "])))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"])))
    if not draw(st.booleans()):
        text = text.rstrip()
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]))
    if encoding == "latin-1":
        text = text.replace("\r", "\n") if "\n" not in text else text
        text = "# -*- coding: latin-1 -*-" + text[text.index(": Q") + 6 :]
    return text.encode(encoding)


@settings(max_examples=12)
@given(files())
def test_bytes_outside_of_an_edit_stay_as_they_are(data: bytes) -> None:
    code = Code(data)
    tried = 0
    for change in islice(changes(code, Suspicion("outer", ["softmax-over-queries"])), 300):
        edited = code.edited(change.edits)
        if edited is None:
            continue
        tried += 1
        first, last = min(change.edits).start, max(edit.end for edit in change.edits)
        encoding = "latin-1" if data.startswith(b"# -*-") else "utf-8"
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        assert edited.startswith(mark + code.text[:first].encode(encoding))
        assert edited.endswith(code.text[last:].encode(encoding))
        assert len(edited) - len(data) == sum(
            len(edit.new.encode(encoding)) - len(code.text[edit.start : edit.end].encode(encoding))
            for edit in change.edits
        )
    assert tried > 100


@settings(max_examples=12)
@given(files())
def test_the_axis_of_the_softmax_is_among_the_first_edits(data: bytes) -> None:
    code = Code(data)
    tried = [
        code.edited(change.edits) for change in list(changes(code, Suspicion("outer", ["softmax-over-queries"])))[:40]
    ]
    assert data.replace(b"dim=-2", b"dim=-1") in tried


@pytest.mark.parametrize(
    ("before", "pick", "new", "after"),
    [
        ("y = a + b", ast.Name, "c", "y = c + b"),
        ("y = (a + b) * c", ast.Add, "a", "y = a * c"),
        ("y = a.T", ast.Name, "b + c", "y = (b + c).T"),
        ("y = f(a)", ast.Name, "b + c", "y = f(b + c)"),
        ("y = f(a)[0]", ast.Call, "b @ c", "y = (b @ c)[0]"),
        ("y = x[a]", ast.Name, "b + c", "y = x[b + c]"),
        ("y = ä + b", ast.Name, "ö", "y = ö + b"),
    ],
)
def test_brackets_stand_where_they_are_needed(before: str, pick: type[ast.AST], new: str, after: str) -> None:
    code = Code(before.encode())
    assert isinstance(code.tree.body[0], ast.Assign)
    nodes = [node for node in ast.walk(code.tree.body[0].value) if isinstance(node, ast.expr)]
    wanted = [node for node in nodes if isinstance(node, pick) or isinstance(getattr(node, "op", None), pick)]
    name = min((node for node in wanted), key=code.span) if pick is ast.Name else wanted[0]
    if isinstance(code.parents[name], ast.Call) and code.parents[name].func is name:  # type: ignore[attr-defined]
        name = wanted[-1]
    if before == "y = x[a]":
        name = max(wanted, key=code.span)
    edited = code.edited(code.put(name, new, "").edits)
    assert edited == after.encode()


def test_a_statement_is_taken_out_with_its_line_or_passed_over() -> None:
    code = Code(b"def f(x):\r\n    if x:\r\n        x = 1\r\n    y = 2  # two\r\n    x = 3\r\n    return x\r\n")
    inner, line = [node for node in ast.walk(code.tree) if isinstance(node, ast.Assign) and node.lineno in (3, 5)]
    inner, line = sorted((inner, line), key=lambda node: node.lineno)
    taken = code.edited([code.without(inner), code.without(line)])
    assert taken == b"def f(x):\r\n    if x:\r\n        pass\r\n    y = 2  # two\r\n    return x\r\n"


def test_edits_that_overlap_and_characters_that_the_encoding_lacks_are_no_edits() -> None:
    code = Code("# -*- coding: latin-1 -*-\nx = 'ä'\n".encode("latin-1"))
    assert code.edited([Edit(26, 28, "y"), Edit(27, 29, "z")]) is None
    assert code.edited([Edit(26, 27, "√")]) is None
    assert code.edited([Edit(26, 27, "ß")]) == "# -*- coding: latin-1 -*-\nß = 'ä'\n".encode("latin-1")


def test_what_is_written_in_a_node() -> None:
    values = [
        ast.parse(text, mode="eval").body for text in ("-3", "2.5", "-(-1)", "True", "F.softmax(x)", "x.softmax()")
    ]
    assert [integer(value) for value in values] == [-3, None, 1, None, None, None]
    assert [number(value) for value in values] == [-3, 2.5, 1, None, None, None]
    assert [called(value) for value in values] == ["", "", "", "", "softmax", "softmax"]
