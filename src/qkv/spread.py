"""Spread: which rows are wrong, in words. It orders the suspects and tells a reader where to look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qkv.comparison import Bools


def describe_spread(wrong: Bools, judged: Bools, heads: Bools | None = None) -> str:
    """One clause on which rows are wrong.

    Args:
        wrong: ``(batch, query, head)``.
        judged: rows that count.
        heads: the heads that are wrong, ``(head,)``, where rows are of all heads together.
    """
    if not wrong.any():
        return "every row is right"
    parts = [_queries(_any(wrong, 2), _any(judged, 2))]
    parts += _subset("head", _any(wrong, (0, 1)) if heads is None else heads)
    parts += _subset("sequence", _any(wrong, (1, 2)))
    return ", ".join(parts)


def _any(rows: Bools, axes: int | tuple[int, ...]) -> Bools:
    """Whether any is true along these axes. An array always, where NumPy's types allow for a single boolean."""
    return np.asarray(rows.any(axis=axes))


def _queries(wrong: Bools, judged: Bools) -> str:
    per_query = _any(wrong, 0)
    right = [int(query) for query in np.flatnonzero(~per_query & _any(judged, 0))]
    bad = [int(query) for query in np.flatnonzero(per_query)]
    if not right:
        return "every row is wrong" if len(bad) > 1 else "the only row is wrong"
    if right == [0]:
        return "only row 0 is right"
    if right == [len(per_query) - 1]:
        return "only the last row is right"
    if bad == list(range(bad[0], len(per_query))):
        return f"rows from {bad[0]} on are wrong"
    return f"{'row' if len(bad) == 1 else 'rows'} {_listed(bad)} {'is' if len(bad) == 1 else 'are'} wrong"


def _subset(name: str, wrong: Bools) -> list[str]:
    bad = [int(place) for place in np.flatnonzero(wrong)]
    if len(bad) == len(wrong):
        return []
    return [f"only in {name}{'' if len(bad) == 1 else 's'} {_listed(bad)} of {len(wrong)}"]


def _listed(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return (shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}") + more
