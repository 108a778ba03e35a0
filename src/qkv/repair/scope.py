"""What belongs to a candidate in its file, and what names mean there: sizes, masks, and the siblings q, k and v."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from qkv.adapters.syntax import called, dotted
from qkv.repair.code import Code, Function

TRIPLES = (
    ("query", "key", "value"),
    ("queries", "keys", "values"),
    ("q", "k", "v"),
    ("Q", "K", "V"),
    ("Query", "Key", "Value"),
)
"""Names that differ in what they are made for alone, as parts of longer ones."""

SIZE = re.compile(
    r"(^|_)(dim|dims|size|width|heads?|len|length|tokens|scalar|channels|features|embd|embed|rank|groups?|rep|repeats|"
    r"window|layers?)(_|$)|^(n|d|num|dim)_?[a-z]+$|^[bntcdhelsBNTCDHELS]$|seqlen|hd$"
)
"""Names of sizes, without what stands in front of a dot."""

HEAD_SIZE = re.compile(
    r"(head_?dim|head_?size|dim_?head|size_?head|d_?head|hd|d_?k|head_width|query_pre_attn_scalar|per_head|kv_dim|"
    r"value_proj_dim)$|head_size|^d$|^D$|shape\[-1\]$|size\(-1\)$",
    re.IGNORECASE,
)
CONFIGS = ("config", "cfg", "args")
CONFIG_CLASS = re.compile(r"Config|Args|Params")
OF_VALUE = re.compile(r"value|^[wWx]?_?[vV]s?\b")
AXIS_SIZE = re.compile(r"^\w+\.(shape\[-?\d\]|size\(-?\d\))$")
MASK = re.compile(
    r"mask|hid(den|e)$|visible|allowed|future|causal|keep|band|valid|past|seen|attend|look|padd?(ed|ing)?$"
)


def definitions(code: Code, name: str) -> list[ast.stmt]:
    """The candidate's definition, and those of the file that it uses, directly or not, in this order."""
    known: dict[str, ast.stmt] = {}
    for statement in code.tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            known[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            known |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
    found: list[ast.stmt] = []
    waiting = [known[first]] if (first := name.partition(".")[0]) in known else list(code.tree.body)
    while waiting:
        statement = waiting.pop(0)
        if statement not in found:
            found.append(statement)
            names = (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            waiting += [known[one] for one in dict.fromkeys(names) if one in known]
    return found


def functions_around(code: Code, node: ast.AST) -> Iterator[ast.AST]:
    """The functions that a node stands in, from the inside."""
    while (node := code.function_of(node)) is not code.tree:
        yield node


def bound(code: Code, node: ast.AST) -> list[str]:
    """The names that are bound in the functions around a node and before it, the nearest ones first.

    In a script those that its statements bind.
    """
    names: dict[str, None] = {}
    place = code.span(node)[0]
    for function in list(functions_around(code, node)) or [code.tree]:
        for inner in reversed(list(ast.walk(function))):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and code.span(inner)[0] < place:
                names.setdefault(inner.id)
        if not isinstance(function, Function):
            continue
        args = function.args
        for one in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            names.setdefault(one.arg)
    names.pop("self", None)
    return list(names)


def class_of(code: Code, node: ast.AST) -> ast.ClassDef | None:
    """The class that a node stands in."""
    above: ast.AST | None = node
    while above is not None and not isinstance(above, ast.ClassDef):
        above = code.parents.get(above)
    return above


def attributes(code: Code, node: ast.AST) -> dict[str, ast.expr]:
    """What the class around a node sets on itself: ``{"self.scale": the expression}``."""
    return _set_by(class_of(code, node))


@lru_cache(maxsize=32)
def _set_by(holder: ast.ClassDef | None) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for inner in ast.walk(holder) if holder is not None else ():
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {dotted(part): inner.value for part in parts if dotted(part).startswith("self.")}
        if called(inner) == "register_buffer" and isinstance(inner, ast.Call) and len(inner.args) > 1:
            name = inner.args[0]
            if isinstance(name, ast.Constant):
                found[f"self.{name.value!s}"] = inner.args[1]
    return found


def is_layer(value: ast.expr) -> bool:
    """Whether an attribute holds something to be called: ``nn.Linear(...)``."""
    return isinstance(value, ast.Call) and called(value)[:1].isupper()


def unused_attributes(code: Code, node: ast.AST) -> list[str]:
    """Attributes that the class sets and reads nowhere, such as a projection that was forgotten."""
    holder = class_of(code, node)
    read = {
        dotted(inner)
        for inner in (ast.walk(holder) if holder is not None else ())
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load)
    }
    return [name for name in attributes(code, node) if name not in read]


def sizes(code: Code, node: ast.AST) -> list[str]:
    """What a size may be written as in the place of a node, those that name a head's width first."""
    names = bound(code, node)
    found = [name for name in names if is_size(name)]
    found += [name for name, value in attributes(code, node).items() if is_size(name) and not is_layer(value)]
    found += _of_configs(code, node)
    for function in functions_around(code, node):
        for inner in ast.walk(function):
            found += _size_in(code, inner)
    width = ".size(-1)" if ".size(" in code.text else ".shape[-1]"
    found += [f"{name}{width}" for name in names if any(siblings(name)) and name not in found]
    return sorted(dict.fromkeys(found), key=lambda name: (not HEAD_SIZE.search(name), bool(OF_VALUE.search(name))))


def _of_configs(code: Code, node: ast.AST) -> Iterator[str]:
    """Sizes among the fields of the file's configs, in the arguments that hold one: ``config.head_dim``."""
    classes = [one for one in code.tree.body if isinstance(one, ast.ClassDef)]
    for function in functions_around(code, node):
        assert isinstance(function, Function)
        for argument in function.args.args:
            said = "" if argument.annotation is None else dotted(argument.annotation)
            for holder in classes:
                if holder.name == said or (not said and argument.arg in CONFIGS and CONFIG_CLASS.search(holder.name)):
                    yield from (f"{argument.arg}.{field}" for field in _fields(holder) if is_size(field))


def _fields(holder: ast.ClassDef) -> Iterator[str]:
    """The names that a class annotates."""
    yield from (dotted(field.target) for field in holder.body if isinstance(field, ast.AnnAssign))


def _size_in(code: Code, node: ast.AST) -> Iterator[str]:
    """The node as it is written, if it is a size: of an axis, a quotient of two, or a member of a config."""
    if isinstance(node, ast.Subscript | ast.Call) and AXIS_SIZE.search(code.of(node)):
        yield code.of(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        yield f"({code.of(node)})"
    method = getattr(code.parents.get(node), "func", None) is node
    if isinstance(node, ast.Attribute) and not method and is_size(dotted(node)) and dotted(node).count(".") == 1:
        yield dotted(node)


def is_size(name: str) -> bool:
    """Whether a name says that it holds the size of an axis."""
    last = name.rpartition(".")[2]
    return bool(last and SIZE.search(last.lower() if last.isupper() else last))


def masks(code: Code, node: ast.AST) -> list[str]:
    """What a mask may be written as in the place of a node: variables and buffers that hold one, as they are used."""
    found: dict[str, None] = {}
    for name in bound(code, node):
        if is_named_mask(name):
            found.setdefault(name)
    for function in functions_around(code, node):
        for inner in ast.walk(function):
            if isinstance(inner, ast.Assign) and len(inner.targets) == 1 and is_mask(code, inner.value):
                name = dotted(inner.targets[0])
                if name and "." not in name and code.span(inner)[1] <= code.span(node)[0]:
                    found.setdefault(name)
    return list(found)


def is_mask(code: Code, node: ast.AST) -> bool:
    """Whether an expression reads as a mask: a triangle, a comparison, or a name that says so."""
    if isinstance(node, ast.Compare):
        return not any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return True
    if called(node) in ("tril", "triu", "tri", "logical_not", "logical_and", "logical_or", "bool"):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_mask(code, node.func.value) or bool(MASK.search(called(node)))
    if isinstance(node, ast.Call):
        return bool(MASK.search(called(node))) and called(node) != "masked_fill"
    if isinstance(node, ast.Subscript):
        return is_mask(code, node.value)
    if dotted(node).startswith("self.") and node in code.parents:
        value = attributes(code, node).get(dotted(node))
        by_another = value is not None and any(dotted(one).startswith("self.") for one in ast.walk(value))
        if value is not None and not by_another and is_mask(code, value):
            return True
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return is_mask(code, node.value)
    return is_named_mask(dotted(node))


def is_named_mask(name: str) -> bool:
    """Whether a name says that it holds a mask."""
    return bool(MASK.search(name.rpartition(".")[2]))


def siblings(name: str) -> Iterator[str]:
    """The same name for the others of query, key and value: ``k_proj`` and ``v_proj`` for ``q_proj``."""
    for triple in TRIPLES:
        for part in triple:
            pattern = rf"(?<![a-zA-Z]){part}(?![a-zA-Z])"
            if len(part) > 1:
                pattern = rf"(?<![a-z]){part}"
            elif re.fullmatch(rf"[a-z]{part}|{part}[a-z]?\d*", name) and len(name) > 1:
                pattern = part  # xq, wq, qh
            if re.search(pattern, name):
                yield from (re.sub(pattern, other, name, count=1) for other in triple if other != part)
                return


def names_of(nodes: Sequence[ast.AST]) -> set[str]:
    """Every dotted name that is read below some nodes."""
    return {dotted(inner) for node in nodes for inner in ast.walk(node)} - {""}
