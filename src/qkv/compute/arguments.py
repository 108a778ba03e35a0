"""Arguments: what `attend` was called with, checked, and with one form for every way of writing it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypedDict

import torch
from torch import Tensor

from qkv.errors import ShapeError, SpecError, nearest
from qkv.masks import Documents, Everything, Mask, Padding, QueryOffset, parse_mask
from qkv.masks.places import position_of_first
from qkv.positions.alibi import alibi_slopes

EmptyRow = Literal["zero", "nan", "uniform"]
Precision = Literal["same", "high", "low"]
Masks = Mask | Tensor | str | None | Sequence[Mask | Tensor | str | None]
"""One mask, or several of which all have to allow a key."""
Rows = bool | Tensor | Sequence[int] | None
"""Whether something is wanted of every query, or the indices of those of which it is."""
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
AXES = ("batch", "head", "query", "key")
LEARNED = ("query", "key", "value", "bias", "sinks")
"""What gradients are made of."""
UNREAD = {Documents(): "ids", Padding(): "lengths"}
"""Masks that say nothing by themselves, and what they lack."""


class Options(TypedDict, total=False):
    """What `attend` may be told, beside what it is to give."""

    mask: Masks
    bias: Tensor | None
    scale: float | None
    softcap: float | None
    sinks: Tensor | None
    alibi: bool | Tensor | Sequence[float] | None
    query_offset: QueryOffset | None
    dropout_p: float
    empty_row: EmptyRow
    precision: Precision


@dataclass(frozen=True)
class Arguments:
    """One call of `attend`.

    Attributes:
        query: ``(batch, head, query, head_dim)``.
        key: ``(batch, kv_head, key, head_dim)``.
        value: ``(batch, kv_head, key, value_dim)``.
        mask: who may attend to whom, by their positions.
        table: who may attend to whom besides, booleans that broadcast to ``(batch, head, query, key)``; four axes.
        bias: what is added to the scores; likewise.
        scale: what the scores are multiplied by.
        softcap: the bound of the scores, or None.
        sinks: score of a key without a value, ``(head,)``, or None.
        slopes: alibi's, ``(head,)``, or None.
        first: position of the first query.
        dropout_p: share of the weights set to zero.
        empty_row: what a query gets that may attend to nothing.
        precision: what the scores are computed in, beside the dtype of the query.
        axes: how many axes the query came with.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask
    table: Tensor | None
    bias: Tensor | None
    scale: float
    softcap: float | None
    sinks: Tensor | None
    slopes: Tensor | None
    first: int
    dropout_p: float
    empty_row: EmptyRow
    precision: Precision
    axes: int

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return self.query.shape[0]

    @property
    def num_heads(self) -> int:
        """How many query heads there are."""
        return self.query.shape[1]

    @property
    def num_kv_heads(self) -> int:
        """How many key and value heads there are."""
        return self.key.shape[1]

    @property
    def group_size(self) -> int:
        """How many query heads share a key head."""
        return self.num_heads // max(self.num_kv_heads, 1)

    @property
    def query_len(self) -> int:
        """How many queries there are."""
        return self.query.shape[2]

    @property
    def key_len(self) -> int:
        """How many keys there are."""
        return self.key.shape[2]

    def of_rows(self, rows: Tensor) -> Arguments:
        """The same call for some of its queries. Where these stand has to be told besides."""

        def chosen(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[2] == 1 else x.index_select(2, rows)

        query = self.query.index_select(2, rows)
        return replace(self, query=query, bias=chosen(self.bias), table=chosen(self.table))

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Every tensor that a gradient may be wanted of, in the order of `LEARNED`; None for what isn't there."""
        return tuple(getattr(self, name) for name in LEARNED)


def read_arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Masks = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    alibi: bool | Tensor | Sequence[float] | None = None,
    query_offset: QueryOffset | None = None,
    dropout_p: float = 0.0,
    empty_row: EmptyRow = "zero",
    precision: Precision = "same",
) -> Arguments:
    """The arguments of `attend`, checked.

    Raises:
        ShapeError: two tensors don't fit; the message names the axis.
        SpecError: a value that isn't one of those it may be.
    """
    axes = getattr(query, "ndim", 0)
    query, key, value = (_heads(name, x) for name, x in (("query", query), ("key", key), ("value", value)))
    if _in_autocast(query.device):
        query, key, value = (_cast(x) for x in (query, key, value))
    _check_sizes(query, key, value)
    sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    rule, table = _masks(mask, sizes, query)
    for part in rule.parts():
        if part in UNREAD:
            _refuse(f"mask {rule} says nothing of which {part} there are; write qkv.{part}({UNREAD[part]}) & ...")
    rule.must_fit(sizes[3], batch=sizes[0], num_heads=sizes[1])
    scale = max(query.shape[-1], 1) ** -0.5 if scale is None else _finite_scale(scale)
    softcap = None if softcap is None else _number("softcap", softcap)
    if softcap is not None and not 0 < softcap < math.inf:
        _refuse(f"softcap is {softcap}, and must be above 0: no score goes beyond it. Without a cap, leave it out")
    if not 0 <= dropout_p < 1:
        _refuse(f"dropout_p is {dropout_p}, and must be from 0 to below 1: it is the share of the weights set to zero")
    _check_word("empty_row", empty_row, ("zero", "nan", "uniform"))
    _check_word("precision", precision, ("same", "high", "low"))
    if query_offset is None:
        query_offset = "bottom_right"
    return Arguments(
        query=query,
        key=key,
        value=value,
        mask=rule,
        table=table,
        bias=None if bias is None else _bias(bias, sizes, query),
        scale=scale,
        softcap=softcap,
        sinks=None if sinks is None else _per_head("sinks", sinks, sizes[1], query),
        slopes=_slopes(alibi, sizes[1], query),
        first=position_of_first(query_offset, sizes[2], sizes[3]),
        dropout_p=float(dropout_p),
        empty_row=empty_row,
        precision=precision,
        axes=axes,
    )


