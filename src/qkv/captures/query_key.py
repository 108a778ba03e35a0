"""Weights from query and key: what a spec makes of them, by the oracle, and computed only where it is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from qkv.adapters.values import dtype_name, to_float64
from qkv.captures.sequences import sequence_note
from qkv.dumps.arrangements import Arrangement, arrangements
from qkv.dumps.handed import handed
from qkv.dumps.judging import LARGEST, facts_of
from qkv.dumps.observed import DumpReading, spec_here
from qkv.dumps.tensors import Dump, Tensor
from qkv.errors import CandidateError, ShapeError
from qkv.inference import Intention
from qkv.pictures.attention import LayerWeights
from qkv.pictures.weights import computed_heads
from qkv.spec import describe
from qkv.vocabulary import MaskMeaning

MOST_ARRANGEMENTS = 8


@dataclass(frozen=True)
class QueryAndKey:
    """A query and a key, with what came with them, in one reading of their axes.

    Attributes:
        reading: the tensors as they were read.
        given: the roles that were really there.
        others: how many more arrangements of the axes fit.
        unfit: a value that fits none of them; None where there is none.
    """

    reading: DumpReading
    given: frozenset[str]
    others: int
    unfit: Tensor | None

    @property
    def agrees(self) -> bool | None:
        """Whether the output is what the spec makes of the rest; None where that isn't known, or is too much work."""
        sizes = self.reading.arrangement.sizes
        cost = sizes["batch"] * self.reading.spec.num_heads * sizes["queries"] * sizes["keys"]
        if "output" not in self.given or cost > LARGEST:
            return None
        return self.reading.observation(judge_empty_rows=False).comparison.agrees

    def layer(self, name: str, sequence: int) -> tuple[LayerWeights, list[str]]:
        """The heads of one sequence, and how all was read, in sentences.

        Raises:
            ShapeError: there is no such sequence.
        """
        tensors, arrangement = self.reading.dump.tensors, self.reading.arrangement
        query, key = arrangement.query(tensors["query"].array), arrangement.key(tensors["key"].array)
        inputs = self.reading.inputs().but(query=query, key=key)  # with what is NaN in them
        notes = [*self._notes(), *sequence_note(sequence, inputs.batch, name)]
        heads = computed_heads(self.reading.spec, inputs, sequence=sequence)
        if "value" not in self.given:
            heads = tuple(head.but(value=None) for head in heads)
        return LayerWeights(name, heads), notes

    def _notes(self) -> list[str]:
        """How the tensors were read, in sentences."""
        reading = self.reading
        axes = f"Axes are read as {reading.arrangement}"
        agrees = self.agrees
        if self.others and not agrees:
            axes += f", which is one way of {self.others + 1} that fit; the layout and the number of heads settle it"
        unfit = f"{self.unfit.name} {self.unfit.array.shape} doesn't fit, and is left out" if self.unfit else ""
        broken = [tensor.not_numbers for role, tensor in reading.dump.tensors.items() if role in self.given]
        spec = reading.spec.but(value_dim=None, out_proj=True)  # neither is seen in weights
        notes = [f"Computed from query and key: {describe(spec)}", axes, unfit, *reading.handed.assumptions, *broken]
        if agrees is not None:
            notes.append(
                "The output is what these weights make" if agrees else "The output is not what these weights make"
            )
        return [note for note in notes if note]


def query_and_key(
    dump: Dump, said: Intention, layout: str | None = None, mask_meaning: MaskMeaning | None = None
) -> QueryAndKey:
    """Query and key in a reading of their axes, and of a mask, under which the output agrees; else in the likeliest.

    Args:
        dump: the tensors, of which query and key must be there.
        said: what was said of the attention.
        layout: the order of axes; None to tell it from the shapes.
        mask_meaning: what a mask's entries mean; None for any.

    Raises:
        CandidateError: the shapes fit no reading.
    """
    given, whole, found = _completed(dump, said, layout)
    unfit = None if "value" in given else dump.tensors.get("value")
    read, errors = [], []
    for one in found[:MOST_ARRANGEMENTS]:
        try:
            ways = handed(whole, one, mask_meaning)
        except CandidateError as error:  # the mask fits another arrangement
            errors.append(error)
            continue
        spec = spec_here(said.spec, one)
        read += [
            QueryAndKey(DumpReading(whole, spec, one, way, facts_of(whole)), given, len(found) - 1, unfit)
            for way in ways
        ]
    if not read:
        raise errors[0]
    return next((one for one in read if len(read) > 1 and one.agrees), read[0])


def _completed(dump: Dump, said: Intention, layout: str | None) -> tuple[frozenset[str], Dump, list[Arrangement]]:
    """The roles that count as given, the tensors with stand-ins for what is missing, and the arrangements that fit.

    An output without its value counts as missing, and so does a value without an output where its shape fits nothing.
    """
    given, tensors = frozenset(dump.tensors), dump.tensors
    if given >= {"value", "output"}:
        return given, dump, arrangements(dump, said.spec, said.stated, layout)
    query, key = tensors["query"], tensors["key"]
    if "value" in given:
        # As many channels as the value has for those of the key, in each head or in all together.
        channels = query.array.shape[-1] * tensors["value"].array.shape[-1] // max(1, key.array.shape[-1])
        output = replace(query, array=np.broadcast_to(query.array[..., :1], (*query.array.shape[:-1], channels)))
        whole = replace(dump, tensors={**tensors, "output": output})
        with suppress(CandidateError):
            return given, whole, arrangements(whole, said.spec, said.stated, layout)
    whole = replace(dump, tensors={**tensors, "value": key, "output": query})
    return given - {"value", "output"}, whole, arrangements(whole, said.spec, said.stated, layout)


def tensors_of(arrays: Mapping[str, object]) -> Dump:
    """Arrays that were handed over, as a dump of them.

    Raises:
        CandidateError: one holds no real numbers, or none at all.
    """
    tensors = {}
    for role, array in arrays.items():
        try:
            numbers = to_float64(array)
        except CandidateError as error:
            raise CandidateError(f"{role} {error.message}", hint=error.hint) from None
        if not numbers.size:
            raise ShapeError(f"{role} has shape {numbers.shape}: there is nothing in it")
        tensors[role] = Tensor(role, dtype_name(array) if hasattr(array, "dtype") else "float64", numbers)
    return Dump("", "", tensors)
