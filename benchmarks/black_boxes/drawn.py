"""What a drawn black box computes, in words and numbers of its own: the truth that an answer is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Layout = Literal["BHTD", "BTHD"]
Offset = Literal["top_left", "bottom_right"] | int

LONGEST = 64
"""Tokens that a box with a fixed table takes at most, as a registered buffer would."""


@dataclass(frozen=True)
class Visible:
    """Who may attend to whom. What is None hides nothing; the prefix is seen whatever the others hide.

    Attributes:
        causal: keys after the query are hidden.
        window: keys at this distance or more are hidden.
        prefix: this many first keys are seen by all; without ``causal`` they are all that is seen.
        starts: first position of each document after the first; a query sees its own document.
        step: only keys at a multiple of this distance are seen.
        pairs: which row sees which column, ``(LONGEST, LONGEST)``; no rule is behind it.
    """

    causal: bool = False
    window: int | None = None
    prefix: int | None = None
    starts: tuple[int, ...] = ()
    step: int | None = None
    pairs: Any = None

    def __str__(self) -> str:
        parts = ["causal"] if self.causal else []
        parts += [
            f"{name} {value}" for name in ("window", "prefix", "starts", "step") if (value := getattr(self, name))
        ]
        return " ".join([*parts, *(["pairs"] if self.pairs is not None else [])]) or "everything"


@dataclass(frozen=True)
class Rotation:
    """Rope inside the box.

    Attributes:
        pairing: ``halves`` or ``adjacent``.
        base: base of the geometric row of frequencies.
        dims: how many channels turn, the first ones.
        factor: what every frequency is divided by.
    """

    pairing: Literal["halves", "adjacent"]
    base: float
    dims: int
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Drawn:
    """One black box.

    Attributes:
        seed: what it was drawn from.
        layout: order of the axes.
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: channels of a query and a key.
        value_dim: channels of a value.
        scale: factor on the scores.
        tiled: whether query head ``h`` reads kv head ``h % num_kv_heads`` instead of ``h // group_size``.
        visible: the mask.
        offset: position of the first query.
        softcap: ``c`` in ``c * tanh(scores / c)``.
        slopes: alibi's slope of each head.
        slopes_name: ``paper``, ``geometric`` (8/n for every n) or ``other``.
        signed: whether alibi rewards keys ahead of the query.
        distance_bias: ``(head, 2 * reach + 1)``, a number per clipped distance ``key - query``.
        place_bias: ``(head, LONGEST, LONGEST)``, a number per row and column.
        sinks: a score per head that takes weight and gives no value.
        rope: rotation of query and key.
        softmax_base: e, or 2 for kernels that use ``exp2`` and leave the factor out.
        half_inside: whether the softmax runs in float16.
        dropout_p: share of weights dropped in every call.
        empty_row: what a row without keys gets.
        head_order: which head each output head is.
        channel_order: ``(head, value_dim)``: which value channel each output channel is.
    """

    seed: int
    layout: Layout
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    tiled: bool = False
    visible: Visible = field(default_factory=Visible)
    offset: Offset = "top_left"
    softcap: float | None = None
    slopes: tuple[float, ...] | None = None
    slopes_name: str = ""
    signed: bool = False
    distance_bias: Any = None
    place_bias: Any = None
    sinks: tuple[float, ...] | None = None
    rope: Rotation | None = None
    softmax_base: Literal["e", "2"] = "e"
    half_inside: bool = False
    dropout_p: float = 0.0
    empty_row: Literal["zero", "nan", "uniform"] = "zero"
    head_order: tuple[int, ...] | None = None
    channel_order: Any = None

    @property
    def given(self) -> dict[str, int]:
        """The sizes that a caller would say."""
        names = ("num_heads", "num_kv_heads", "head_dim", "value_dim")
        return {name: getattr(self, name) for name in names}

    def first_position(self, query_len: int, key_len: int) -> int:
        """Position of the first query."""
        if self.offset == "bottom_right":
            return key_len - query_len
        return 0 if self.offset == "top_left" else self.offset

    def __str__(self) -> str:
        sizes = f"seed {self.seed}: {self.layout} {self.num_heads}/{self.num_kv_heads} heads of {self.head_dim}"
        said = [f"{sizes} and {self.value_dim}, scale {self.scale:.6g}, {self.visible}, {self.offset}"]
        said += ["tiled"] if self.tiled else []
        said += [f"softcap {self.softcap:.4g}"] if self.softcap else []
        said += [f"{self.slopes_name} slopes{' signed' if self.signed else ''}"] if self.slopes else []
        said += [str(self.rope)] if self.rope else []
        said += [f"base {self.softmax_base}"] if self.softmax_base != "e" else []
        named = ("distance_bias", "place_bias", "sinks", "head_order", "channel_order")
        said += [name.replace("_", " ") for name in named if getattr(self, name) is not None]
        said += [name.replace("_", " ") for name in ("half_inside", "dropout_p") if getattr(self, name)]
        return ", ".join([*said, *([f"empty row {self.empty_row}"] if self.empty_row != "zero" else [])])
