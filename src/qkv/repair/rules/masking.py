"""Edits of masks: where they are applied, what they fill with, and masks that are missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Change, Code, Edit, is_loose, number
from qkv.repair.rules.anchors import all_scores
from qkv.repair.scope import attributes, bound, is_mask, is_named_mask, masks


def lowest(code: Code) -> str:
    """Minus infinity as this file would write it."""
    if not code.uses_torch:
        return "-np.inf"
    return "-torch.inf" if "torch.inf" in code.text else 'float("-inf")'


def hiding(code: Code, scores: str, hide: str) -> str:
    """Scores in which a mask hides where it is True."""
    if code.uses_torch:
        return f"{scores}.masked_fill({hide}, {lowest(code)})"
    return f"np.where({hide}, {lowest(code)}, {scores})"


def keeping(code: Code, scores: str, keep: str) -> str:
    """Scores in which a mask keeps where it is True."""
    if code.uses_torch:
        compared = isinstance(ast.parse(keep, mode="eval").body, ast.Compare)
        hide = f"~({keep})" if compared else f"({keep}) == 0" if is_loose(keep) else f"{keep} == 0"
        return f"{scores}.masked_fill({hide}, {lowest(code)})"
    return f"np.where({keep}, {scores}, {lowest(code)})"


def masked(code: Code, node: ast.AST, mask: str) -> Iterator[str]:
    """Scores under a mask of either meaning."""
    if mask.startswith("~"):
        yield hiding(code, code.operand(node), mask[1:])
    yield hiding(code, code.operand(node), mask)
    yield keeping(code, code.operand(node), mask)


def filled_with(code: Code, node: ast.AST) -> Iterator[Change]:
    """Minus infinity, or a large number, for what hidden scores are filled with."""
    above = code.parents.get(node)
    filled = isinstance(above, ast.Call) and called(above) in (
        "masked_fill",
        "masked_fill_",
        "where",
        "full",
        "full_like",
    )
    set_to = isinstance(above, ast.Assign) and above.value is node
    factor = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult) and isinstance(node, ast.expr)
    value = number(node) if isinstance(node, ast.expr) else None
    low = called(node) == "float" or (value is not None and abs(value) <= 1e4)
    if (filled or set_to or factor) and (low or _is_lowest(node) or (isinstance(node, ast.BinOp) and filled)):
        if not factor and not (value is None and set_to and not _is_lowest(node)):
            yield code.put(node, lowest(code), "fill")
        yield code.put(node, "-1e9", "fill")


def _is_lowest(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("min", "inf")


def from_number(code: Code, node: ast.AST) -> Iterator[Change]:
    """A mask applied where it was added to the scores, or multiplied with them, as a number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult | ast.Sub):
        for mask, scores in ((node.right, node.left), (node.left, node.right)):
            inner = _bare(mask)
            if _holds_mask(code, inner):
                for new in masked(code, scores, code.of(inner)):
                    yield code.put(node, new, "masked")
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Mult):
        inner = _bare(node.value)
        if _holds_mask(code, inner):
            start, end = code.span(node)
            for new in masked(code, node.target, code.of(inner)):
                yield Change((Edit(start, end, f"{code.of(node.target)} = {new}"),), "masked")


def _holds_mask(code: Code, node: ast.AST) -> bool:
    return is_mask(code, node) or dotted(node) in masks(code, node)


