"""Faults of queries that are computed tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qkv.faults.fault import Ways, fault
from qkv.faults.masking import hidden_by
from qkv.faults.needs import CAUSAL
from qkv.masks import Causal
from qkv.oracle import Replacements, Run
from qkv.oracle.stages import allowed
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

_SIZES = (4, 8, 16, 32, 64, 128)


def _up_to_the_first(queries: int, keys: int, counted: bool) -> Callable[[Run], Run]:
    """Nothing beyond the block of keys in which a tile's first query stands.

    Args:
        queries: the queries of a tile.
        keys: the keys of a block.
        counted: whether that query is counted from the first one of all, and what is before them added in the end.
    """

    def masked(run: Run) -> Run:
        at, offset = run.positions(), run.spec.offset_for(*run.inputs.lengths)
        first = (at.query - offset) // queries * queries
        end = (first // keys + 1) * keys + offset if counted else ((first + offset) // keys + 1) * keys
        return hidden_by(run, allowed(run) & (at.key < end))

    return masked


def _unlike_tiles(run: Run) -> Iterator[tuple[str, Replacements]]:
    for queries in _SIZES if run.spec.masks(Causal) else ():
        for keys in _SIZES:
            for counted in (False, True):
                note = f"tiles of {queries} queries, blocks of {keys} keys"
                yield (
                    f"{note}{', counted from query 0' * counted}",
                    {Stage.MASK: _up_to_the_first(queries, keys, counted)},
                )


@fault(
    "causal-tiles-skipped",
    Stage.MASK,
    title="blocks of keys are skipped that a tile's later queries see",
    explanation=(
        "Blocks that lie wholly in the future need not be computed. What counts is the last query of a tile: where its "
        "first one decides, the later ones lose keys that they should see, their own among them. The first row of "
        "each tile is right, and all that fits into one block."
    ),
    repair="for start in range(0, min(key_len, last_query_pos + 1), block):  # the last query of the tile",
    needs=[CAUSAL],
    further=_unlike_tiles,
    commonness=1,
)
def causal_tiles_skipped(spec: AttentionSpec) -> Ways:
    """``j < (i_first // B + 1) * B`` for ``j <= i``, ``i_first`` being where a tile of queries begins."""
    if spec.masks(Causal):
        for size in _SIZES:
            note = f"tiles of {2 * size} queries, blocks of {size} keys"
            yield note, {Stage.MASK: _up_to_the_first(2 * size, size, counted=False)}
