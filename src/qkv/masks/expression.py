"""Masks written as text: ``causal & window(5) | prefix(3)``, read with Python's own grammar and never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Callable

from qkv.errors import SpecError, nearest
from qkv.masks.causal_mask import Causal
from qkv.masks.dilated_mask import Dilated
from qkv.masks.documents_mask import Documents
from qkv.masks.global_tokens_mask import GlobalTokens
from qkv.masks.makers import per_head
from qkv.masks.mask import Mask
from qkv.masks.no_mask import Everything
from qkv.masks.padding_mask import Padding
from qkv.masks.prefix_mask import Prefix
from qkv.masks.sliding_window import SlidingWindow

MASKS: dict[str, Callable[..., Mask]] = {
    "causal": Causal,
    "window": SlidingWindow,
    "prefix": Prefix,
    "dilated": Dilated,
    "global_tokens": GlobalTokens,
    "documents": Documents,
    "padding": Padding,
    "everything": Everything,
}
"""Every mask by the name it has in an expression."""


def parse_mask(text: str) -> Mask:
    """The mask that an expression describes. ``parse_mask(str(mask))`` is ``mask`` again.

    Raises:
        SpecError: the text is no expression of known masks with ``&``, ``|``, ``~``, brackets and whole numbers.
    """
    try:
        return _mask(ast.parse(text.strip(), mode="eval").body, text)
    except SpecError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            f"mask expression {text!r} can't be read. Write masks joined by &, | and ~, for instance: "
            '--mask "causal & window(5) | prefix(3)"'
        ) from None


def _mask(node: ast.expr, text: str) -> Mask:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _mask(left, text) & _mask(right, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _mask(left, text) | _mask(right, text)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return ~_mask(operand, text)
        case ast.Name(id=name):
            return _named(name, [], text)
        case ast.Call(func=ast.Name(id="per_head"), args=[ast.List(elts=masks)], keywords=[]):
            return per_head(_mask(one, text) for one in masks)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _named(name, [_number(arg, text) for arg in args], text)
    raise SpecError(f"mask expression {text!r}: {ast.unparse(node)!r} is no mask; known: {', '.join(MASKS)}")


def _named(name: str, numbers: list[int], text: str) -> Mask:
    if name not in MASKS:
        raise SpecError(f"mask expression {text!r}: no mask is called {name!r}; {nearest(name, MASKS)}")
    try:
        return MASKS[name](*numbers)
    except TypeError:
        need = "window, prefix, dilated and global_tokens take one whole number, the others none"
        raise SpecError(f"mask expression {text!r}: {name} was given {numbers or 'nothing'}; {need}") from None


def _number(node: ast.expr, text: str) -> int:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    raise SpecError(f"mask expression {text!r}: {ast.unparse(node)!r} should be a whole number")
