"""Edits of shapes: heads that a view alone splits or merges, heads repeated in the wrong order, einsum's letters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations, permutations

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit, integer

VIEWS = ("view", "reshape")
ASIDE = ("flatten", "contiguous")
EINOPS = ("rearrange", "repeat", "reduce")


def _arguments(node: ast.Call) -> list[ast.expr]:
    """The sizes that a view is given, as arguments or in one tuple."""
    args = node.args
    return list(args[0].elts) if len(args) == 1 and isinstance(args[0], ast.Tuple | ast.List) else list(args)


def transposing(code: Code, first: int, second: int) -> str:
    """A transpose of two axes as a method, as this file's framework has it."""
    return f".transpose({first}, {second})" if code.uses_torch else f".swapaxes({first}, {second})"


def _with_transpose(code: Code, node: ast.AST, first: int, second: int) -> str:
    """An expression with two axes exchanged, as people write it: in the order of its own permute, if it has one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        order = [integer(one) for one in node.args]
        if node.func.attr == "permute" and None not in order and max(first, second) < len(order):
            order[first], order[second] = order[second], order[first]
            return f"{code.of(node.func)}({', '.join(map(str, order))})"
        if node.func.attr in ("transpose", "swapaxes") and {*order} == {first, second}:
            return code.of(node.func.value)
    return f"{code.operand(node)}{transposing(code, first, second)}"


def split(code: Code, node: ast.AST) -> Iterator[Change]:
    """Sizes of a view in another order, and a transpose behind it: ``view(b, t, h, d).transpose(1, 2)``."""
    if called(node) not in VIEWS or not isinstance(node, ast.Call):
        return
    sizes = _arguments(node)
    for first, second in combinations(range(len(sizes)), 2):
        texts = code.of(sizes[first]), code.of(sizes[second])
        if first == 0 or texts[0] == texts[1] or second != first + 1:
            continue
        swap = code.edit(sizes[first], texts[1]), code.edit(sizes[second], texts[0])
        end = code.span(node)[1]
        behind = Edit(end, end, transposing(code, first, second))
        yield Change((*swap, behind), f"view {first, second}")
        yield Change(swap, f"sizes {first, second}")
        method = _method_behind(code, node, ("transpose", "swapaxes"))
        if method is not None:
            yield Change((*swap, Edit(code.span(node)[1], code.span(method)[1], "")), f"view alone {first, second}")


def _method_behind(code: Code, node: ast.AST, names: tuple[str, ...]) -> ast.Call | None:
    above = code.parents.get(node)
    call = code.parents.get(above) if isinstance(above, ast.Attribute) and above.attr in names else None
    return call if isinstance(call, ast.Call) else None


def merged(code: Code, node: ast.AST) -> Iterator[Change]:
    """A transpose in front of what puts heads together, and a reshape where a view can't follow one."""
    if called(node) in (*VIEWS, *ASIDE) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        end, given = code.span(node.func)[1], node.func.value
        dot = code.text.rindex(".", 0, end)
        for axes in ((1, 2), (0, 1), (2, 3)):
            turned, plain = _with_transpose(code, given, *axes), transposing(code, *axes)
            added = Edit(dot, dot, plain) if turned.endswith(plain) else code.edit(given, turned)
            yield Change((added,), f"transpose {axes}")
            if called(node) == "view":
                yield Change((added, Edit(end - 4, end, "reshape")), f"transpose and reshape {axes}")


def transposed(code: Code, node: ast.AST) -> Iterator[Change]:
    """A transpose of two axes behind a variable that is read, or what a call makes."""
    above = code.parents.get(node)
    if isinstance(node, ast.Call | ast.Name) and isinstance(above, ast.Assign | ast.Return | ast.BinOp | ast.Call):
        if isinstance(above, ast.Call) and above.func is node:
            return
        if not re.search(r"\b(transpose|swapaxes|permute)\(", code.text):
            yield code.put(node, f"{code.operand(node)}.T", "behind")
        for axes in ((-2, -1), (1, 2)):
            yield code.put(node, _with_transpose(code, node, *axes), f"behind {axes}")


