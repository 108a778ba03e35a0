"""The source: the syntax at a place, the line of it that matters, and where a number that it uses is set."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.adapters.recording import Operation, Place
from qkv.vocabulary import Stage

OF_STAGE = {
    Stage.SCALE: ("scale", "softmax_scale", "sm_scale"),
    Stage.MASK: ("attn_mask", "mask", "is_causal", "causal", "key_padding_mask", "diagonal"),
    Stage.SOFTMAX: ("dim", "axis", "dtype"),
    Stage.DROPOUT: ("dropout_p", "p", "training"),
}
"""Keywords of a call that say how a stage is done."""


@dataclass(frozen=True)
class Source:
    """A file of the candidate's.

    Attributes:
        text: what stands in it.
    """

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    def node(self, place: Place) -> ast.expr | None:
        """The expression at a place."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and _stands(node) == (
                place.line, place.column, place.end_line, place.end_column,
            ):  # fmt: skip
                return node
        return None

    def line_of(self, place: Place, stage: Stage | None) -> int:
        """The line of an expression that does what it does: of its operator, its method, or the keyword of a stage."""
        node = self.node(place)
        match node:
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if stage is not None and keyword.arg in OF_STAGE.get(stage, ()):
                        return keyword.value.lineno
                return node.func.end_lineno or place.line
            case ast.BinOp():
                return node.right.lineno
            case _:
                return place.line

    def return_behind(self, place: Place) -> int | None:
        """The line of the first return statement from a place on in its function; None where there is none."""
        for scope in self._scopes("", place):
            lines = [node.lineno for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None]
            behind = sorted(line for line in lines if line >= place.line)
            if behind:
                return behind[0]
        return None

    def definition(self, place: Place, operation: Operation, right: Sequence[float]) -> int | None:
        """The line on which a number is set that an operation computes with, where it is none of the right ones.

        Args:
            place: where the operation stands.
            operation: the operation.
            right: what the number may be.
        """
        names = [
            ast.unparse(side)
            for side, given in _operands(self.node(place), operation)
            if isinstance(side, ast.Name | ast.Attribute)
            and isinstance(given, int | float)
            and not any(math.isclose(abs(given), of, rel_tol=1e-6) for of in right)
        ]
        lines = {line for name in names for line in self._settings(name, place)}
        return lines.pop() if len(lines) == 1 else None

    def _settings(self, name: str, place: Place) -> Iterator[int]:
        """The lines on which a name or an attribute is set, in the scope that the place sees."""
        for scope in self._scopes(name, place):
            found = [
                line for line in _assignments(scope, name) if "." in name or line < place.line or scope is self.tree
            ]
            if found:
                yield from found
                return

    def _scopes(self, name: str, place: Place) -> Iterator[ast.AST]:
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)
            and node.lineno <= place.line <= (node.end_lineno or node.lineno)
        ]
        kind = ast.ClassDef if "." in name else ast.FunctionDef
        yield from (node for node in reversed(around) if isinstance(node, kind))
        yield self.tree


def read(file: str) -> Source | None:
    """The source of a file; None where it can't be read or is no Python."""
    try:
        source = Source(Path(file).read_text(encoding="utf-8-sig"))
        _ = source.tree
    except (OSError, ValueError, SyntaxError):
        return None
    return source


def _stands(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _operands(node: ast.expr | None, operation: Operation) -> Iterator[tuple[ast.expr, object]]:
    """What an operation computes with, each as it is written and as it was."""
    match node:
        case ast.BinOp():
            yield from zip((node.left, node.right), operation.arguments, strict=False)
        case ast.AugAssign():
            yield from zip((node.target, node.value), operation.arguments, strict=False)
        case ast.Call() if operation.name in ("mul", "div", "pow"):
            method = isinstance(node.func, ast.Attribute) and len(node.args) < len(operation.arguments)
            yield from zip(node.args, operation.arguments[1 if method else 0 :], strict=False)
        case ast.Call():
            for keyword in node.keywords:
                if keyword.arg in OF_STAGE[Stage.SCALE]:
                    yield keyword.value, operation.keywords.get(keyword.arg)


def _assignments(scope: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=targets):
                whole = targets
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                whole = [target]
            case _:
                continue
        if any(ast.unparse(target) == name for target in whole):
            yield node.lineno
