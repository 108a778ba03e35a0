"""Lines of code as Python counts them."""

from __future__ import annotations

import ast

from qkv.adapters.code_lines import code_lines

ODD = 'a = 1\n\f\nb = "\x85\u2028\x1c"\r\nc = 3\rd = 4'


def test_only_what_ends_a_line_for_python_ends_one() -> None:
    lines = code_lines(ODD)
    assert lines == ["a = 1", "\f", 'b = "\x85\u2028\x1c"', "c = 3", "d = 4"]
    assert "".join(code_lines(ODD, keepends=True)) == ODD
    for node in ast.parse(ODD).body:
        assert lines[node.lineno - 1].startswith(ast.unparse(node)[0])
    assert code_lines("") == []
    assert code_lines("\n") == [""]
