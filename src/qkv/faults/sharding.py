"""Faults of attention that is shared out among devices: heads by rank, tokens by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qkv.faults.as_if import unless
from qkv.faults.bias import OTHER_SLOPES, right_slopes, with_slopes
from qkv.faults.fault import Ways, fault
from qkv.faults.kv_heads import reading_heads
from qkv.faults.masking import hidden_by, without
from qkv.faults.needs import ALIBI, CAUSAL, SEVERAL_HEADS
from qkv.faults.replacing import chain
from qkv.masks import Causal
from qkv.oracle import Array, Run, StageFunction
from qkv.oracle.stages import allowed, heads, mix
from qkv.positions import alibi_slopes
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


def _ranks(spec: AttentionSpec) -> Iterator[tuple[int, int]]:
    """Numbers of devices that the heads can be shared out to, several to each, and how many each then has."""
    for ranks in (2, 3, 4, 8):
        if spec.num_heads % ranks == 0 and spec.num_heads > ranks:
            yield ranks, spec.num_heads // ranks


@fault(
    "tensor-parallel-heads",
    Stage.HEADS,
    title="devices that share the heads take the wrong ones",
    explanation=(
        "With the heads shared out among devices, each counts its own from 0, and must add where its share begins. "
        "Without that every device works on the first one's heads, or reads the first one's key/value heads; and if "
        "the devices' results are not added up, the others' heads are missing. The first device's heads are right."
    ),
    repair="kv_head = (rank * heads_per_rank + head) // group_size - rank * kv_heads_per_rank",
    needs=[SEVERAL_HEADS],
    commonness=1,
)
def tensor_parallel_heads(spec: AttentionSpec) -> Ways:
    """Head ``h`` computes what ``h % (num_heads / ranks)`` does, reads its key/value head, or gives zeros."""
    kv_heads, group = spec.kv_heads, spec.group_size
    every = range(spec.num_heads)
    known = [[head // group for head in every], [head % kv_heads for head in every], [head % group for head in every]]
    known += [[0 for _ in every], [head // kv_heads for head in every]]
    for ranks, share in _ranks(spec):
        chosen = [head % share // group for head in every]
        if share % group == 0 and chosen not in known:
            yield f"{ranks} devices, all read the first one's key/value heads", reading_heads(chosen.__getitem__)
        yield f"{ranks} devices, all have the first one's heads", {Stage.HEADS: chain(heads, _of_first(share))}
        yield f"{ranks} devices, the others' heads are missing", {Stage.MIX: chain(mix, _only_first(share))}


def _of_first(share: int) -> StageFunction:
    def repeated(run: Run) -> Run:
        def one(x: Array) -> Array:
            return run.xp.stack([x[:, head % share, ...] for head in range(run.spec.num_heads)], axis=1)

        return run.but(query=one(run.query), key=one(run.key), value=one(run.value))

    return repeated


def _only_first(share: int) -> StageFunction:
    def cut(run: Run) -> Run:
        mine = run.xp.arange(run.spec.num_heads)[:, None, None] < share
        return run.but(context=run.xp.where(mine, run.context, run.xp.zeros_like(run.context)))

    return cut


@fault(
    "alibi-local-heads",
    Stage.BIAS,
    title="alibi's slopes go by a head's number on its device",
    explanation=(
        "Each head has its own slope. Where the heads are shared out among devices and each counts its own from 0, "
        "every device uses the first slopes of the row, or those of a model of so few heads. The first device's heads "
        "may be right, the others' are wrong in every row with more than one visible key."
    ),
    repair="slopes = alibi_slopes(num_heads)[rank * heads_per_rank : (rank + 1) * heads_per_rank]",
    needs=[ALIBI, SEVERAL_HEADS],
    commonness=1,
)
def alibi_local_heads(spec: AttentionSpec) -> Ways:
    """``m_(h % share)`` for ``m_h``, from the slopes of all heads or of ``share`` heads."""
    if spec.alibi is None:
        return
    known = [right_slopes(spec), *(slopes(spec) for slopes in OTHER_SLOPES.values())]
    for ranks, share in _ranks(spec):
        rows = {"the slopes of all heads": right_slopes(spec), f"the slopes of {share} heads": alibi_slopes(share)}
        for words, row in rows.items():
            slopes = [row[head % share] for head in range(spec.num_heads)]
            if slopes not in known:
                known.append(slopes)
                yield f"{ranks} devices, {words}", with_slopes(_always(slopes))


def _always(slopes: list[float]) -> Callable[[AttentionSpec], list[float]]:
    return lambda spec: slopes


Seen = Callable[[Array, Array, int], Array]
"""Which keys a query may attend to, by the positions of both and the tokens of a device (striped: the devices)."""

_RINGS: dict[str, Seen] = {
    "in chunks, each pair of chunks masked by places within them": lambda query, key, size: key % size <= query % size,
    "in chunks, earlier ones masked by places within them": lambda query, key, size: (
        (key % size <= query % size) & (key // size <= query // size)
    ),
    "in chunks, the own one not masked": lambda query, key, size: key // size <= query // size,
    "in chunks, earlier ones left out": lambda query, key, size: (key <= query) & (key // size == query // size),
}


@fault(
    "ring-causal",
    Stage.MASK,
    title="tokens shared out among devices are masked by their places on the device",
    explanation=(
        "With the tokens shared out among devices, keys travel round the ring, and the causal mask must compare where "
        "query and key stand in the whole text. Compared by their places on the device, a query misses keys of "
        "earlier chunks and sees some of later ones. With one device all is right, and the first chunk mostly too."
    ),
    repair="may_attend = rank_of_key * chunk + key_pos <= rank * chunk + query_pos  # positions in the whole text",
    needs=[CAUSAL],
    commonness=1,
)
def ring_causal(spec: AttentionSpec) -> Ways:
    """``j % c <= i % c`` for ``j <= i``, with ``c`` tokens a device; or striped: ``j // ranks <= i // ranks``."""
    if not spec.masks(Causal):
        return
    for ranks in (2, 3, 4, 8):
        for words, seen in _RINGS.items():
            yield f"{ranks} devices, {words}", {Stage.MASK: _ring(seen, ranks)}
        yield f"{ranks} devices, striped", {Stage.MASK: _ring(_striped, ranks)}


def _ring(seen: Seen, ranks: int) -> StageFunction:
    def masked(run: Run) -> Run:
        at, key_len = run.positions(), run.inputs.lengths[1]
        chunk = -(-key_len // ranks)
        unless(chunk < 2, "there is one token to a device")
        rest = allowed(run.but(spec=run.spec.but(mask=without(run.spec.mask, Causal))))
        return hidden_by(run, rest & seen(at.query, at.key, ranks if seen is _striped else chunk))

    return masked


def _striped(query: Array, key: Array, ranks: int) -> Array:
    """Each device has every ``ranks``-th token, and compares the numbers that its own tokens have there."""
    return key // ranks <= query // ranks
