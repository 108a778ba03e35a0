"""Moves: from known arrays to the next one of an attention, as it should be and as learners make it by mistake."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.scripts.known import Array, Known, Sight, close
from qkv.vocabulary import HIDDEN_BELOW


def products(left: Known, right: Known) -> Iterator[Known]:
    """What a product of two known arrays may make; the right ones first."""
    kinds = left.kind, right.kind
    if kinds == ("tokens", "tokens"):
        yield from _scores(left, right)
    elif kinds == ("weights", "tokens"):
        yield from _mixes(left, right, "")
    elif kinds == ("tokens", "weights"):
        yield from _mixes(right, left, "")
    elif kinds == ("scores", "tokens"):
        yield from _mixes(left, right, "softmax-missing")
    elif kinds in {("tokens", "matrix"), ("context", "matrix")}:
        yield from _projected(left, right)
    elif kinds in {("matrix", "tokens"), ("matrix", "context")}:
        yield from _projected(right, left)


def _scores(left: Known, right: Known) -> Iterator[Known]:
    lead, one = left.axes[:-2], left.array
    for other, slip in _for_heads_of(left, right):
        made: dict[str, Any] = {"move": "product", "sources": (left, right)}
        axes = (*lead, "query", "key")
        if one.shape[-1] == other.shape[-1]:
            yield Known("scores", axes, one @ other.swapaxes(-1, -2), slip=slip, **made)
        if slip:
            continue
        if one.shape[-1] == other.shape[-1] and one.shape[-2] == other.shape[-2]:
            across = one.swapaxes(-1, -2) @ other
            yield Known("scores", (*lead, "channel", "channel'"), across, slip="scores-of-channels", **made)
        if one.shape[-1] == other.shape[-2]:
            yield Known("scores", axes, one @ other, slip="transpose-forgotten", **made)
        if one.shape == other.swapaxes(-1, -2).shape:
            yield Known("scores", axes, one * other.swapaxes(-1, -2), slip="elementwise", **made)
        if one.shape == other.shape:
            yield Known("scores", (*lead, "query", "channel"), one * other, slip="elementwise", **made)


def _for_heads_of(left: Known, right: Known) -> Iterator[tuple[Array, str]]:
    """The right one of two arrays with as many heads as the left one, which may share them; and the slip in that.

    Nothing where they differ in more than that.
    """
    if left.axes[:-2] != right.axes[:-2]:
        return
    sizes, few = left.array.shape[:-2], right.array.shape[:-2]
    if sizes == few:
        yield right.array, ""
    elif "head" in left.axes:
        at = left.axes.index("head")
        group, rest = divmod(sizes[at], few[at])
        if group and not rest and sizes[:at] == few[:at]:
            yield np.repeat(right.array, group, at), ""
            yield np.concatenate([right.array] * group, at), "kv-heads-tiled"


def scaled_by_number(scores: Known, dim: int) -> Iterator[Known]:
    """Scores that a loop has put together of numbers, each of them scaled before."""
    for factor in (dim**-0.5, 1 / dim, dim**0.5):
        yield replace(scores, array=scores.array * factor, move="scale", sources=(scores,), number=factor)


def _mixes(weights: Known, value: Known, slip: str) -> Iterator[Known]:
    for array, tiled in _for_heads_of(weights, value):
        if not (tiled and slip):
            yield from _mixed(weights, value, array, slip or tiled)


def _mixed(weights: Known, value: Known, array: Array, slip: str) -> Iterator[Known]:
    """What weights and values may make, given the values with as many heads as the weights."""
    rows, columns = weights.array, weights.array.swapaxes(-1, -2)
    channel = value.axes[-1]
    made: dict[str, Any] = {"move": "mix", "sources": (weights, value)}
    with np.errstate(all="ignore"):
        for over, matrix in (("key", rows), ("query", columns)):
            if matrix.shape[-1] == array.shape[-2]:
                axes = (*weights.axes[:-2], "query", channel)
                yield Known("context", axes, matrix @ array, slip=slip, over=over, **made)
        for over, matrix in (("key", rows), ("query", columns)):
            if matrix.shape[-1] == array.shape[-1] == array.shape[-2]:
                axes = (*weights.axes[:-2], "query", "token")
                yield Known("context", axes, matrix @ array.swapaxes(-1, -2), slip="value-turned", over=over, **made)
        if rows.shape == array.shape:
            yield Known("context", value.axes, rows * array, slip="elementwise-mix", over="key", **made)


def _projected(tokens: Known, matrix: Known) -> Iterator[Known]:
    flat = _merged(tokens)
    if flat is None:
        return
    if matrix.array.ndim == 3 and "head" not in tokens.axes:
        yield from _projected_apart(tokens, matrix)
    elif matrix.array.ndim == 3:
        matrix = replace(matrix, array=matrix.array.reshape(-1, matrix.array.shape[-1]))
    for over, weight in zip(matrix.axes[-2:], (matrix.array, matrix.array.swapaxes(-1, -2)), strict=True):
        if weight.ndim == 2 and flat.array.shape[-1] == weight.shape[0]:
            yield replace(flat, array=flat.array @ weight, move="project", sources=(tokens, matrix), slip="", over=over)


def _projected_apart(tokens: Known, matrix: Known) -> Iterator[Known]:
    """Tokens projected for each head by a matrix of its own, the axes of these in any order."""
    axes = (*tokens.axes[:-2], "head", tokens.axes[-2], "dim")
    for order in ("mhd", "hmd", "hdm", "mdh"):
        if matrix.array.shape[order.index("m")] == tokens.array.shape[-1]:
            array = np.einsum(f"...tm,{order}->...htd", tokens.array, matrix.array)
            yield replace(tokens, axes=axes, array=array, move="project", sources=(tokens, matrix), slip="")


def _merged(tokens: Known) -> Known | None:
    """Tokens with the heads, if any, side by side."""
    if "head" not in tokens.axes:
        return tokens
    at = tokens.axes.index("head")
    turned = np.moveaxis(tokens.array, at, -2)
    lead = tuple(axis for axis in tokens.axes[:-1] if axis != "head")
    return replace(tokens, axes=(*lead, "channel"), array=turned.reshape(*turned.shape[:-2], -1))


def shifted(tokens: Known, bias: Array) -> Known | None:
    """Tokens with a bias on each channel."""
    if bias.ndim == 1 and bias.shape[0] == tokens.array.shape[-1]:
        return replace(tokens, array=tokens.array + bias, move="bias", sources=(tokens,), slip="")
    return None


def splits(tokens: Known, shape: tuple[int, ...]) -> Iterator[Known]:
    """Tokens with their channels split into heads, as an array of that shape may hold them."""
    if "head" in tokens.axes:
        return
    width, length = tokens.array.shape[-1], tokens.array.shape[-2]
    lead = tokens.array.shape[:-2]
    made: dict[str, Any] = {"move": "split", "sources": (tokens,)}
    axes = (*tokens.axes[:-2], "head", tokens.axes[-2], "dim")
    for heads in sorted({size for size in shape if 1 <= size <= width and width % size == 0}):
        apart = tokens.array.reshape(*lead, length, heads, width // heads)
        yield replace(tokens, axes=axes, array=apart.swapaxes(-2, -3), slip="", **made)
    for heads in sorted({size for size in shape if 1 < size < width and width % size == 0}):
        apart = tokens.array.reshape(*lead, heads, length, width // heads)
        yield replace(tokens, axes=axes, array=apart, slip="heads-split-by-view", **made)


def cuts(tokens: Known, whole: Array, array: Array) -> Iterator[Known]:
    """A part of each token's channels: a fused projection is cut into queries, keys and values, and these into heads.

    Found by where each number of it stands in the whole; what puts the numbers of different tokens together is a slip.

    Args:
        tokens: the tokens as a whole.
        whole: the same in the script's own numbers.
        array: what may be a part of it.
    """
    lead = whole.ndim - 2
    if "head" in tokens.axes or array.size >= whole.size or array.ndim - lead not in (2, 3):
        return
    order = np.argsort(whole, axis=None)
    ordered = whole.reshape(-1)[order]
    place = np.searchsorted(ordered, array).clip(max=ordered.size - 1)
    if (ordered[1:] == ordered[:-1]).any() or not np.array_equal(ordered[place], array):
        return
    at = np.unravel_index(order[place], whole.shape)
    along = [_axis_along(at[axis], whole.shape[axis]) for axis in range(lead + 1)]
    made: dict[str, Any] = {"move": "split", "sources": (tokens,)}
    apart = array.ndim - lead == 3
    axes = (*tokens.axes[:-2], "head", tokens.axes[-2], "dim") if apart else tokens.axes
    if None not in along and len({*along, array.ndim - 1}) == lead + 2:
        others = [axis for axis in range(array.ndim - 1) if axis not in along]
        front = [*along[:-1], *others, along[-1], array.ndim - 1]
        yield replace(tokens, axes=axes, array=array.transpose(front), slip="", **made)  # type: ignore[arg-type]
    elif apart and along[-1] is None and None not in along[:-1] and array.shape[-2] == whole.shape[-2]:
        yield replace(tokens, axes=axes, array=array, slip="heads-split-by-view", **made)


def _axis_along(places: Array, size: int) -> int | None:
    """The axis of a part along which these places on an axis of the whole count up; None for none."""
    for axis, length in enumerate(places.shape):
        shape = [1] * places.ndim
        shape[axis] = length
        if length == size and np.array_equal(places, np.broadcast_to(np.arange(size).reshape(shape), places.shape)):
            return axis
    return None


def merges(context: Known, shape: tuple[int, ...]) -> Iterator[Known]:
    """The heads' context vectors put together by a view alone."""
    # Of three axes the first one may be that of the heads: one that goes into the channels is.
    heads = "head" if "head" in context.axes else "batch" if context.array.ndim == 3 and len(shape) == 2 else ""
    if heads and int(np.prod(shape)) == context.array.size:
        axes = (*(axis for axis in context.axes[:-1] if axis != heads), "channel")
        size = (*(context.array.shape[context.axes.index(axis)] for axis in axes[:-1]), -1)
        array = context.array.reshape(size)
        yield replace(context, axes=axes, array=array, move="merge", sources=(context,), slip="heads-merged-by-view")


