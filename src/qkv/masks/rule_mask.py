"""Rule: any function of the positions is a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qkv.errors import SpecError
from qkv.masks.mask import Mask
from qkv.masks.places import Array, Positions


@dataclass(frozen=True)
class Rule(Mask):
    """What a function of the user's says. Nothing is known of it without asking for every pair.

    Attributes:
        function: from the positions of queries and keys, arrays that broadcast to each other, to booleans that
            broadcast too. Two rules are equal if their functions are.
    """

    function: Callable[[Array, Array], Array]

    def allows(self, at: Positions) -> Array:
        """What the function says."""
        said = self.function(at.query, at.key)
        dtype = str(getattr(said, "dtype", type(said).__name__))
        if not dtype.removeprefix("torch.").startswith("bool"):
            raise SpecError(f"{self} gave {dtype}, and must give booleans, True = may attend. Compare: score > 0")
        return said & at.everywhere

    def __str__(self) -> str:
        return f"rule({getattr(self.function, '__name__', self.function)})"
