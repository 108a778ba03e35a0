"""Kinds of operations, by the names that a recording has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

EMPTY = frozenset(
    {"ones", "zeros", "full", "empty", "eye", "ones_like", "zeros_like", "full_like", "empty_like"}
    | {"new_zeros", "new_ones", "new_full", "new_empty"}
)
"""Operations that make an array without any content of its own: what is made of it is judged."""

WRAPPING = frozenset({"tensor", "as_tensor", "scalar_tensor", "array", "asarray"})
"""Operations that make an array of what is written."""

TELLING = frozenset({"all", "any", "isnan", "isinf", "isfinite", "count_nonzero"})
"""Operations that only tell something of an array: of a right one they can't tell anything wrong."""

LAYING_OUT = frozenset(
    {
        "getitem",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "expand",
        "to",
        "bool",
        "T",
        "mT",
        "transpose",
        "permute",
        "flatten",
    }
)
"""Operations that only hand an array on in another shape or kind."""

ASSEMBLING = frozenset({"setitem", "cat", "stack", "index_copy", "copy", "split", "chunk", "unbind"})
"""Operations that lay parts together, or take them apart: what they make may be known only when it is whole."""

TURNING = frozenset({"bitwise_not", "logical_not"})
"""Operations that make of a mask its opposite."""

GROUPING = frozenset({"view", "reshape", "flatten", "unflatten"})
"""Operations that group axes as they lie in memory."""

COPYING = frozenset({"contiguous", "clone", "copy", "ascontiguousarray"})
"""Operations that lay an array out anew in memory, as it is."""

REPEATING = frozenset({"repeat", "repeat_interleave", "tile", "expand"})
"""Operations that make several of one: of heads, the groups."""

MULTIPLYING = frozenset({"matmul", "baddbmm", "scaled_dot_product_attention"})
"""Operations that multiply the last two axes of what they are given, and go through the others."""

ALONG = frozenset({"softmax", "log_softmax", "logsumexp", "max", "amax", "sum"})
"""Operations along an axis, which may be their second argument."""

CASTING = frozenset({"to", "type_as"})
"""Operations that make of an array the same in another precision, which another array may say."""

HIDING = frozenset({"where", "masked_fill", "add", "setitem"})
"""Operations by which scores are hidden."""

JOINING = frozenset({"add", "sub", "bitwise_or", "bitwise_and", "logical_or", "logical_and"})
"""Operations that make one mask of two."""

COMPARING: Mapping[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
"""Operations that make a mask of two arrays, or of an array and a number; what does the same in NumPy."""

FILLING = frozenset({"full", "full_like", "new_full"})
"""Operations that fill an array with one number."""

DROPPING = frozenset({"dropout", "scaled_dot_product_attention"})
"""Operations that may drop weights."""
