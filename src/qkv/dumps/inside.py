"""What a dump holds of the way from query to output: the tensor of each stage beside the oracle's, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.adapters.dump import INSIDE
from qkv.comparison import DRAWS, EPSILON, FLOOR, MARGIN, Bools, Floats, rounded_run
from qkv.dumps.observed import DumpReading
from qkv.oracle import Run
from qkv.report import ProbeResult
from qkv.vocabulary import HIDDEN_BELOW, Stage

Getter = Callable[[Run], Floats]


def log_sum_exp(run: Run) -> Floats:
    """The logarithm of each row's sum of exponentials, a sink included, ``(batch, head, query)``."""
    scores = run.before[Stage.SOFTMAX].scores
    parts = [scores]
    if run.spec.sinks and run.inputs.sinks is not None:
        parts.append(np.broadcast_to(run.inputs.sinks.reshape(1, -1, 1, 1), (*scores.shape[:3], 1)))
    joined = np.concatenate(parts, axis=-1)
    top = joined.max(axis=-1)
    finite = np.where(np.isfinite(top), top, 0.0)
    return finite + np.log(np.exp(joined - finite[..., None]).sum(axis=-1))


def _scores_after(stage: Stage) -> Getter:
    return lambda run: run.before[stage].scores


_GETTERS: Mapping[str, tuple[Stage, Mapping[str, Getter]]] = {
    "query_turned": (Stage.POSITION, {"": lambda run: run.before[Stage.SCORES].query}),
    "key_turned": (Stage.POSITION, {"": lambda run: run.before[Stage.SCORES].key[:, :: run.spec.group_size]}),
    "scores": (
        Stage.SCORES,
        {
            "as they are": _scores_after(Stage.SCALE),
            "scaled": _scores_after(Stage.SOFTCAP),
            "capped": _scores_after(Stage.BIAS),
            "with the bias": _scores_after(Stage.MASK),
            "masked": _scores_after(Stage.SOFTMAX),
        },
    ),
    "lse": (Stage.SOFTMAX, {"": log_sum_exp}),
    "weights": (Stage.SOFTMAX, {"": lambda run: run.before[Stage.DROPOUT].weights}),
    "context": (Stage.MIX, {"": lambda run: run.before[Stage.MERGE].context}),
}
"""For each role the stage that makes it, and the oracle's own: several for scores, which may be taken anywhere."""


@dataclass(frozen=True)
class Inner:
    """One tensor from inside, beside the oracle's.

    Attributes:
        role: what it is.
        name: its name in the dump.
        stage: the stage that makes it.
        agrees: whether every row that counts is right; None where its shape fits none of the oracle's tensors.
        max_error: the largest error in a row that counts.
        tolerance: what rounding may do there.
        place: batch, head, query and the last axis of the first wrong entry.
        note: which scores they are; or why it could not be compared.
    """

    role: str
    name: str
    stage: Stage
    agrees: bool | None
    max_error: float | None = None
    tolerance: float | None = None
    place: tuple[int, ...] = ()
    note: str = ""

    @property
    def probe(self) -> ProbeResult:
        """The same as a line in the report's table of probes."""
        return ProbeResult(
            f"{self.role} in the dump",
            f"the stage {self.stage}",
            self.agrees,
            self.max_error,
            self.tolerance,
            self.note,
        )

    def __str__(self) -> str:
        spots = ", ".join(
            f"{axis} {place}" for axis, place in zip(("sequence", "head", "query", "entry"), self.place, strict=False)
        )
        return f"{self.name} departs first at {spots}"


def inner_tensors(reading: DumpReading, run: Run) -> list[Inner]:
    """Every tensor from inside that the dump holds, in the order they are made."""
    return [_compared(reading, run, role) for role in INSIDE if role in reading.dump.tensors]


def first_departure(inner: Sequence[Inner]) -> Inner | None:
    """The first tensor that is wrong; None where none is."""
    return next((one for one in inner if one.agrees is False), None)


def _compared(reading: DumpReading, run: Run, role: str) -> Inner:
    tensor, (stage, getters) = reading.dump.tensors[role], _GETTERS[role]
    best: Inner | None = None
    for kind, getter in getters.items():
        right = getter(run)
        got = shaped(reading, role, right.shape)
        if got is None:
            shape = tensor.array.shape
            note = f"{tensor.name} has shape {shape}, which is not that of the {role}: {right.shape}"
            return Inner(role, tensor.name, stage, None, note=note)
        one = _beside(reading, run, getter, (right, got), Inner(role, tensor.name, stage, None, note=kind))
        if one.agrees:
            return one
        if best is None or (one.max_error or 0.0) < (best.max_error or 0.0):
            best = one
    assert best is not None
    return best


