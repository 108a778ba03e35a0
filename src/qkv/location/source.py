"""The source: the syntax at a place, the line of it that matters, and where what it uses is set."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.adapters.code_lines import code_lines
from qkv.adapters.recording import Place
from qkv.vocabulary import Stage

OF_STAGE = {
    Stage.SCALE: ("scale", "softmax_scale", "sm_scale", "alpha"),
    Stage.BIAS: ("beta",),
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
        others: the other files that were watched.
    """

    text: str
    others: Sequence[Source] = ()

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return code_lines(self.text)

    def node(self, place: Place) -> ast.expr | None:
        """The expression at a place."""
        at = place.line, place.column, place.end_line, place.end_column
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and at == (
                node.lineno, node.col_offset, node.end_lineno, node.end_col_offset,
            ):  # fmt: skip
                return node
        return None

    def names_at(self, place: Place) -> list[str]:
        """The names in the expression at a place, as often as they stand there."""
        node = self.node(place)
        return [one.id for one in ([] if node is None else ast.walk(node)) if isinstance(one, ast.Name)]

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
        function = self.function(place)
        lines = [] if function is None else [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)]
        return min((line for line in lines if line >= place.line), default=None)

    def discards(self, place: Place) -> bool:
        """Whether nothing is done with what an expression gives: it is a statement by itself."""
        node = self.node(place)
        return any(isinstance(one, ast.Expr) and one.value is node for one in ast.walk(self.tree) if node is not None)

    def never_called(self, but: Collection[str]) -> bool:
        """Whether the file has functions that it names nowhere, some aside: those that are known to be called."""
        named = {last_name(node) for node in ast.walk(self.tree) if isinstance(node, ast.Name | ast.Attribute)}
        functions = {node.name for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        return any(not name.startswith("__") for name in functions - named - {*but})

    def loop_around(self, place: Place) -> int | None:
        """The line of the innermost loop around an expression in its function whose variable it is written with."""
        names, function = {*self.names_at(place)}, self.function(place)
        loops = [
            loop.lineno
            for loop in ([] if function is None else ast.walk(function))
            if isinstance(loop, ast.For)
            and loop.lineno <= place.line <= (loop.end_lineno or loop.lineno)
            and names.intersection(one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name))
        ]
        return max(loops, default=None)

    def used_behind(self, place: Place, used_at: Place | None) -> int | None:
        """The line on which is used what a place makes; None where it isn't told.

        Args:
            place: the place.
            used_at: where an operation takes it. Elsewhere than in the place's function, what hands it on is meant.
        """
        if used_at is not None and (used_at.file, used_at.function) == (place.file, place.function):
            return self.line_of(used_at, None)
        function = self.function(place)
        lines = [
            node.lineno
            for node in ([] if function is None else ast.walk(function))
            if isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) == place.target
            and node.lineno > place.end_line
        ]
        return min(lines, default=None) or self.return_behind(place)

    def calls(self, function: ast.FunctionDef) -> Iterator[ast.Call]:
        """The calls of a function in the file, from elsewhere, also by a name that is set with it among others."""
        inside = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        names = {function.name}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call | ast.IfExp):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id == function.name for one in _parts(node.value)):
                    names |= {last_name(target) for target in targets}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and last_name(node.func) in names and node.lineno not in inside:
                yield node

    def around(self, place: Place) -> list[ast.AST]:
        """The functions and classes around a place, the outermost first."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.lineno <= place.line <= (node.end_lineno or node.lineno)
        ]

    def function(self, place: Place) -> ast.FunctionDef | None:
        """The innermost function around a place; None where it stands in none."""
        return next((node for node in reversed(self.around(place)) if isinstance(node, ast.FunctionDef)), None)


def read(file: str) -> Source | None:
    """The source of a file; None where it can't be read or is no Python."""
    try:
        source = Source(Path(file).read_text(encoding="utf-8-sig"))
        _ = source.tree
    except (OSError, ValueError, SyntaxError):
        return None
    return source


def _parts(value: ast.Call | ast.IfExp) -> list[ast.expr]:
    """What a call hands over, or the two choices: ``interfaces.get(name, eager)``, ``eager if plain else fused``."""
    return value.args if isinstance(value, ast.Call) else [value.body, value.orelse]


def last_name(node: ast.AST) -> str:
    """The last part of a name: ``scale`` of ``self.scale``; empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def laid_out(node: ast.expr) -> str | None:
    """The name of which an expression takes a part, or calls methods; None for any other expression."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inside)) | ast.Attribute(value=inside) | ast.Subscript(value=inside):
                node = inside
            case ast.Name(id=name):
                return name
            case _:
                return None
