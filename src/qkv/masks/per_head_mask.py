"""Per head: each query head has a mask of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

import array_api_compat

from qkv.errors import ShapeError
from qkv.masks.intervals import Reach, Span, intersection, union
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class PerHead(Mask):
    """One mask for each query head, in their order."""

    masks: tuple[Mask, ...]

    def operands(self) -> tuple[Mask, ...]:
        """The masks of the heads."""
        return self.masks

    def allows(self, at: Positions) -> Array:
        """What the mask of each head says."""
        return reduce(or_, self._shares(at))

    def _shares(self, at: Positions) -> Iterator[Array]:
        """What each mask says of its heads, and False of all others; equal masks are asked once."""
        head = at.head
        if head is None:
            xp, device = array_api_compat.array_namespace(at.query), array_api_compat.device(at.query)
            head = xp.arange(len(self.masks), device=device)[None, :, None, None]
        for mask in dict.fromkeys(self.masks):
            own = reduce(or_, (head == number for number, other in enumerate(self.masks) if other == mask))
            yield own & mask.allows(at)

    def reach(self, span: Span, at: Positions | None = None) -> Reach:
        """All see what they see in every head, and some what they see in one."""
        reaches = [mask.reach(span, at) for mask in dict.fromkeys(self.masks)]
        return Reach(reduce(intersection, (reach.every for reach in reaches)), union(reach.some for reach in reaches))

    @property
    def varies(self) -> tuple[bool, bool]:
        """By head, unless the masks are all alike."""
        return super().varies[0], len(set(self.masks)) > 1

    def alone(self, sequence: int, head: int) -> Mask:
        """The mask of one head."""
        if head not in range(len(self.masks)):
            raise ShapeError(f"per_head holds masks of {len(self.masks)} query heads, and none for head {head}")
        return self.masks[head].alone(sequence, head)

    def must_fit(self, key_len: int | None, *, batch: int | None = None, num_heads: int | None = None) -> None:
        """Nothing, where there is a mask for each query head, and each mask fits."""
        if num_heads is not None and len(self.masks) != num_heads:
            raise ShapeError(
                f"per_head holds masks of {len(self.masks)} query heads, and there are {num_heads}: one for each"
            )
        super().must_fit(key_len, batch=batch, num_heads=num_heads)

    def __str__(self) -> str:
        return f"per_head([{', '.join(map(str, self.masks))}])"
