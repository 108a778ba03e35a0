"""Small tools for writing a stage that does another thing than it should, mostly from the right stages themselves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if
from qkv.oracle import Array, Inputs, Parameters, Run, StageFunction
from qkv.oracle.stages import heads, merge_heads, share_heads


def impossible(why: str) -> ShapeError:
    """What a replacement raises where the inputs leave no room for its fault; whoever tries faults passes it by."""
    return ShapeError(f"this fault can't be made here: {why}")


def given(stage: StageFunction, change: Callable[[Run], Inputs]) -> StageFunction:
    """The stage as it is done with other inputs; the right inputs are put back after it."""

    def replaced(run: Run) -> Run:
        return stage(run.but(inputs=change(run))).but(inputs=run.inputs)

    return replaced


def with_parameters(stage: StageFunction, change: Callable[[Run, Parameters], Parameters]) -> StageFunction:
    """The stage as it is done with other parameters."""
    return given(stage, lambda run: run.inputs.but(parameters=change(run, parameters(run))))


def chain(*steps: StageFunction) -> StageFunction:
    """One stage that does several things, the first one first."""

    def replaced(run: Run) -> Run:
        for step in steps:
            run = step(run)
        return run

    return replaced


def parameters(run: Run) -> Parameters:
    """The run's parameters.

    Raises:
        ShapeError: there are none: query, key and value came ready made.
    """
    if run.inputs.parameters is None:
        raise impossible("there are no projections")
    return run.inputs.parameters


def changed(of: Parameters, **changes: Any) -> Parameters:
    """The same parameters with some of them replaced."""
    return dataclasses.replace(of, **changes)


def read_as(run: Run, x: Array, shape: tuple[int, ...]) -> Array:
    """The memory of ``x``, as if it were contiguous, read with another shape: what ``.view`` and ``.reshape`` do.

    Raises:
        ShapeError: the other shape holds another number of entries.
    """
    if math.prod(x.shape) != math.prod(shape):
        raise impossible(f"{tuple(x.shape)} can't be read as {shape}")
    return run.xp.reshape(x, shape)


def fitting(right: Array, wrong: Array) -> Array:
    """``wrong``, which stands where ``right`` should.

    Raises:
        ShapeError: their shapes differ, so that the fault would stop the program and not give wrong numbers.
    """
    if tuple(right.shape) != tuple(wrong.shape):
        raise impossible(f"{tuple(wrong.shape)} does not fit where {tuple(right.shape)} belongs")
    return wrong


def unshared(run: Run, x: Array) -> Array:
    """Key or value with one head per key/value head again, after they were shared by groups of query heads."""
    return x[:, :: run.spec.group_size, ...]


def apart(run: Run) -> Run:
    """Query, key and value as ``(batch, head, token, dim)``: key and value not shared yet, and no norm applied."""
    done = as_if(heads, qk_norm=None)(run)
    return done.but(key=unshared(run, done.key), value=unshared(run, done.value))


def shared(run: Run) -> Run:
    """Key and value repeated for the query heads that read them."""
    return run.but(key=share_heads(run, run.key), value=share_heads(run, run.value))


def side_by_side(run: Run) -> Run:
    """Query, key and value as ``(batch, token, head * dim)``, however they came; normalised if over the width."""
    if run.query.ndim == 3 and run.spec.qk_norm != "width":
        return run
    done = heads(run) if run.spec.qk_norm == "width" else as_if(heads, qk_norm=None)(run)
    key, value = unshared(run, done.key), unshared(run, done.value)
    return done.but(query=merge_heads(run, done.query), key=merge_heads(run, key), value=merge_heads(run, value))


def normed_and_shared(run: Run) -> Run:
    """The rest of the ``heads`` stage, for query, key and value that are in heads already: per-head norm, sharing."""
    return as_if(heads, qk_norm="head" if run.spec.qk_norm == "head" else None)(run)


def by_shape(stage: StageFunction) -> StageFunction:
    """The stage as if query and key, whose axes were mixed up, had come that way.

    Lengths and positions are counted along the axes they have now. Masks and biases that came with the call are left
    out: they are made for the right axes.
    """

    def seen(run: Run) -> Inputs:
        return run.inputs.but(
            query=run.query,
            key=run.key,
            value=run.value,
            may_attend=None,
            is_token=None,
            document=None,
            bias=None,
        )

    return given(stage, seen)
