"""Assembling: layers and notes as one view; what doesn't fit is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from qkv.captures.beside import focus_of
from qkv.errors import ShapeError
from qkv.pictures.attention import LayerWeights
from qkv.pictures.view import AttentionView


def assembled(layers: Sequence[LayerWeights], *, title: str, notes: Sequence[str], **more: Any) -> AttentionView:
    """The view of layers. All have one size in it: where they differ, the commonest is kept and the others are noted.

    Args:
        layers: the layers.
        title: what is shown.
        notes: sentences on what is shown.
        more: other attributes of the view.

    Raises:
        ShapeError: there are no layers, or there are more or fewer tokens than keys.
    """
    counts = Counter(layer.heads[0].shape for layer in layers)
    if not counts:
        raise ShapeError("there is nothing to show: no layer has a head")
    shape = counts.most_common(1)[0][0]
    kept = [layer for layer in layers if layer.heads[0].shape == shape]
    sizes = [(layer.name, layer.heads[0].shape) for layer in layers if layer.heads[0].shape != shape]
    if sizes:
        left = ", ".join(f"{name} ({queries} x {keys})" for name, (queries, keys) in sizes)
        notes = [*notes, f"Left out, since they are of another size: {left}"]
    return AttentionView(layers=kept, title=title, notes=tuple(notes), focus=focus_of(kept), **more)
