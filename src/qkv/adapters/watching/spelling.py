"""One name for an operation, however it is spelled: as an operator, a function or a method, in torch or in NumPy."""

from __future__ import annotations

from typing import Any

_ALIASES = {
    **dict.fromkeys(("mm", "bmm", "mv"), "matmul"),
    **dict.fromkeys(("multiply", "imul"), "mul"),
    **dict.fromkeys(("divide", "true_divide", "truediv", "itruediv", "idiv"), "div"),
    **dict.fromkeys(("subtract", "isub"), "sub"),
    **dict.fromkeys(("power", "ipow", "float_power"), "pow"),
    **dict.fromkeys(("concatenate", "concat"), "cat"),
    **dict.fromkeys(("swapaxes", "swapdims"), "transpose"),
    **dict.fromkeys(("amax", "maximum.reduce"), "max"),
    **dict.fromkeys(("amin", "minimum.reduce"), "min"),
    **dict.fromkeys(("and", "iand"), "bitwise_and"),
    **dict.fromkeys(("or", "ior"), "bitwise_or"),
    **dict.fromkeys(("xor", "ixor"), "bitwise_xor"),
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "equal": "eq",
    "not_equal": "ne",
    "invert": "bitwise_not",
    "iadd": "add",
    "imatmul": "matmul",
    "floordiv": "floor_divide",
    "ifloordiv": "floor_divide",
    "mod": "remainder",
    "imod": "remainder",
    "negative": "neg",
    "absolute": "abs",
    "clip": "clamp",
    "moveaxis": "movedim",
    "add.reduce": "sum",
    "multiply.reduce": "prod",
    "logical_and.reduce": "all",
    "logical_or.reduce": "any",
    "add.accumulate": "cumsum",
    "special_softmax": "softmax",
    "special_log_softmax": "log_softmax",
}
_REFLECTED = {
    **{f"r{name}": name for name in ("add", "sub", "mul", "div", "pow", "matmul", "mod", "and", "or", "xor")},
    "rtruediv": "div",
    "rfloordiv": "floor_divide",
    "rsub": "sub",
}
_CHANGING = {
    *("setitem", "copyto", "put", "putmask", "place", "fill_diagonal", "put_along_axis", "fill"),
    *("iadd", "isub", "imul", "itruediv", "idiv", "ipow", "imatmul", "ifloordiv", "imod", "iand", "ior", "ixor"),
}
"""What changes its first argument and has no name that ends with an underscore."""


def spelled(name: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...], bool]:
    """The one name of an operation, its arguments in that one's order, and whether it changes its first in place.

    Args:
        name: what the framework calls it: ``__rsub__``, ``masked_fill_``, ``maximum.reduce``.
        args: its arguments by position.
    """
    double = name.startswith("__") and name.endswith("__")
    bare = name[2:-2] if double else name
    in_place = not double and bare.endswith("_") and not bare.endswith("__")
    in_place |= bare in _CHANGING or bare.endswith(".at")
    bare = bare.rstrip("_") or bare
    if bare in _REFLECTED and len(args) > 1 and (double or bare == "rsub"):
        bare, args = _REFLECTED[bare], (args[1], args[0], *args[2:])
    return _ALIASES.get(bare, bare), args, in_place
