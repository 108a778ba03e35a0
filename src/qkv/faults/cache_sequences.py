"""Faults of whose keys and values a cache holds: those of another row of the batch, or of the sequence before."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from qkv.faults.caching import call_of_each_key, held
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CACHE
from qkv.faults.position import by_sides, turned
from qkv.faults.replacing import chain, given, impossible
from qkv.oracle import Array, Inputs, Replacements, Run, StageFunction, run_stages
from qkv.oracle.stages import STAGES, position
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "cache-other-sequence",
    Stage.POSITION,
    title="the cache holds the keys and values of another sequence",
    explanation=(
        "What a token sees came from another text: the cache was not emptied before a new sequence began, or the rows "
        "of a batch were put into another order, as beam search does, and their caches were not. With one sequence, "
        "handed over at once, nothing shows."
    ),
    repair="attention.reset_cache()  # before each new sequence; with beams: key = key[beam_order]",
    needs=[CACHE],
)
def cache_other_sequence(spec: AttentionSpec) -> Ways:
    """Older keys and values of another row of the batch; or those of the sequence before, in front of its own."""
    yield (
        "of another row of the batch",
        {Stage.POSITION: chain(position, _rows_moved(lambda rows: [rows - 1, *range(rows - 1)]))},
    )
    yield "of another row of the batch, with every call anew", {Stage.POSITION: chain(position, _rows_moved_on)}
    yield "of the batch's first row", {Stage.POSITION: chain(position, _rows_moved(lambda rows: [0] * rows))}
    pointers = (False, True)
    for emptied, turned_anew, masked_anew in product(
        EMPTIED, pointers if spec.rope is not None else (False,), pointers
    ):
        note = f"of the sequence before, in front of its own{EMPTIED[emptied]}"
        for anew, what in ((turned_anew, "rope"), (masked_anew, "the mask")):
            note += f", {what} begins anew" if anew else ""
        yield note, _not_emptied(emptied, turned_anew, masked_anew)


def _rows_moved(rows: Callable[[int], list[int]]) -> Callable[[Run], Run]:
    def moved(run: Run) -> Run:
        begin, batch = held(run), run.key.shape[0]
        if batch < 2:
            raise impossible("there is one sequence")
        order = run.xp.asarray(rows(batch))

        def mixed(x: Array) -> Array:
            other = run.xp.take(x, order, axis=0)
            return run.xp.concat([other[..., :begin, :], x[..., begin:, :]], axis=-2)

        return run.but(key=mixed(run.key), value=mixed(run.value))

    return moved


def _rows_moved_on(run: Run) -> Run:
    """Every call moves what the cache holds by one row."""
    calls = call_of_each_key(run)
    if run.key.shape[0] < 2:
        raise impossible("there is one sequence")

    def mixed(x: Array) -> Array:
        by = [calls[-1] - call for call in calls]
        return run.xp.stack([run.xp.roll(x[..., token, :], by[token], axis=0) for token in range(len(by))], axis=-2)

    return run.but(key=mixed(run.key), value=mixed(run.value))


EMPTIED: dict[tuple[str, ...], str] = {
    (): "",
    ("key", "value"): ", as zeros",
    ("key",): ", its keys as zeros",
    ("value",): ", its values as zeros",
}
"""What of the sequence before is overwritten with zeros, though its slots still count."""


def _not_emptied(emptied: tuple[str, ...], turned_anew: bool, masked_anew: bool) -> Replacements:
    """Keys and values of the sequence before in front of the own ones.

    Args:
        emptied: which of the two are zeros.
        turned_anew: whether rope counts the own tokens from 0, and not on from those before.
        masked_anew: the same of the mask, whose first column stands for the first token of the sequence before.
    """

    def positioned(run: Run) -> Run:
        before = run_stages(run.spec, _earlier(run))
        count = before.key.shape[-2]
        own = _turned(run, 0 if turned_anew else count)
        joined = {
            name: run.xp.concat([getattr(before, name), getattr(own, name)], axis=-2) for name in ("key", "value")
        }
        kept = run.array([token >= count for token in range(joined["key"].shape[-2])])[:, None]
        return own.but(**{name: array * kept if name in emptied else array for name, array in joined.items()})

    def masked(stage: StageFunction) -> StageFunction:
        def replaced(run: Run) -> Run:
            query_len, key_len = run.inputs.lengths
            spec = run.spec.but(query_offset=key_len - query_len) if masked_anew else run.spec
            return given(stage, _behind_the_earlier)(run.but(spec=spec)).but(spec=run.spec)

        return replaced

    return {Stage.POSITION: positioned} | {stage: masked(STAGES[stage]) for stage in (Stage.BIAS, Stage.MASK)}


def _turned(run: Run, behind: int) -> Run:
    """The own query and keys, turned as if that many tokens stood before them."""
    if run.spec.rope is None:
        return run

    def side(run: Run, x: Array, at: Array) -> Array:
        return turned(run, x, at + behind)

    return by_sides(side, side)[Stage.POSITION](run)


def _earlier(run: Run) -> Inputs:
    if run.inputs.earlier is None:
        raise impossible("no sequence came before")
    return run.inputs.earlier


def _behind_the_earlier(run: Run) -> Inputs:
    """The inputs as they are with the keys and values of the sequence before in front of their own."""
    inputs, earlier = run.inputs, _earlier(run)

    def joined(before: Array | None, own: Array | None, axis: int) -> Array | None:
        return None if before is None or own is None else run.xp.concat([before, own], axis=axis)

    own = inputs.x if inputs.source is None else inputs.source
    return inputs.but(
        source=joined(earlier.x, own, 1),
        key=joined(earlier.key, inputs.key, -2),
        value=joined(earlier.value, inputs.value, -2),
    )
