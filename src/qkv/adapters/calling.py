"""Calling: a probe's inputs handed to the candidate, in the best precision that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qkv.adapters.messages import Call, Cotangent, DType, Framework, Hosting, Recording, Reply, Returned
from qkv.errors import CandidateError

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: tuple[DType, ...] = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Outcome:
    """What the candidate gave for one probe.

    Attributes:
        output: ``(batch, query, width)``.
        dtype: the dtype it was computed in: that of the inputs, or the coarser one of the output.
        weights: ``(batch, head, query, key)`` where it returned them too.
        changed: arguments that it changed in place.
        printed: the end of what it printed.
        given: the dtype that the inputs were handed over in.
    """

    output: Array
    dtype: DType
    weights: Array | None = None
    changed: Sequence[str] = ()
    printed: str = ""
    given: DType = "float64"


@dataclass
class Caller:
    """Calls a candidate, and remembers the precision that it takes.

    Attributes:
        host: who holds it.
        framework: what its arrays are.
        dtype: the precision settled on; None before the first call that went well.
        allowed: the precisions to try, the best one first.
        fits: head_dim, and what lengths are a multiple of, in the first call of a function that went well.
        watch: whether calls are recorded.
        recording: what the candidate did in the last call, where it was recorded; one that failed until it did.
        axes: size of each axis of the next call by name, to explain shapes with.
        threads: how many threads the candidate may compute on. Probes are small: threads that wait for each other cost
            more than they do.
    """

    host: Hosting
    framework: Framework
    dtype: DType | None = None
    refused: dict[str, str] = field(default_factory=dict)
    allowed: Sequence[DType] = DTYPES
    fits: tuple[int, int] | None = None
    watch: bool = False
    recording: Recording | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1

    def call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, strided: bool, seed: int,
        cotangent: Cotangent | None = None,
    ) -> tuple[Reply, DType]:  # fmt: skip
        """The reply, and the precision of the inputs, as `request` gives them."""
        return self.request(Call(args, kwargs, strided=strided, seed=seed, cotangent=cotangent))

    def request(self, call: Call) -> tuple[Reply, DType]:
        """The reply to a call, or to several that follow each other, and the precision of the inputs.

        Raises:
            CandidateError: the candidate fails in every precision; the error is that of the best one.
        """
        first: CandidateError | None = None
        for dtype in self.allowed if self.dtype is None else (self.dtype,):
            try:
                then = [replace(one, dtype=dtype) for one in call.then]
                here = replace(call, watched=self.watch, axes=self.axes, threads=self.threads)
                reply = self.host.call(replace(here, dtype=dtype, then=then))
            except CandidateError as error:
                self.refused[dtype], self.recording = error.message, error.recording
                if error.fatal:
                    raise
                if first is None:
                    first = error
                if not _speaks_of_dtype(error):
                    break
            else:
                self.dtype, self.recording = dtype, reply.recording
                return reply, dtype
        assert first is not None
        raise first


def _speaks_of_dtype(error: CandidateError) -> bool:
    said = f"{error.message} {error.detail}".lower()
    return any(word in said for word in ("dtype", "float", "double", "half", "precision", "type"))


def outcome(reply: Reply, given: DType, output: Returned, weights: Array | None, changed: Sequence[str]) -> Outcome:
    """The outcome of a call whose output was found; a coarser output than input counts as the precision."""
    coarser = max(given, output.dtype, key=_coarseness)
    return Outcome(output.array, coarser, weights, changed, reply.printed, given)  # type: ignore[arg-type]


def _coarseness(dtype: str) -> int:
    return DTYPES.index(dtype) if dtype in DTYPES else 0


def found(reply: Reply, shaped: Callable[[Array], Array | None], expected: str) -> Returned:
    """The first array of the reply that ``shaped`` can turn into an output.

    Raises:
        CandidateError: no array has such a shape.
    """
    for returned in reply.returned:
        if returned.array.dtype.kind != "f":
            continue
        output = shaped(returned.array)
        if output is not None:
            return Returned(returned.path, output.astype(np.float64, copy=False), returned.dtype)
    kinds = {returned.dtype for returned in reply.returned if returned.array.dtype.kind != "f"}
    of = f" of {', '.join(sorted(kinds))}" if kinds else ""
    raise CandidateError(
        f"the candidate returned {reply.result or 'nothing'}{of}; expected floating numbers, {expected}",
        hint="return the context vectors; if the axes are in another order, say so with --layout",
    )
