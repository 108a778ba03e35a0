"""The shape of every stage's tensors, from the spec and the lengths alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from qkv.errors import ShapeError
from qkv.shapes.product import Product, Shape
from qkv.shapes.steps import STEPS, Sizes
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@dataclass(frozen=True)
class StageShapes:
    """What one stage gives.

    Attributes:
        stage: the stage.
        products: the matrix products it makes, of one sequence and one head where these are apart.
        makes: shape of each tensor that it makes or changes, by name (``query``, ``scores``, ``weights`` ...).
        note: what it does with a shape where there is no product, in a few words.
    """

    stage: Stage
    products: tuple[Product, ...]
    makes: Mapping[str, Shape]
    note: str = ""


@dataclass(frozen=True)
class Prediction:
    """What every stage of an attention will give.

    Attributes:
        spec: the attention.
        stages: the stages in the order data takes; a stage that the spec leaves out changes nothing and is missing.
    """

    spec: AttentionSpec
    stages: tuple[StageShapes, ...]

    def after(self, stage: Stage) -> Mapping[str, Shape]:
        """Shape of every tensor there is once the stage is done."""
        made: dict[str, Shape] = {}
        for step in self.stages:
            if step.stage.order <= stage.order:
                made |= step.makes
        return MappingProxyType(made)

    @property
    def products(self) -> list[tuple[str, Product]]:
        """Every matrix product, with what it makes and how often: ``scores, 4 times``."""
        return [(f"{one.makes}{one.often}", one) for step in self.stages for one in step.products]

    @property
    def output(self) -> Shape:
        """Shape of the result."""
        return self.after(Stage.OUTPUT)["output"]


def predict_shapes(
    spec: AttentionSpec,
    *,
    query_len: int,
    key_len: int | None = None,
    batch: int = 1,
    embed_dim: int | None = None,
    head_dim: int | None = None,
) -> Prediction:
    """The shape of every stage's tensors, before anything runs.

    With a known ``embed_dim`` the stages begin at ``x``, without one at query, key and value.

    Args:
        spec: the attention.
        query_len: number of queries.
        key_len: number of keys; as many as queries by default.
        batch: number of sequences.
        embed_dim: channels of a token, where the spec doesn't say.
        head_dim: channels of a head, where the spec doesn't say; an equal share of ``embed_dim`` by default.

    Raises:
        ShapeError: a size is missing, below 1, or contradicts the spec.
    """
    embed = _agreed("embed_dim", spec.embed_dim, embed_dim)
    dim = _agreed("head_dim", spec.head_dim, head_dim) or _share(embed, spec.num_heads)
    key_len = query_len if key_len is None else key_len
    for name, size in (("query_len", query_len), ("key_len", key_len), ("batch", batch), ("head_dim", dim)):
        if size < 1:
            raise ShapeError(f"{name} is {size}, and must be 1 or more: an axis without entries has no row to look at")
    value_dim = spec.value_dim or dim
    sizes = Sizes(
        batch,
        spec.num_heads,
        spec.kv_heads,
        query_len,
        key_len,
        dim,
        value_dim,
        embed,
        spec.out_proj and embed is not None,
    )
    steps = (StageShapes(stage, *step(sizes)) for stage, step in STEPS.items() if _takes_part(spec, stage))
    return Prediction(spec, tuple(steps))


def _agreed(name: str, of_spec: int | None, given: int | None) -> int | None:
    if of_spec is not None and given is not None and of_spec != given:
        raise ShapeError(f"{name} is {given}, and the spec says {of_spec}; leave one of them out")
    return of_spec if given is None else given


def _share(embed: int | None, heads: int) -> int:
    if embed is None:
        raise ShapeError(
            "the channels of a head aren't known: pass head_dim, or embed_dim to share out among the heads"
        )
    if embed % heads:
        raise ShapeError(
            f"embed_dim {embed} can't be shared out among {heads} heads: {embed} / {heads} leaves {embed % heads} "
            f"over. Use a multiple of {heads} such as {embed - embed % heads or heads}, or pass head_dim"
        )
    return embed // heads


def _takes_part(spec: AttentionSpec, stage: Stage) -> bool:
    optional = {
        Stage.POSITION: spec.rope is not None,
        Stage.SOFTCAP: spec.softcap is not None,
        Stage.BIAS: spec.alibi is not None or spec.relative_bias is not None,
        Stage.DROPOUT: spec.dropout_p > 0,
    }
    return optional.get(stage, True)
