"""Edits that use what a file has and leaves unused: a projection, a bias, a norm, a function, an argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qkv.adapters.syntax import called, dotted, names_in
from qkv.repair.code import Change, Code, Edit
from qkv.repair.scope import attributes, bound, is_layer, siblings, unused_attributes


def layer(code: Code, node: ast.AST) -> Iterator[Change]:
    """A layer that the class makes and never calls, called on what is assigned or returned."""
    above = code.parents.get(node)
    if not isinstance(node, ast.expr) or not _is_used(node, above) or dotted(getattr(above, "func", node)) == "super":
        return
    for name in unused_attributes(code, node):
        if is_layer(attributes(code, node)[name]):
            yield code.put(node, f"{name}({code.of(node)})", f"{name} called")


def parameter(code: Code, node: ast.AST) -> Iterator[Change]:
    """A matrix that a function is given and never uses, as a factor or a term of what it reads or returns."""
    function, above = code.function_of(node), code.parents.get(node)
    if not isinstance(node, ast.expr) or not isinstance(function, ast.FunctionDef) or not _is_used(node, above):
        return
    used = names_in(function)
    for one in function.args.args:
        if one.arg not in used and one.arg != "self":
            for op in ("@", "+"):
                yield code.put(node, f"{code.operand(node)} {op} {one.arg}", f"{op} {one.arg}")


def _is_used(node: ast.expr, above: ast.AST | None) -> bool:
    """Whether an expression is assigned, returned or handed over."""
    if isinstance(above, ast.Call):
        return above.func is not node
    return isinstance(above, ast.Return | ast.Assign | ast.BinOp) and isinstance(
        getattr(node, "ctx", ast.Load()), ast.Load
    )


def returned_layer(code: Code, node: ast.AST) -> Iterator[Change]:
    """Any layer of the class, called on what is returned: one of a list of layers may have been left out."""
    above = code.parents.get(node)
    if not isinstance(above, ast.Return) or not isinstance(node, ast.expr):
        return
    for name, value in attributes(code, node).items():
        if is_layer(value):
            yield code.put(node, f"{name}({code.of(node)})", f"{name} called")
        elif isinstance(value, ast.Call):
            yield code.put(node, f"{name}[-1]({code.of(node)})", f"{name} called")


def whole_layer(code: Code, node: ast.AST) -> Iterator[Change]:
    """A layer called, in the place of a product with its weight: ``self.proj(x)`` for ``x @ self.proj.weight``."""
    inner = next((part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "weight"), None)
    if inner is None or not isinstance(node, ast.BinOp | ast.Call):
        return
    owner = code.of(inner.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield code.put(node, f"{owner}({code.of(node.left)})", "whole layer")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        product = node.left
        if isinstance(product, ast.BinOp) and isinstance(product.op, ast.MatMult):
            yield code.put(node, f"{owner}({code.of(product.left)})", "whole layer")
    if called(node) == "linear" and isinstance(node, ast.Call) and node.args:
        yield code.put(node, f"{owner}({code.of(node.args[0])})", "whole layer")


def bias(code: Code, node: ast.AST) -> Iterator[Change]:
    """The bias beside a weight that is used alone: ``F.linear(x, weight, bias)``."""
    if called(node) == "linear" and isinstance(node, ast.Call) and len(node.args) == 2:
        end = code.span(node.args[1])[1]
        for name in (code.of(node.args[1]).replace("weight", "bias"), *unused_attributes(code, node)):
            yield Change((Edit(end, end, f", {name}"),), "bias")
    if isinstance(node, ast.Call) and is_layer(node):
        for keyword in node.keywords:
            if keyword.arg == "bias" and isinstance(keyword.value, ast.Constant):
                yield code.put(keyword.value, str(not keyword.value.value), "bias")


def same_as_sibling(code: Code, node: ast.AST) -> Iterator[Change]:
    """For the query, key or value what is done for another one of them: ``self.q_norm(q)``, ``rotate(q)``."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return
    for inner in ast.walk(code.function_of(node)):
        if isinstance(inner, ast.Call) and inner.args and called(inner) not in ("matmul", "einsum", "bmm"):
            first = inner.args[0]
            if isinstance(first, ast.Name) and first.id in siblings(node.id):
                owner = dotted(inner.func)
                known = (*attributes(code, node), owner)
                for function in (*(name for name in siblings(owner) if name in known), owner):
                    rest = "".join(f", {code.of(arg)}" for arg in inner.args[1:])
                    yield code.put(node, f"{function}({node.id}{rest})", f"{function} called")


def function(code: Code, node: ast.AST) -> Iterator[Change]:
    """A function of the file that nothing calls, called where its arguments are at hand: ``q, k = rotate(q, k, …)``."""
    if not isinstance(node, ast.stmt) or code.function_of(node) is code.tree:
        return
    used = names_in(code.tree)
    names = bound(code, node)
    for one in code.tree.body:
        if isinstance(one, ast.FunctionDef) and one.name not in used:
            arguments = [arg.arg for arg in one.args.args]
            yield from _calls(code, node, one.name, arguments, names)


def _calls(code: Code, node: ast.stmt, name: str, arguments: list[str], names: list[str]) -> Iterator[Change]:
    """The call of a forgotten function in front of a statement: of one array at a time, or of a query and a key."""
    start, indent = code.span(node)[0], code.indent_of(node)
    given = [_fitting(argument, names) for argument in arguments]
    if indent is None or None in given or not given:
        return
    first = [one for one in given[:2] if one is not None and any(siblings(one))]
    call = f"{name}({', '.join(str(one) for one in given)})"
    yield Change((Edit(start, start, f"{', '.join(first)} = {call}{code.newline}{indent}"),), f"{name} called")


def _fitting(argument: str, names: list[str]) -> str | None:
    """The variable that an argument is meant for: of its name, or one that begins with it."""
    if argument in names:
        return argument
    return next((name for name in names if name.startswith(argument) or argument.startswith(name)), None)


def attribute(code: Code, node: ast.AST) -> Iterator[Change]:
    """An attribute that is set and never read, in the place of a constant: ``self.training`` for True too."""
    if isinstance(node, ast.Constant):
        for name in unused_attributes(code, node):
            yield code.put(node, name, f"{name} read")
    if isinstance(node, ast.Call):
        end = code.span(node)[1] - 1
        for name in unused_attributes(code, node):
            if node.args and not is_layer(attributes(code, node)[name]):
                yield Change((Edit(end, end, f", {name}"),), f"{name} handed over")
