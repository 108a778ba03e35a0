"""Chunks: a sequence that is handed over bit by bit, as with a cache. Each chunk's queries see the keys so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from qkv.oracle.inputs import Array, Inputs
from qkv.oracle.run import Run
from qkv.vocabulary import Stage


def in_chunks(inputs: Inputs) -> bool:
    """Whether these are the inputs of several calls, one for each of ``inputs.steps``."""
    return len(inputs.steps) > 1 and inputs.lengths[0] == sum(inputs.steps)


def chunks(inputs: Inputs) -> list[Inputs]:
    """One call's inputs for each chunk: its own queries, and the keys and values of all tokens so far."""
    return [_chunk(inputs, place, end) for place, end in enumerate(accumulate(inputs.steps), start=1)]


def _chunk(inputs: Inputs, count: int, end: int) -> Inputs:
    begin = end - inputs.steps[count - 1]
    source = inputs.x if inputs.source is None else inputs.source
    return inputs.but(
        x=_tokens(inputs.x, begin, end),
        source=_tokens(source, 0, end),
        value_source=_tokens(inputs.value_source, 0, end),
        query=None if inputs.query is None else inputs.query[..., begin:end, :],
        key=None if inputs.key is None else inputs.key[..., :end, :],
        value=None if inputs.value is None else inputs.value[..., :end, :],
        may_attend=_pairs(inputs.may_attend, begin, end),
        bias=_pairs(inputs.bias, begin, end),
        is_token=_tokens(inputs.is_token, 0, end),
        document=_tokens(inputs.document, 0, end),
        steps=inputs.steps[:count],
    )


def newest(inputs: Inputs) -> Inputs:
    """The inputs of one chunk with no keys and values but its own: what a call with a cache is given."""
    if len(inputs.steps) < 2 or in_chunks(inputs):
        return inputs
    count = inputs.steps[-1]
    return inputs.but(
        source=None if inputs.source is None else inputs.source[:, -count:],
        value_source=None if inputs.value_source is None else inputs.value_source[:, -count:],
        key=None if inputs.key is None else inputs.key[..., -count:, :],
        value=None if inputs.value is None else inputs.value[..., -count:, :],
    )


def _tokens(array: Array | None, begin: int, end: int) -> Array | None:
    return None if array is None else array[:, begin:end]


def _pairs(array: Array | None, begin: int, end: int) -> Array | None:
    """Rows of the chunk and columns of the tokens so far; an axis of size one stands for all."""
    if array is None:
        return None
    rows = array if array.shape[-2] == 1 else array[..., begin:end, :]
    return rows if rows.shape[-1] == 1 else rows[..., :end]


def joined(run: Run, parts: Sequence[Run]) -> Run:
    """One finished run over the whole sequence from the runs of its chunks; ``parts`` keeps them.

    Args:
        run: the spec and the inputs of the whole.
        parts: the finished runs, in order.
    """
    contexts = _rows(run, [part.before.get(Stage.MERGE, run).context for part in parts])
    return run.but(
        key=parts[-1].key,
        value=parts[-1].value,
        weights=_rows(run, [part.weights for part in parts]),
        may_attend=_rows(run, [part.may_attend for part in parts]),
        context=_rows(run, [part.context for part in parts]),
        output=run.xp.concat([part.output for part in parts], axis=1),
        before={Stage.PROJECT: run, Stage.MERGE: run.but(context=contexts)},
        parts=tuple(parts),
    )


def _rows(run: Run, arrays: Sequence[Array]) -> Array | None:
    """Rows of all chunks, with zeros for keys that are not there yet; None where a chunk's are of another kind."""
    if any(array is None or array.shape[:-2] != arrays[0].shape[:-2] for array in arrays):
        return None
    xp, width = run.xp, max(array.shape[-1] for array in arrays)
    ahead = [xp.zeros((*array.shape[:-1], width - array.shape[-1]), dtype=array.dtype) for array in arrays]
    wide = [xp.concat([array, more], axis=-1) for array, more in zip(arrays, ahead, strict=True)]
    return xp.concat(wide, axis=-2)
