"""Run: everything one attention has computed so far. A stage takes a run and gives the run that follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

import array_api_compat

from qkv.masks import Positions
from qkv.oracle.inputs import Array, Inputs
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Own = TypeVar("Own", bound="Run")


@dataclass(frozen=True)
class Run:
    """The tensors made so far. Each stage replaces those it changes; ``before[stage]`` keeps what the stage was given.

    Attributes:
        spec: what is computed.
        inputs: what it is computed from.
        query: ``(batch, token, num_heads * head_dim)`` after ``project``, ``(batch, head, query, head_dim)`` from
            ``heads`` on.
        key: likewise; from ``heads`` on with one key head per *query* head.
        value: likewise.
        scores: ``(batch, head, query, key)``, from ``scores`` to ``mask``.
        may_attend: ``(batch, head, query, key)`` booleans, from ``mask`` on.
        weights: ``(batch, head, query, key)``, from ``softmax`` on.
        context: ``(batch, head, query, value_dim)`` after ``mix``, ``(batch, query, num_heads * value_dim)`` after
            ``merge``.
        output: ``(batch, query, embed_dim)``; without an output projection the merged context.
        before: the run that each stage was given.
        parts: the run of each chunk, where the sequence was handed over in several.
    """

    spec: AttentionSpec
    inputs: Inputs
    query: Array = None
    key: Array = None
    value: Array = None
    scores: Array = None
    may_attend: Array = None
    weights: Array = None
    context: Array = None
    output: Array = None
    before: Mapping[Stage, Run] = field(default_factory=dict, repr=False)
    parts: Sequence[Run] = field(default=(), repr=False)

    def but(self: Own, **changes: Any) -> Own:
        """The same run with some tensors replaced."""
        # What dataclasses.replace does, without its checks: the diagnosis does this a hundred thousand times.
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    @property
    def xp(self) -> ModuleType:
        """The array library that the inputs come from."""
        kind = type(self.example)
        if kind not in _LIBRARIES:
            _LIBRARIES[kind] = array_api_compat.array_namespace(self.example)
        return _LIBRARIES[kind]

    @property
    def example(self) -> Array:
        """An input array, for its dtype and device."""
        return self.inputs.x if self.inputs.x is not None else self.inputs.query

    def array(self, numbers: Any) -> Array:
        """``numbers`` as an array of the inputs' library, dtype and device."""
        return self.xp.asarray(numbers, dtype=self.example.dtype, device=array_api_compat.device(self.example))

    def token_positions(self) -> tuple[Array, Array]:
        """Absolute positions of the queries and of the keys, ``(query,)`` and ``(key,)``."""
        query_len, key_len = self.inputs.lengths
        device = array_api_compat.device(self.example)
        offset = self.spec.offset_for(query_len, key_len)
        return self.xp.arange(query_len, device=device) + offset, self.xp.arange(key_len, device=device)

    def positions(self) -> Positions:
        """Where queries and keys stand, as masks read it."""
        query, key = self.token_positions()
        document, is_token = self.inputs.document, self.inputs.is_token
        return Positions.of(
            query,
            key,
            query_document=None if document is None else self._documents_at(document, query)[:, None, :, None],
            key_document=None if document is None else document[:, None, None, :],
            key_is_token=None if is_token is None else is_token[:, None, None, :],
        )

    def _documents_at(self, document: Array, positions: Array) -> Array:
        """Document number at each position, ``(batch, query)``: where no token stands, a number that no key has."""
        xp = self.xp
        last = document.shape[1] - 1
        nearest = xp.take(document, xp.clip(positions, 0, last), axis=1)
        return xp.where((positions >= 0) & (positions <= last), nearest, xp.min(document) - 1)


_LIBRARIES: dict[type, ModuleType] = {}
"""The array library of each kind of array that was met."""

StageFunction = Callable[[Run], Run]
"""What a stage is: from the run before it to the run after it."""

Replacements = Mapping[Stage, StageFunction]
"""Some stages done another way. A fault is one of these."""