def _bare(node: ast.expr) -> ast.expr:
    """A mask without the casts and factors around it."""
    while True:
        if isinstance(node, ast.Call) and called(node) in ("to", "float", "astype", "type_as", "double", "int", "log"):
            node = node.func.value if isinstance(node.func, ast.Attribute) and called(node) != "log" else node.args[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            node = node.left
        else:
            return node


def after_softmax(code: Code, node: ast.AST) -> Iterator[Change]:
    """A mask applied to the scores in the place of one that is applied to the weights."""
    applied = _applied(code, node)
    if applied is None:
        return
    mask, rest = applied
    for scores in all_scores(code, node):
        for new in masked(code, scores, mask):
            for removal in _removals(code, node, rest):
                yield from _both(code, removal, code.edit(scores, new), rest)
        yield from _with_its_condition(code, node, mask, scores)


def _with_its_condition(code: Code, node: ast.AST, mask: str, scores: ast.AST) -> Iterator[Change]:
    """The mask moved to the scores together with the ``if`` that it stands under."""
    statement, before = code.statement_of(node), code.statement_of(scores)
    guard = code.parents.get(statement) if statement is not None else None
    if not isinstance(guard, ast.If) or before is None or not isinstance(scores, ast.Name):
        return
    indent = code.indent_of(before)
    if guard.body != [statement] or guard.orelse or indent is None:
        return
    start = code.span(before)[0]
    for new in masked(code, scores, mask):
        line = f"if {code.of(guard.test)}:{code.newline}{indent}    {scores.id} = {new}{code.newline}{indent}"
        yield Change((Edit(start, start, line), code.without(guard)), "")


def _both(code: Code, removal: Edit, added: Edit, rest: ast.expr) -> Iterator[Change]:
    """Two edits, the second one perhaps inside of what the first one keeps."""
    start, end = code.span(rest)
    if removal.end <= added.start or added.end <= removal.start:
        yield Change((removal, added), "")
    elif start <= added.start and added.end <= end and removal.new == code.of(rest):
        inner = removal.new[: added.start - start] + added.new + removal.new[added.end - start :]
        yield Change((removal._replace(new=inner),), "")


def _removals(code: Code, node: ast.AST, rest: ast.expr) -> Iterator[Edit]:
    statement = code.statement_of(node)
    if isinstance(statement, ast.AugAssign) and statement is node:
        yield code.without(statement)
        return
    assert isinstance(node, ast.expr)
    if isinstance(statement, ast.Assign) and statement.value is node and code.of(statement.targets[0]) == code.of(rest):
        above = code.parents[statement]
        alone = isinstance(above, ast.If) and above.body == [statement] and not above.orelse
        yield code.without(above if alone and isinstance(above, ast.stmt) else statement)
    yield code.edit(node, code.of(rest))


def _applied(code: Code, node: ast.AST) -> tuple[str, ast.expr] | None:
    """The mask of a product with a mask, or of a fill with 0, and what it is applied to."""
    match node:
        case ast.AugAssign(target=rest, op=ast.Mult(), value=mask):
            return code.operand(_bare(mask)), rest
        case ast.BinOp(left=rest, op=ast.Mult(), right=mask) if _holds_mask(code, _bare(mask)):
            return code.operand(_bare(mask)), rest
        case ast.BinOp(left=mask, op=ast.Mult(), right=rest) if _holds_mask(code, _bare(mask)):
            return code.operand(_bare(mask)), rest
        case ast.Call(func=ast.Attribute(value=rest, attr="masked_fill" | "masked_fill_"), args=[mask, fill]):
            return (code.of(mask), rest) if number(fill) == 0 else None
        case ast.Call(args=[mask, rest, fill]) if called(node) == "where" and number(fill) == 0:
            return code.operand(mask), rest
    return None


def missing(code: Code, node: ast.AST) -> Iterator[Change]:
    """A mask that is there, or a causal one, applied to scores."""
    if node not in all_scores(code, node):
        return
    known = masks(code, node)
    if isinstance(node, ast.Name):
        held = [name for name, value in attributes(code, node).items() if is_mask(code, value) or is_named_mask(name)]
        known += [f"{name}[..., :{node.id}.size(-2), :{node.id}.size(-1)].bool()" for name in held]
    for mask in known:
        for new in masked(code, node, mask):
            yield code.put(node, new, "mask applied")
            yield from _where_given(code, node, mask, new)
    yield code.put(node, causal(code, node), "causal mask")
    yield code.put(node, causal(code, node, corner=True), "causal mask at the end of the keys")
    for name in (*bound(code, node), *attributes(code, node)):
        if "window" in name:
            yield code.put(node, windowed(code, node, name), "window")


def _where_given(code: Code, node: ast.AST, mask: str, new: str) -> Iterator[Change]:
    """The mask applied in front of a statement, where one is given: it may be None."""
    before = code.statement_of(node)
    indent = None if before is None else code.indent_of(before)
    if isinstance(node, ast.Name) and before is not None and indent is not None and f"{mask}=None" in code.text:
        start = code.span(before)[0]
        line = f"if {mask} is not None:{code.newline}{indent}    {node.id} = {new}{code.newline}{indent}"
        yield Change((Edit(start, start, line),), "")


def windowed(code: Code, node: ast.AST, window: str) -> str:
    """Scores under a window that counts the query itself, of keys that lie behind it."""
    scores = code.operand(node)
    if code.uses_torch:
        return f"{scores}.masked_fill(torch.ones_like({scores}, dtype=torch.bool).tril(-{window}), {lowest(code)})"
    return f"np.where(np.tri(*{scores}.shape[-2:], -{window}, dtype=bool), -np.inf, {scores})"


def emptied(code: Code, node: ast.AST) -> Iterator[Change]:
    """Zeros for the weights of a query that may attend to nothing."""
    if called(node) == "softmax":
        library = "torch" if code.uses_torch else "np"
        yield code.put(node, f"{library}.nan_to_num({code.of(node)})", "emptied")


def causal(code: Code, node: ast.AST, *, corner: bool = False) -> str:
    """Scores under a causal mask of their own.

    The first query stands at the first key; or, in the corner, the last one at the last.
    """
    scores = code.operand(node)
    ahead = f"{scores}.shape[-1] - {scores}.shape[-2]"
    if code.uses_torch:
        diagonal = f"1 + {ahead}" if corner else "1"
        return f"{scores}.masked_fill(torch.ones_like({scores}, dtype=torch.bool).triu({diagonal}), {lowest(code)})"
    size = f"*{scores}.shape[-2:], {ahead}" if corner else f"*{scores}.shape[-2:]"
    return f"np.where(np.tri({size}, dtype=bool), {scores}, -np.inf)"


def lost(code: Code, node: ast.AST) -> Iterator[Change]:
    """What a method makes, kept: ``scores = scores.masked_fill(…)`` for the call alone."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        target = node.value.func.value
        if isinstance(target, ast.Name):
            start = code.span(node)[0]
            yield Change((Edit(start, start, f"{target.id} = "),), "kept")
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        for arg in node.value.args:
            if isinstance(arg, ast.Name):
                start = code.span(node)[0]
                yield Change((Edit(start, start, f"{arg.id} = "),), "kept")


def fused(code: Code, node: ast.AST) -> Iterator[Change]:
    """What ``scaled_dot_product_attention`` is told: causal or not, under which mask, at which scale."""
    if called(node) != "scaled_dot_product_attention":
        return
    assert isinstance(node, ast.Call)
    end = code.span(node)[1] - 1
    names = {keyword.arg: keyword for keyword in node.keywords}
    if "is_causal" not in names and "attn_mask" not in names:
        yield Change((Edit(end, end, ", is_causal=True"),), "causal")
        for mask in masks(code, node):
            yield Change((Edit(end, end, f", attn_mask={mask}"),), "masked")
    if "is_causal" in names:
        yield code.put(names["is_causal"].value, "True", "causal")
    if "attn_mask" in names:
        start, stop = code.span(names["attn_mask"])
        yield Change((Edit(start, stop, "is_causal=True"),), "causal")
        value = names["attn_mask"].value
        for inner in ast.walk(value):
            if isinstance(inner, ast.expr) and is_mask(code, inner):
                yield code.put(value, code.of(inner), "the mask itself")
                yield code.put(value, f"~{code.operand(inner)}", "the mask inverted")
        yield code.put(value, f"{code.operand(value)}.bool()", "the mask as booleans")