def _beside(reading: DumpReading, run: Run, getter: Getter, pair: tuple[Floats, Floats], blank: Inner) -> Inner:
    right, got = pair
    if got.shape[1] != right.shape[1]:
        getter, right = _averaged(getter), right.mean(axis=1, keepdims=True)
    hidden = _hidden(run, right, blank)
    with np.errstate(all="ignore"):
        off = np.where(hidden | (got == right), 0.0, np.abs(got - right))
        off = np.where(np.isnan(off), np.inf, off)
        rows = off if off.ndim == 3 else off.max(axis=-1)
        allowed = _allowed(reading, run, getter, right, hidden)
    judged = _judged(reading, run, rows.shape)
    wrong = (rows > allowed) & judged
    place: tuple[int, ...] = ()
    if wrong.any():
        place = tuple(int(p) for p in np.argwhere(wrong)[0])
        if off.ndim == 4:
            place = (*place, int(np.argmax(off[place] > allowed[place])))
    error = float(np.max(rows, where=judged, initial=0.0))
    return Inner(blank.role, blank.name, blank.stage, not wrong.any(), error, float(allowed.max()), place, blank.note)


def _averaged(getter: Getter) -> Getter:
    """The mean over the heads of what the getter gives."""
    return lambda run: getter(run).mean(axis=1, keepdims=True)


def _hidden(run: Run, right: Floats, blank: Inner) -> Bools:
    """Entries of scores that don't count: those of hidden keys, whose fill is anybody's choice."""
    if blank.role == "scores" and run.may_attend is not None and right.shape[1] == run.may_attend.shape[1]:
        return ~np.broadcast_to(run.may_attend, right.shape)
    return np.isneginf(right) & (right <= HIDDEN_BELOW)


def _allowed(reading: DumpReading, run: Run, getter: Getter, right: Floats, hidden: Bools) -> Floats:
    """What rounding may do to each row: see `comparison.tolerance_of`."""
    dtype = max((reading.dtype, "float32"), key=lambda one: EPSILON[one])
    finite = np.where(hidden | ~np.isfinite(right), 0.0, right)
    off = np.zeros(right.shape)
    for draw in range(DRAWS):
        moved = np.where(hidden, 0.0, getter(rounded_run(run, dtype, {}, draw)))
        off = np.maximum(off, np.nan_to_num(np.abs(moved - finite), nan=0.0, posinf=0.0))
    rounding = off if right.ndim == 3 else off.max(axis=-1)
    largest: Floats = np.abs(finite).max(axis=tuple(range(2, right.ndim)), keepdims=True).reshape(*right.shape[:2], 1)
    return np.maximum(MARGIN * rounding, FLOOR * EPSILON[dtype] * np.maximum(largest, np.finfo(float).tiny))


def _judged(reading: DumpReading, run: Run, shape: tuple[int, ...]) -> Bools:
    """The rows that count, ``(batch, head, row)``: not what a NaN reaches, not padding, not queries without any key."""
    untouched = reading.untouched(run).transpose(0, 2, 1)
    judged = untouched & run.may_attend.any(axis=-1)
    if shape[1] != judged.shape[1]:
        judged = judged.all(axis=1, keepdims=True) if shape[1] == 1 else judged[:, :: run.spec.group_size]
    if judged.shape != shape:  # rows are keys
        judged = np.ones(shape, dtype=bool)
    if run.inputs.is_token is not None and run.inputs.is_token.shape[1] == shape[2]:
        judged = judged & run.inputs.is_token[:, None, :]
    return judged


def shaped(reading: DumpReading, role: str, shape: tuple[int, ...]) -> Floats | None:
    """A tensor from inside as ``(batch, head, row, ...)``, one head where it is their mean; None where it can't be."""
    array = reading.dump.tensors[role].array
    whole = reading.arrangement
    sizes = whole.sizes
    batch, heads, queries, keys = sizes["batch"], whole.num_heads, sizes["queries"], sizes["keys"]
    if role == "query_turned" and array.shape == reading.dump.tensors["query"].array.shape:
        return _part(reading, whole.query(array), "BHQD")
    if role == "key_turned" and array.shape == reading.dump.tensors["key"].array.shape:
        return _part(reading, whole.key(array), "BGKD")
    if role == "context" and array.shape == reading.dump.tensors["output"].array.shape:
        return _part(reading, whole.output(array), "BHQD")
    rows = {"lse": ("BHQ", (batch, heads, queries)), "weights": ("BHQK", (batch, heads, queries, keys))}
    rows["scores"] = rows["weights"]
    if role == "context":
        rows["context"] = ("BHQD", (batch, heads, queries, sizes["value_dim"]))
    axes, wanted = rows.get(role, ("", shape))
    for one in _forms(array, wanted):
        return _part(reading, one, axes)
    return None


def _forms(array: Floats, wanted: tuple[int, ...]) -> Iterator[Floats]:
    """The array with batch and heads apart, if it has them together, exchanged, or lacks one."""
    batch, heads, *rest = wanted
    if array.shape == wanted:
        yield array
    elif array.shape == (batch * heads, *rest):
        yield array.reshape(wanted)
    elif array.shape == (batch, *rest) and heads > 1:
        yield array[:, None]
    elif len(wanted) == 3 and array.shape == (batch, rest[0], heads):
        yield array.transpose(0, 2, 1)
    elif array.ndim > len(wanted) and 1 in array.shape:
        yield from _forms(np.squeeze(array), wanted)
    elif array.shape == (batch, rest[0], heads, *rest[1:]):
        yield np.swapaxes(array, 1, 2)


def _part(reading: DumpReading, array: Floats, axes: str) -> Floats:
    return reading.part.of(array, axes, reading.arrangement.num_heads // reading.arrangement.kv_heads)