def softmax(scores: Array, axis: int | tuple[int, ...]) -> Array:
    """Softmax over an axis; a row that sees nothing is NaN, as torch gives it."""
    with np.errstate(all="ignore"):
        raised = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return raised / raised.sum(axis=axis, keepdims=True)


def elementwise(sight: Sight, before: Array, after: Array, operation: str) -> Known | None:
    """What an array that is known has become, its axes as they were; None where no move explains that."""
    known = sight.known
    if before.shape != after.shape or close(before, after):
        return None
    if known.kind == "weights":
        return _of_weights(sight, before, after, operation)
    if known.kind == "scores":
        for made in _normalised(known):
            if close(made.array.reshape(-1)[sight.index], after):
                return made
        raised = next((one for one in _raised(known) if close(one.array.reshape(-1)[sight.index], after)), None)
        return (
            raised
            or _scaled(known, before, after)
            or _masked(sight, before, after)
            or _added(sight, before, after, operation)
        )
    if known.kind in ("tokens", "context"):
        return _scaled(known, before, after) or _dropped(sight, before, after, operation)
    return None


def _normalised(scores: Known) -> Iterator[Known]:
    """The ways of making weights of scores."""
    made: dict[str, Any] = {"axes": scores.axes, "move": "softmax", "sources": (scores,)}
    array = scores.array
    every = tuple(range(array.ndim))
    with np.errstate(all="ignore"):
        yield Known("weights", array=softmax(array, -1), over="key", **made)
        yield Known("weights", array=softmax(array, -2), over="query", **made)
        yield Known("weights", array=softmax(array, every[-2:]), over="both", slip="softmax-over-all", **made)
        if array.ndim > 2:
            yield Known(
                "weights", array=softmax(array, -3), over=scores.axes[-3], slip="softmax-over-heads-or-batch", **made
            )
            yield Known(
                "weights", array=softmax(array, 0), over=scores.axes[0], slip="softmax-over-heads-or-batch", **made
            )
        for axis, over in ((-1, "key"), (-2, "query")):
            shares = array / array.sum(axis, keepdims=True)
            yield Known("weights", array=shares, over=over, slip="softmax-missing", **made)
        yield Known("weights", array=1 / (1 + np.exp(-array)), over="", slip="softmax-missing", **made)


