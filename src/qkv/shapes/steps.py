"""What each stage does to shapes. One function a stage, as in the oracle, with lengths in the place of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qkv.errors import ShapeError
from qkv.shapes.product import Product, Shape
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class Sizes:
    """Every length that a shape can be made of."""

    batch: int
    heads: int
    kv_heads: int
    query: int
    key: int
    dim: int
    value_dim: int
    embed: int | None
    out_proj: bool

    def shape(self, *axes: str) -> Shape:
        """The shape with these axes; ``head*dim`` is the two side by side."""
        return Shape(axes, tuple(self._size(axis) for axis in axes))

    def _size(self, axis: str) -> int:
        if "*" in axis:
            heads, dim = axis.split("*")
            return self._size(heads) * self._size(dim)
        sizes: dict[str, int | None] = {
            "batch": self.batch,
            "head": self.heads,
            "kv_head": self.kv_heads,
            "query": self.query,
            "key": self.key,
            "dim": self.dim,
            "value_dim": self.value_dim,
            "embed": self.embed,
        }
        size = sizes[axis]
        if size is None:
            raise ShapeError(f"the size of {axis} isn't known; pass embed_dim")
        return size

    @property
    def value(self) -> str:
        """Name of the value's channels: ``dim`` where they are as many as the query's."""
        return "dim" if self.value_dim == self.dim else "value_dim"


Step = tuple[tuple[Product, ...], Mapping[str, Shape], str]
"""The matrix products of a stage, the shape of each tensor it makes, and a note where there is no product."""


def _project(s: Sizes) -> Step:
    if s.embed is None:
        makes = {
            "query": s.shape("batch", "head", "query", "dim"),
            "key": s.shape("batch", "kv_head", "key", "dim"),
            "value": s.shape("batch", "kv_head", "key", s.value),
        }
        return (), makes, "query, key and value are given"
    plan = {"query": ("query", "head*dim"), "key": ("key", "kv_head*dim"), "value": ("key", f"kv_head*{s.value}")}
    products = tuple(
        Product(s.shape(token, "embed"), s.shape("embed", width), name, s.batch)
        for name, (token, width) in plan.items()
    )
    return products, {name: s.shape("batch", token, width) for name, (token, width) in plan.items()}, ""


def _heads(s: Sizes) -> Step:
    shared = s.heads // s.kv_heads
    note = "split into heads" if s.embed is not None else "as given"
    if shared > 1:
        note += f"; each key/value head is read by {shared} query heads"
    return (), _query_key_value(s), note


def _query_key_value(s: Sizes) -> dict[str, Shape]:
    return {
        "query": s.shape("batch", "head", "query", "dim"),
        "key": s.shape("batch", "head", "key", "dim"),
        "value": s.shape("batch", "head", "key", s.value),
    }


def _position(s: Sizes) -> Step:
    turned = _query_key_value(s)
    return (), {"query": turned["query"], "key": turned["key"]}, "query and key turned"


def _scores(s: Sizes) -> Step:
    product = Product(s.shape("query", "dim"), s.shape("dim", "key"), "scores", s.batch * s.heads)
    return (product,), {"scores": s.shape("batch", "head", "query", "key")}, ""


def _elementwise(note: str, *makes: str) -> Callable[[Sizes], Step]:
    def step(s: Sizes) -> Step:
        return (), {name: s.shape("batch", "head", "query", "key") for name in makes}, note

    return step


def _mix(s: Sizes) -> Step:
    product = Product(s.shape("query", "key"), s.shape("key", s.value), "context", s.batch * s.heads)
    return (product,), {"context": s.shape("batch", "head", "query", s.value)}, ""


def _merge(s: Sizes) -> Step:
    return (), {"context": s.shape("batch", "query", f"head*{s.value}")}, "heads side by side"


def _output(s: Sizes) -> Step:
    merged = f"head*{s.value}"
    if not s.out_proj:
        return (), {"output": s.shape("batch", "query", merged)}, "no output projection"
    product = Product(s.shape("query", merged), s.shape(merged, "embed"), "output", s.batch)
    return (product,), {"output": s.shape("batch", "query", "embed")}, ""


STEPS: Mapping[Stage, Callable[[Sizes], Step]] = {
    Stage.PROJECT: _project,
    Stage.HEADS: _heads,
    Stage.POSITION: _position,
    Stage.SCORES: _scores,
    Stage.SCALE: _elementwise("each score by itself", "scores"),
    Stage.SOFTCAP: _elementwise("each score by itself", "scores"),
    Stage.BIAS: _elementwise("a number added to each score", "scores"),
    Stage.MASK: _elementwise("each score kept or hidden", "scores", "may_attend"),
    Stage.SOFTMAX: _elementwise("each row by itself, over its keys", "weights"),
    Stage.DROPOUT: _elementwise("nothing in evaluation", "weights"),
    Stage.MIX: _mix,
    Stage.MERGE: _merge,
    Stage.OUTPUT: _output,
}
"""What each stage does."""
