"""AttentionSpec: what an attention is meant to compute. Pure data: no arrays, no framework."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from qkv.errors import SpecError
from qkv.masks import Everything, Mask, QueryOffset as QueryOffset
from qkv.masks.places import position_of_first
from qkv.positions import Alibi, RelativeBias, Rope
from qkv.spec.sentence import describe
from qkv.vocabulary import EmptyRow


@dataclass(frozen=True)
class AttentionSpec:
    """What each stage is meant to do. Every default is the plain choice.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key/value heads; None means as many as query heads. Query head ``h`` reads key/value head
            ``h // group_size``.
        head_dim: channels of one head's query and key. None where it isn't known yet: it's then read off the candidate.
        value_dim: channels of one head's value; None means ``head_dim``.
        embed_dim: channels of one token of ``x``.
        scale: what the scores are multiplied by; None means ``1/sqrt(head_dim)``.
        mask: who may attend to whom.
        query_offset: absolute position of the first query: ``bottom_right`` is ``key_len - query_len``, ``top_left`` 0.
        rope: rotation of query and key by position.
        alibi: slope times distance, taken off the scores.
        relative_bias: a number per head and distance, added to the scores.
        softcap: ``c`` in ``c * tanh(scores / c)``.
        sinks: whether each head has a learned score that takes weight and gives no value (gpt-oss).
        qk_norm: ``head`` normalises query and key per head, ``width`` over all heads together.
        dropout_p: probability that a weight is dropped in training; evaluation drops none.
        projection_bias: whether ``q_proj``, ``k_proj``, ``v_proj`` add a bias.
        out_proj: whether the merged heads go through an output projection.
        empty_row: what a query gets that may attend to nothing.

    Raises:
        SpecError: a field contradicts another one; the message says what to write instead.
    """

    num_heads: int = 1
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    embed_dim: int | None = None
    scale: float | None = None
    mask: Mask = field(default_factory=Everything)
    query_offset: QueryOffset = "bottom_right"
    rope: Rope | None = None
    alibi: Alibi | None = None
    relative_bias: RelativeBias | None = None
    softcap: float | None = None
    sinks: bool = False
    qk_norm: Literal["head", "width"] | None = None
    dropout_p: float = 0.0
    projection_bias: bool = False
    out_proj: bool = True
    empty_row: EmptyRow = "zero"

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "head_dim", "value_dim", "embed_dim"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise SpecError(f"{name} is {number!r}, and must be a whole number of 1 or more")
        if self.num_heads % self.kv_heads:
            # Nobody has more heads than this, and the message must not take long where a number is mistyped.
            fitting = [str(n) for n in range(1, min(self.num_heads, 4096) + 1) if self.num_heads % n == 0]
            raise SpecError(
                f"num_kv_heads is {self.kv_heads} for num_heads {self.num_heads}: every key/value head serves the same "
                f"number of query heads, so num_kv_heads must divide num_heads. Write one of: {', '.join(fitting)}"
            )
        self._check_choices()
        self._check_numbers()

    def _check_choices(self) -> None:
        choices = {"empty_row": ("zero", "nan", "uniform"), "qk_norm": (None, "head", "width")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                known = ", ".join("null" if choice is None else choice for choice in allowed)
                raise SpecError(f"{name} is {getattr(self, name)!r}; write one of: {known}")
        if isinstance(self.query_offset, str) and self.query_offset not in ("bottom_right", "top_left"):
            raise SpecError(
                f"query_offset is {self.query_offset!r}; write 'bottom_right', 'top_left' or the first query's position"
            )

    def _check_numbers(self) -> None:
        if self.scale is not None and not math.isfinite(self.scale):
            raise SpecError(f"scale is {self.scale}, and must be a finite number (null means 1/sqrt(head_dim))")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise SpecError(f"softcap is {self.softcap}, and must be above 0; write null for no softcap")
        if not 0 <= self.dropout_p < 1:
            raise SpecError(f"dropout_p is {self.dropout_p}, and must be at least 0 and below 1")
        if self.rope and self.head_dim and self.rope.rotary_dims(self.head_dim) > self.head_dim:
            raise SpecError(f"rope dims is {self.rope.dims}, more than the head's {self.head_dim} channels")
        if self.rope and self.head_dim and self.rope.rotary_dims(self.head_dim) % 2:
            raise SpecError(f"rope turns pairs of channels, and head_dim is {self.head_dim}: give rope an even 'dims'")
        slopes = self.alibi.slopes if self.alibi else None
        table = self.relative_bias.table if self.relative_bias else None
        for name, rows in (("alibi slopes", slopes), ("relative_bias rows", table)):
            if rows is not None and len(rows) != self.num_heads:
                raise SpecError(f"there are {len(rows)} {name} for num_heads {self.num_heads}; give one per query head")

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def group_size(self) -> int:
        """How many query heads share one key/value head."""
        return self.num_heads // self.kv_heads

    def scale_for(self, head_dim: int) -> float:
        """The factor on the scores, for heads of ``head_dim`` channels."""
        return head_dim**-0.5 if self.scale is None else self.scale

    def offset_for(self, query_len: int, key_len: int) -> int:
        """Absolute position of the first query."""
        return position_of_first(self.query_offset, query_len, key_len)

    def masks(self, kind: type[Mask]) -> bool:
        """Whether the mask, or any part of it, is of this kind."""
        return any(isinstance(part, kind) for part in self.mask.parts())

    def __str__(self) -> str:
        return describe(self)

    def but(self, **changes: Any) -> AttentionSpec:
        """The same spec with some fields changed."""
        return dataclasses.replace(self, **changes)