def read_rows(rows: Rows, given: Arguments) -> Tensor | None:
    """The indices of some queries, ``(row,)``; None where all are meant, or none.

    Raises:
        SpecError: they aren't whole numbers, or there is no such query.
    """
    if rows is None or isinstance(rows, bool):
        return None
    chosen = torch.as_tensor(rows, dtype=None if len(rows) else torch.int64, device=given.query.device)
    if chosen.ndim != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
        _refuse(
            f"return_weights is {chosen.dtype} of shape {tuple(chosen.shape)}, and must be True, or the indices of "
            "queries, whole numbers (row,)"
        )
    for row in chosen[(chosen < -given.query_len) | (chosen >= given.query_len)].tolist():
        _refuse(f"return_weights asks for query {row}, and there are {given.query_len}, from 0 on")
    return chosen.to(torch.int64) % max(given.query_len, 1)


def _heads(name: str, x: Any) -> Tensor:
    """A tensor with all four axes, ``(batch, head, len, dim)``."""
    if not isinstance(x, Tensor):
        _refuse(f"{name} is a {type(x).__name__}, and must be a torch tensor, (batch, head, len, dim)")
    if x.dtype not in DTYPES:
        _refuse(f"{name} has dtype {x.dtype}, and must be float64, float32, bfloat16 or float16. Try {name}.float()")
    if not 2 <= x.ndim <= 4:
        raise ShapeError(
            f"{name} has shape {tuple(x.shape)}, and must be (batch, head, len, dim); (batch, len, dim) and (len, dim) "
            "are one head. Split heads by x.unflatten(-1, (num_heads, head_dim)).transpose(1, 2)"
        )
    return x[:, None] if x.ndim == 3 else x[None, None] if x.ndim == 2 else x


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which numbers are as exact as they are written: what autocast asks for was done to the arguments."""
    return torch.autocast(device.type, enabled=False) if _in_autocast(device) else nullcontext()


def _in_autocast(device: torch.device) -> bool:
    """Whether autocast is on there. Without a place for it, as for ``meta``, it never is."""
    return torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)


def _cast(x: Tensor) -> Tensor:
    """What autocast makes of it, as for torch's own attention: all but float64 becomes its dtype."""
    return x if x.dtype == torch.float64 else x.to(torch.get_autocast_dtype(x.device.type))


def _check_sizes(query: Tensor, key: Tensor, value: Tensor) -> None:
    def misfit(what: str, axis: str, hint: str = "") -> ShapeError:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in zip("qkv", (query, key, value), strict=True))
        return ShapeError(f"{what} (axis {axis} of {shapes}){hint}")

    for name, x in (("key", key), ("value", value)):
        if x.dtype != query.dtype or x.device != query.device:
            _refuse(
                f"query is {query.dtype} on {query.device}, {name} is {x.dtype} on {x.device}; they must be alike. "
                f"Try {name}.to(query)"
            )
        if x.shape[0] != query.shape[0]:
            raise misfit(f"query has {query.shape[0]} sequences, {name} has {x.shape[0]}", "batch")
    if key.shape[1] != value.shape[1]:
        raise misfit(f"key has {key.shape[1]} heads, value has {value.shape[1]}", "head")
    if not key.shape[1]:
        raise misfit("key and value have no head", "head")
    if query.shape[1] % key.shape[1]:
        raise misfit(
            f"query has {query.shape[1]} heads, and key {key.shape[1]}: the key's must divide the query's",
            "head",
            ". Are the axes (batch, len, head, dim)? Then .transpose(1, 2)",
        )
    if key.shape[2] != value.shape[2]:
        raise misfit(f"there are {key.shape[2]} keys and {value.shape[2]} values", "len")
    if query.shape[3] != key.shape[3]:
        raise misfit(f"query has {query.shape[3]} channels, key has {key.shape[3]}", "dim")


