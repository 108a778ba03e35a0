"""Faults of the batch: one of query, key and value is read from another sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import SEVERAL_SEQUENCES
from qkv.faults.replacing import chain, impossible
from qkv.oracle import Array, Run, StageFunction
from qkv.oracle.stages import heads
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Place = Callable[[int, int, int, int], int]
"""The sequence that is read for one head of one sequence: of ``(sequence, head)`` and of how many there are of each."""

_PLACES: Mapping[str, Place] = {
    "the first sequence's for all": lambda b, h, batch, heads: 0,
    "the last sequence's for all": lambda b, h, batch, heads: batch - 1,
    "the sequence's before": lambda b, h, batch, heads: (b - 1) % batch,
    "the sequence's after": lambda b, h, batch, heads: (b + 1) % batch,
    "program id modulo batch": lambda b, h, batch, heads: (b * heads + h) % batch,
}

_ROLES: Mapping[str, tuple[str, ...]] = {
    "the key": ("key",),
    "the value": ("value",),
    "key and value": ("key", "value"),
    "the query": ("query",),
    "query, key and value": ("query", "key", "value"),
}


def _read(roles: tuple[str, ...], place: Place) -> StageFunction:
    def moved(run: Run) -> Run:
        batch, count = run.query.shape[:2]
        if batch == 1:
            raise impossible("there is one sequence")
        places = [[place(b, h, batch, count) for h in range(count)] for b in range(batch)]

        def other(x: Array) -> Array:
            return run.xp.stack(
                [run.xp.stack([x[b, h, ...] for h, b in enumerate(row)], axis=0) for row in places], axis=0
            )

        return run.but(**{role: other(getattr(run, role)) for role in roles})

    return chain(heads, moved)


@fault(
    "sequence-confused",
    Stage.HEADS,
    title="a sequence of the batch reads the query, key or value of another one",
    explanation=(
        "The index of the batch is dropped, or made wrongly of the number of the program, for one of the arrays: a "
        "sequence's tokens meet the tokens of another text. The sequence that happens to be meant is right, and with "
        "one sequence alone all is right; so a test with a batch of one doesn't show it."
    ),
    repair=(
        "attn_scores = torch.einsum('bhqd,bhkd->bhqk', query, key)  # each array with a b of its own\n"
        "# in a kernel: key_ptr + batch_index * batch_stride, and so for each array"
    ),
    needs=[SEVERAL_SEQUENCES],
    commonness=2,
)
def sequence_confused(spec: AttentionSpec) -> Ways:
    """``k[b']`` for ``k[b]``, with ``b'`` the first, the last, the next, or ``(b * num_heads + h) % batch``."""
    for words, place in _PLACES.items():
        for who, roles in _ROLES.items():
            yield f"{who}: {words}", {Stage.HEADS: _read(roles, place)}