def _raised(scores: Known) -> Iterator[Known]:
    """E to the power of the scores, as they are or with a maximum taken off: what a softmax divides by its sums."""
    array = scores.array
    with np.errstate(all="ignore"):
        for off in (0.0, array.max(-1, keepdims=True), array.max(-2, keepdims=True), array.max()):
            yield Known("weights", scores.axes, np.exp(array - off), "exp", (scores,))


def _of_weights(sight: Sight, before: Array, after: Array, operation: str) -> Known | None:
    known, index = sight.known, sight.index
    made: dict[str, Any] = {"axes": known.axes, "sources": (known,)}
    if known.move == "exp":
        whole = next((one for one in _normalised(known.sources[0]) if close(one.array.reshape(-1)[index], after)), None)
        if whole is not None:
            return whole
    with np.errstate(all="ignore"):
        for axis, over in ((-1, "key"), (-2, "query")):
            shares = known.array / known.array.sum(axis, keepdims=True)
            if close(shares.reshape(-1)[index], after):
                return Known("weights", array=shares, move="renormalise", over=over, **made)
        again = softmax(known.array, -1)
    step = known.first("softmax", "renormalise", "exp")
    if step is not None and step.move == "exp":
        return _zeroed(sight, before, after)
    if close(again.reshape(-1)[index], after):
        return Known("weights", array=again, move="softmax", over="key", slip="softmax-twice", **made)
    hidden = after <= HIDDEN_BELOW
    if hidden.any() and close(before[~hidden], after[~hidden]):
        return _with_mask(sight, ~hidden, after, "", float(after[hidden][0]))
    scaled = _scaled(known, before, after)
    if scaled is not None:
        return replace(scaled, slip="scale-after-softmax")
    return _dropped(sight, before, after, operation) or _zeroed(sight, before, after)


