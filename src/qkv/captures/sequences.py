"""Sequences of a batch: one is shown, and what is said of the others."""

from __future__ import annotations

from qkv.errors import ShapeError


def sequence_note(sequence: int, batch: int, name: str) -> list[str]:
    """What is to be said where there are other sequences than the one that is shown: a sentence, or none.

    Args:
        sequence: the number of the one that is asked for.
        batch: how many there are.
        name: what holds them.

    Raises:
        ShapeError: there is no such sequence.
    """
    if not 0 <= sequence < batch:
        held = "one sequence" if batch == 1 else f"{batch} sequences, 0 to {batch - 1}"
        raise ShapeError(f"{name} holds {held}, and sequence {sequence} was asked for")
    if batch == 1:
        return []
    other = "the other" if batch == 2 else "another"
    return [f"Sequence {sequence} of {batch}, counted from 0; --sequence {0 if sequence else 1} shows {other}"]