def repeated(code: Code, node: ast.AST) -> Iterator[Change]:
    """Each head repeated in its place, ``repeat_interleave``, for all of them one after the other, or the reverse."""
    if not isinstance(node, ast.Call):
        return
    name = called(node)
    if name in ("repeat", "tile") and code.uses_torch and isinstance(node.func, ast.Attribute):
        counts = _arguments(node)
        many = [place for place, count in enumerate(counts) if integer(count) != 1]
        if len(many) == 1:
            inner, times = code.of(node.func.value), code.of(counts[many[0]])
            yield code.put(node, f"{inner}.repeat_interleave({times}, dim={many[0]})", "interleaved")
    if name in ("tile", "repeat", "repeat_interleave") and not code.uses_torch and len(node.args) >= 2:
        yield Change((Edit(*_name_span(code, node), {"tile": "repeat"}.get(name, "tile")),), "interleaved")
    if name == "repeat_interleave" and code.uses_torch:
        yield from _as_repeat(code, node)
    if name in ("cat", "concat") and node.args and isinstance(node.args[0], ast.BinOp):
        product = node.args[0]
        if isinstance(product.left, ast.List) and len(product.left.elts) == 1:
            axis = next((code.of(one.value) for one in node.keywords if one.arg == "dim"), "1")
            inner = code.operand(product.left.elts[0])
            yield code.put(node, f"{inner}.repeat_interleave({code.of(product.right)}, dim={axis})", "interleaved")


def _as_repeat(code: Code, node: ast.Call) -> Iterator[Change]:
    inner = node.func.value if isinstance(node.func, ast.Attribute) and dotted(node.func.value) != "torch" else None
    args = list(node.args) if inner is not None else list(node.args[1:])
    first = inner or (node.args[0] if node.args else None)
    axis = next((integer(one.value) for one in node.keywords if one.arg == "dim"), None)
    if first is not None and args and axis in (0, 1, 2):
        counts = ", ".join([*["1"] * axis, code.of(args[0]), *["1"] * (2 - axis if axis == 0 else 3 - axis)])
        yield code.put(node, f"{code.operand(first)}.repeat({counts})", "in order")


def _name_span(code: Code, node: ast.Call) -> tuple[int, int]:
    end = code.span(node.func)[1]
    return end - len(called(node)), end


def expanded(code: Code, node: ast.AST) -> Iterator[Change]:
    """The new axis of an expansion behind the heads: ``x[:, :, None].expand(b, kv, n, t, d)``."""
    if called(node) != "expand" or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    inner, sizes = node.func.value, _arguments(node)
    if not isinstance(inner, ast.Subscript) or not isinstance(inner.slice, ast.Tuple):
        return
    places = [place for place, part in enumerate(inner.slice.elts) if code.of(part) == "None"]
    for place in places:
        for other in (place + 1, place - 1):
            if 0 < other < len(sizes):
                parts = [code.of(part) for part in inner.slice.elts]
                parts += [":"] * (other + 1 - len(parts))
                parts[place], parts[other] = parts[other], parts[place]
                index = code.edit(inner.slice, ", ".join(parts))
                swap = (
                    code.edit(sizes[place], code.of(sizes[other])),
                    code.edit(sizes[other], code.of(sizes[place])),
                )
                yield Change((index, *swap), "expanded")


def einsum(code: Code, node: ast.AST) -> Iterator[Change]:
    """Two letters of an einsum's output, or of one of its operands, the other way round."""
    if called(node) != "einsum" or not isinstance(node, ast.Call) or not node.args:
        return
    text = node.args[0]
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str) or "->" not in text.value:
        return
    inputs, _, output = text.value.partition("->")
    parts = [*inputs.split(","), output]
    for place in (len(parts) - 1, *range(len(parts) - 1)):
        letters = parts[place].strip()
        for first, second in combinations(range(len(letters)), 2):
            if letters[first].isalpha() and letters[second].isalpha():
                swapped = list(letters)
                swapped[first], swapped[second] = swapped[second], swapped[first]
                new = [*parts[:place], parts[place].replace(letters, "".join(swapped)), *parts[place + 1 :]]
                written = f"{','.join(new[:-1])}->{new[-1]}"
                yield code.put(text, code.of(text).replace(text.value, written), f"einsum {place, first, second}")


def regrouped(code: Code, node: ast.AST) -> Iterator[Change]:
    """The names in one pair of brackets of an einops pattern in another order: ``(h d)`` for ``(d h)``."""
    if not isinstance(node, ast.Call) or called(node) not in EINOPS:
        return
    for text in node.args:
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and "->" in text.value:
            written = code.of(text)
            for group in re.finditer(r"\(([^()]+)\)", written):
                names = group[1].split()
                for order in list(permutations(names))[1:]:
                    new = f"{written[: group.start(1)]}{' '.join(order)}{written[group.end(1) :]}"
                    yield code.put(text, new, f"{group[1]} to {' '.join(order)}")