def _scaled(known: Known, before: Array, after: Array) -> Known | None:
    usable = np.isfinite(before) & (np.abs(before) > 1e-9) & np.isfinite(after)
    if not usable.any():
        return None
    factor = float(np.median(after[usable] / before[usable]))
    with np.errstate(all="ignore"):
        if factor == 0 or not close(np.where(np.isfinite(before), before * factor, before), after):
            return None
        array = np.where(np.isfinite(known.array), known.array * factor, known.array)
    return replace(known, array=array, move="scale", sources=(known,), number=factor, slip="", visible=None)


def _masked(sight: Sight, before: Array, after: Array) -> Known | None:
    """Scores of which some were replaced by one number, or had one number added."""
    with np.errstate(all="ignore"):
        if _is_shifted(before, after):
            return None
        same = np.isclose(after, before, rtol=1e-5, atol=1e-6) | ((after == before) & ~np.isnan(after))
        hidden = ~same
        if not hidden.any() or hidden.all():
            return None
        replaced, added = after[hidden], after[hidden] - before[hidden]
    fill, move = None, "mask"
    if np.all(replaced == replaced[0]):
        fill = float(replaced[0])
    elif np.allclose(added, added[0], rtol=1e-4, atol=1e-5):
        fill, move = float(added[0]), "mask-added"
    if fill is None or np.isnan(fill):
        return None
    slip = "" if fill <= HIDDEN_BELOW else "masked-scores-zeroed" if fill == 0 else "mask-fill-too-small"
    if move == "mask-added" and fill > HIDDEN_BELOW:
        slip = "mask-added-as-number"
    return _with_mask(sight, ~hidden, after, slip, fill, added=move == "mask-added")


