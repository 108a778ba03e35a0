"""Known masks: the rule of a spec and each of its parts, as booleans, also for the square of another length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.masks import Positions, SlidingWindow
from qkv.oracle import Run
from qkv.oracle.inputs import Array
from qkv.recognition.known import PAIRS

KnownMask = tuple[str, tuple[str, ...], Array]
"""Name, axes and booleans, True = may attend."""


def masks_of(run: Run, square: int | None = None) -> Iterator[KnownMask]:
    """The masks that an attention may make.

    Args:
        run: what it computes.
        square: number of tokens of a mask that was made ahead for longer texts; None for this run's own lengths.
    """
    inputs = run.inputs
    if square is None:
        if run.may_attend is not None:  # it is where a fault works on all of a batch at once
            yield "mask", PAIRS, np.broadcast_to(run.may_attend, run.scores.shape)
        if inputs.may_attend is not None:
            yield "mask that was handed over", PAIRS, np.broadcast_to(inputs.may_attend, run.scores.shape)
        if inputs.is_token is not None:
            yield "padding", ("batch", "key"), np.asarray(inputs.is_token)
        at = run.positions()
    else:
        position = np.arange(square)
        at = Positions.of(position, position)
    for part in run.spec.mask.parts():
        if square is not None and getattr(at, "query_document", None) is None and run.inputs.document is not None:
            continue
        allowed = {str(part): part.allows(at)}
        if isinstance(part, SlidingWindow):  # which code makes of two sides
            allowed["not too far back"] = at.query - at.key < part.size
            allowed["not too far ahead"] = at.key - at.query < part.size
        for name, mask in allowed.items():
            yield name, PAIRS, np.broadcast_to(mask, np.broadcast_shapes(np.shape(mask), (1, 1, 1, 1)))
