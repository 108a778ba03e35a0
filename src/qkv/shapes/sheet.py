"""Sheet: the shapes of a candidate's own code, line by line, and the conditions that its sizes have to meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qkv.shapes.product import Product, Shape

LARGEST_LITERAL = 4
"""Numbers that code writes out as such: query, key and value in one array, pairs."""


@dataclass(frozen=True)
class Line:
    """One array that the code makes.

    Attributes:
        file: where the expression stands, as a person would name it.
        line: its line, from 1.
        code: the expression, in one line.
        makes: what it is assigned to; empty for a part of a larger expression.
        shape: the array's shape.
        products: the matrix products that it is made by, of one sequence and one head where these are axes.
        times: how often each of them is made.
    """

    file: str
    line: int
    code: str
    makes: str
    shape: Shape
    products: tuple[Product, ...] = ()
    times: int = 1


@dataclass(frozen=True)
class Rule:
    """A condition that sizes have to meet, found by not meeting it.

    Attributes:
        says: ``embed_dim must be a multiple of num_heads``.
        seen: what happened with other sizes.
    """

    says: str
    seen: str


@dataclass(frozen=True)
class Sheet:
    """All that is known of a candidate's shapes.

    Attributes:
        name: what it is called.
        file: its file; empty for an object.
        line: where it begins.
        sizes: the sizes that it was tried with by name, each axis its own.
        equal: names of sizes that are others: ``{"embed_dim": "heads*head_dim"}``.
        lines: what its code makes, in the order it does.
        rules: conditions that its sizes have to meet.
        free: what was tried beside and may be as one likes.
        warnings: where the user's own sizes would hide a mistake.
        why: why it could not be run; empty where it could.
        hint: what to change.
        detail: the end of its traceback.
    """

    name: str
    file: str = ""
    line: int = 0
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    equal: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    lines: tuple[Line, ...] = ()
    rules: tuple[Rule, ...] = ()
    free: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    why: str = ""
    hint: str = ""
    detail: str = ""

    @property
    def unnamed(self) -> tuple[Line, ...]:
        """Lines with an axis that is no size's, so that the table has a number there."""
        return tuple(
            line
            for line in self.lines
            if any(axis.isdigit() and int(axis) > LARGEST_LITERAL for axis in line.shape.axes)
        )

    @property
    def exit_code(self) -> int:
        """0 where it could be run, else 4."""
        return 4 if self.why else 0
