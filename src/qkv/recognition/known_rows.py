"""Known rows: arrays of one query and the keys that it may attend to, as loops over tokens cut them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from qkv.oracle import Run
from qkv.recognition.known import Known


def cut(knowns: Iterable[Known], run: Run) -> Iterator[Known]:
    """Each known array that has keys, cut to those that one query sees; for each query, where they are a stretch."""
    stretches = dict(visible_stretches(run))
    for known in knowns:
        if "key" not in known.axes or known.whole:
            continue
        array, keys = np.asarray(known.array), known.axes.index("key")
        if array.shape[keys] != run.key.shape[2]:
            continue
        for query, (first, end) in stretches.items():
            part = np.take(array, range(first, end), axis=keys)
            at = {"key": (first, end)}
            if "query" not in known.axes:
                yield replace(known, array=part, maskable=False, stretch=at)
                continue
            place = known.axes.index("query")
            axes = (*known.axes[:place], *known.axes[place + 1 :])
            row, fixed = np.take(part, query, axis=place), {"query": query}
            yield replace(known, axes=axes, array=row, maskable=False, fixed=fixed, stretch=at)


def visible_stretches(run: Run) -> Iterator[tuple[int, tuple[int, int]]]:
    """Queries, by number, whose visible keys are some of all that follow each other in every sequence and head."""
    visible = np.broadcast_to(run.may_attend, run.scores.shape)
    for query in range(visible.shape[2]):
        rows = visible[:, :, query]
        keys = np.flatnonzero(rows[0, 0])
        if not (rows == rows[0, 0]).all() or not 0 < len(keys) < visible.shape[3]:
            continue
        if keys[-1] - keys[0] + 1 == len(keys):
            yield query, (int(keys[0]), int(keys[-1]) + 1)