def _is_shifted(before: Array, after: Array) -> bool:
    """Whether each row had one number taken off, its maximum say: that changes no weight and hides nothing."""
    finite = np.isfinite(before) & np.isfinite(after)
    off = np.where(finite, after - before, np.nan).reshape(-1, after.shape[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row of nothing but infinities
        first = np.nanmedian(off, axis=-1, keepdims=True)
    alike = np.isnan(off) | np.isclose(off, first, rtol=1e-5, atol=1e-6)
    return bool(alike.all() and (finite | (before == after)).all())


def _added(sight: Sight, before: Array, after: Array, operation: str) -> Known | None:
    """Scores to which an array was added: a bias by distance, for one."""
    if operation not in ("add", "sub") or not np.isfinite(after).all() or sight.index.size < 2:
        return None
    known, row = sight.known, (after - before).reshape(-1, after.shape[-1])
    if np.allclose(row, row[:, :1], rtol=0, atol=1e-6):
        return None  # the same for a whole row changes no weight: its maximum was taken off
    array = known.array.astype(float).copy()
    array.reshape(-1)[sight.index] = after
    return replace(known, array=array, move="bias", sources=(known,), slip="", visible=None)


def _with_mask(sight: Sight, visible: Array, after: Array, slip: str, fill: float, *, added: bool = False) -> Known:
    known = sight.known
    whole = _in_all_parts(sight, visible)
    with np.errstate(all="ignore"):
        array = np.where(whole, known.array, known.array + fill if added else fill).astype(float)
    array.reshape(-1)[sight.index] = after
    return replace(known, array=array, move="mask", sources=(known,), slip=slip, number=fill, visible=whole)


def _in_all_parts(sight: Sight, visible: Array) -> Array:
    """A mask of one part as one of all: a loop over heads, sequences or queries masks each for itself.

    Of one query it is known only where it sees the first keys up to some distance from itself, or the last ones.
    """
    known = sight.known
    whole: Array = np.ones(known.array.shape, bool)
    whole.reshape(-1)[sight.index] = visible
    for axis in ("batch", "head"):
        if axis in sight.fixed:
            at = known.axes.index(axis)
            whole = np.broadcast_to(np.take(whole, [sight.fixed[axis]], at), whole.shape)
    if "query" not in sight.fixed or known.axes[-2:] != ("query", "key"):
        return whole.copy()
    query, keys = sight.fixed["query"], whole.shape[-1]
    rows = whole[..., query, :].reshape(-1, keys)
    seen = int(rows[0].sum())
    for drawn in (np.tri(whole.shape[-2], keys, seen - 1 - query) > 0,
                  np.tri(whole.shape[-2], keys, keys - seen - 1 - query) == 0):  # fmt: skip
        if (rows == drawn[query]).all():
            return np.broadcast_to(drawn, whole.shape).copy()
    return whole.copy()


def _zeroed(sight: Sight, before: Array, after: Array) -> Known | None:
    """Weights of which some were set to zero."""
    hidden = (after == 0) & (before != 0)
    if hidden.any() and close(np.where(hidden, 0.0, before), after):
        return _with_mask(sight, ~hidden, after, "", 0.0)
    return None


def _dropped(sight: Sight, before: Array, after: Array, operation: str) -> Known | None:
    """What dropout leaves: some zeros, and the rest made larger."""
    gone = (after == 0) & (before != 0)
    kept = ~gone & (before != 0) & np.isfinite(before)
    if "dropout" not in operation and not (gone.any() and kept.any()):
        return None
    if not kept.any():
        factor = 1.0
    else:
        factor = float(np.median(after[kept] / before[kept]))
        if not close(np.where(gone, 0.0, before * factor), after) or (
            factor <= 1 + 1e-6 and "dropout" not in operation
        ):
            return None
    array = sight.known.array.astype(float).copy()
    array.reshape(-1)[sight.index] = after
    share = 1 - 1 / factor if factor > 1 else 0.0
    return replace(sight.known, array=array, move="drop", sources=(sight.known,), number=share, slip="dropout-in-eval")