def _masks(given: Masks, sizes: tuple[int, ...], query: Tensor) -> tuple[Mask, Tensor | None]:
    """What all the rules among these masks allow together, and what all the booleans do."""
    rule: Mask = Everything()
    table: Tensor | None = None
    for mask in given if isinstance(given, tuple | list) else (given,):
        if isinstance(mask, Tensor):
            booleans = _booleans(mask, sizes, query)
            table = booleans if table is None else table & booleans
        elif isinstance(mask, Mask | str):
            one = parse_mask(mask) if isinstance(mask, str) else mask
            rule = one if rule == Everything() else rule & one
        elif mask is not None:
            _refuse(
                f"mask is a {type(mask).__name__}; write a mask as qkv.causal() & qkv.window(256), or a boolean tensor"
            )
    return rule, table


def _booleans(mask: Tensor, sizes: tuple[int, ...], query: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        _refuse(
            f"mask has dtype {mask.dtype}, and must be boolean, True = may attend. Numbers that are added to the "
            "scores are bias=; of a mask of ones and zeros make mask.bool()"
        )
    return _broadcasting("mask", mask, sizes, query)


def _bias(bias: Any, sizes: tuple[int, ...], query: Tensor) -> Tensor:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        kind = getattr(bias, "dtype", type(bias).__name__)
        _refuse(f"bias is {kind}, and must be a floating tensor that is added to the scores. Booleans are mask=")
    return _broadcasting("bias", bias, sizes, query)


def _broadcasting(name: str, x: Tensor, sizes: tuple[int, ...], query: Tensor) -> Tensor:
    """A tensor that broadcasts to ``(batch, head, query, key)``, with all four axes."""
    _same_device(name, x, query)
    if x.ndim == 3:
        raise ShapeError(
            f"{name} has shape {tuple(x.shape)}: with three axes it can't be told whether the first is the batch or "
            f"the head. Write {name}[:, None] or {name}[None]"
        )
    if x.ndim > 4:
        raise ShapeError(f"{name} has shape {tuple(x.shape)}, and must broadcast to (batch, head, query, key)")
    whole = x[(None,) * (4 - x.ndim)]
    for axis, given, wanted in zip(AXES, whole.shape, sizes, strict=True):
        if given not in (1, wanted):
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}: axis {axis} is {given} long, and must be {wanted} or 1, to "
                f"broadcast to (batch, head, query, key) = {sizes}"
            )
    return whole


def _finite_scale(given: Any) -> float:
    scale = _number("scale", given)
    if not -math.inf < scale < math.inf:  # as torch.compile can follow it
        _refuse(f"scale is {scale}, and must be finite: scores are multiplied by it")
    return scale


def _number(name: str, given: Any) -> float:
    if isinstance(given, Tensor) and given.requires_grad:
        _refuse(f"{name} requires a gradient, and gets none: it is a constant. Multiply the query by a learned factor")
    return float(given)


def _per_head(name: str, x: Any, num_heads: int, query: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or tuple(x.shape) != (num_heads,):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"{name} is {shape}, and must be a tensor with a number for each query head, ({num_heads},)")
    return _same_device(name, x, query)


def _slopes(alibi: bool | Tensor | Sequence[float] | None, num_heads: int, query: Tensor) -> Tensor | None:
    if alibi is None or alibi is False:
        return None
    exact = torch.promote_types(query.dtype, torch.float32)
    given = alibi_slopes(num_heads) if alibi is True else alibi
    slopes = torch.as_tensor(given, dtype=exact, device=query.device)
    if slopes.requires_grad:
        _refuse("alibi's slopes require a gradient, and get none: they are constants. Pass a bias= made of them")
    return _per_head("alibi", slopes, num_heads, query)


def _same_device(name: str, x: Tensor, query: Tensor) -> Tensor:
    if x.device != query.device:
        _refuse(f"{name} is on {x.device}, and the query on {query.device}. Try {name}.to(query.device)")
    return x


def _check_word(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        _refuse(f"{name} is {given!r}; {nearest(str(given), known)}")


def _refuse(message: str) -> NoReturn:
    raise SpecError(message)
