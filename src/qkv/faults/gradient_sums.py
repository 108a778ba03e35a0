"""Faults of the backward pass in the sums over queries and keys: blocks left out, axes turned, tokens counted twice."""

from __future__ import annotations

from collections.abc import Callable

from qkv.faults.gradient import BackwardWays, after, before, each, gradient_fault
from qkv.faults.replacing import fitting, impossible
from qkv.oracle import Array, Backward, BackwardReplacements, Run
from qkv.oracle.backward import mix, scores
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

SIZES = (1, 2, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256)
"""Sizes of blocks that are tried."""

Kept = Callable[[Run, Array, Array], Array]
"""Which pairs of a query and a key are kept, of their indices ``(query, 1)`` and ``(1, key)``."""


def _summed(kept: Kept, *names: str) -> BackwardReplacements:
    """Only some pairs of query and key take part in the sums of these gradients."""

    def pairs(run: Run, like: Array) -> Array:
        queries, keys = run.xp.arange(like.shape[-2]), run.xp.arange(like.shape[-1])
        everywhere = queries[:, None] + 0 * keys[None, :] >= 0
        pairs = everywhere & kept(run, queries[:, None], keys[None, :])
        if not run.xp.any(pairs) or run.xp.all(pairs):
            raise impossible("there is one block only")
        return run.xp.astype(pairs, like.dtype)

    def of_scores(back: Backward) -> Backward:
        part = scores(back.but(scores=back.scores * pairs(back.run, back.scores)))
        whole = scores(back)
        return whole.but(**{name: getattr(part, name) for name in names if name != "value"})

    def of_mix(back: Backward) -> Backward:
        run = back.run
        part = mix(back.but(run=run.but(weights=run.weights * pairs(run, run.weights))))
        return mix(back).but(value=part.value)

    ways: BackwardReplacements = {Stage.MIX: of_mix} if "value" in names else {}
    return {**ways, Stage.SCORES: of_scores} if names != ("value",) else ways


def _last(size: int, count: int) -> int:
    """Where the last block begins: the incomplete one, or the last whole one."""
    return (count - 1) // size * size


@gradient_fault(
    "gradient-block",
    Stage.SCORES,
    title="the backward pass leaves out blocks of queries or keys",
    explanation=(
        "A kernel goes through queries and keys block by block and adds up. Here a block is left out, or a result is "
        "assigned where it should be added, so that only one block counts: dq lacks keys, or dk and dv lack queries. "
        "With lengths of one block, or a multiple of it, all can be right."
    ),
    repair=(
        "for start in range(0, query_len, block):  # to the end; the last block is shorter\n"
        "    dk += ds[start : start + block].T @ query[start : start + block]"
    ),
)
def gradient_block(spec: AttentionSpec) -> BackwardWays:
    """Only the first or the last block, all but the last or all full ones, the diagonal ones, or all but those."""
    for size in SIZES:
        for note, names, along_keys in (
            ("dq, dk and dv: {} of queries", ("query", "key", "value"), False),
            ("dq, dk and dv: {} of keys", ("query", "key", "value"), True),
            ("dq: {} of keys", ("query",), True), ("dk and dv: {} of queries", ("key", "value"), False),
            ("dk: {} of queries", ("key",), False), ("dv: {} of queries", ("value",), False),
        ):  # fmt: skip
            for words, kept in _kept_blocks(size, along_keys).items():
                yield f"{note.format(words)}, in blocks of {size}", _summed(kept, *names)
        for words, names in (("dq", ("query",)), ("dk and dv", ("key", "value"))):
            yield (
                f"{words}: the rows of an unfilled last block of {size} get nothing",
                _rows_left_out(_full(size), names),
            )
            yield (
                f"{words}: the blocks of {size} on the diagonal are left out",
                _summed(lambda run, q, k, size=size: q // size != k // size, *names),  # type: ignore[misc]
            )
            yield (
                f"{words}: only the blocks of {size} on the diagonal count",
                _summed(lambda run, q, k, size=size: q // size == k // size, *names),  # type: ignore[misc]
            )
            yield f"{words}: the last rows, of a block of {size}, get nothing", _rows_left_out(_but_last(size), names)


Which = Callable[[Array, int], Array]
"""Which of some queries or keys are kept, of their places and of how many there are."""


def _but_last(size: int) -> Which:
    return lambda at, count: at < _last(size, count)


def _full(size: int) -> Which:
    """All but a last block that isn't full, unless it is the only one."""
    return lambda at, count: at < max(count // size * size, min(size, count))


def _kept_blocks(size: int, along_keys: bool) -> dict[str, Kept]:
    def of(keep: Which) -> Kept:
        return lambda run, q, k: keep(k, k.shape[1]) if along_keys else keep(q, q.shape[0])

    return {
        "only the first block": of(lambda at, count: at < size),
        "only the last block": of(lambda at, count: at >= _last(size, count)),
        "all but the last, unfilled block": of(_full(size)),
        "all but the last block": of(_but_last(size)),
        "all but the first block": of(lambda at, count: at >= size),
    }


def _rows_left_out(kept: Which, names: tuple[str, ...]) -> BackwardReplacements:
    """Rows of the last block are never stored."""

    def cut(run: Run, gradient: Array) -> Array:
        count = gradient.shape[-2]
        stored = kept(run.xp.arange(count), count)
        if not run.xp.any(stored) or run.xp.all(stored):
            raise impossible("there is one block only")
        return gradient * run.xp.astype(stored, gradient.dtype)[:, None]

    return before(Stage.POSITION, each(cut, *names))


@gradient_fault(
    "gradient-transposed",
    Stage.SCORES,
    title="a matrix of the backward pass is used without its transpose, or with one too many",
    explanation=(
        "dq = ds @ key, but dk = ds^T @ query and dv = p^T @ d_out: a key sums over its column. Without the transpose "
        "the sum goes over a row, which runs whenever there are as many queries as keys."
    ),
    repair="dk = ds.transpose(-1, -2) @ query\ndv = p.transpose(-1, -2) @ d_out",
)
def gradient_transposed(spec: AttentionSpec) -> BackwardWays:
    """``ds @ q`` for ``ds^T @ q``, ``p @ do`` for ``p^T @ do``, ``ds^T @ k`` for ``ds @ k``."""

    def turned_scores(*names: str) -> Callable[[Backward], Backward]:
        def turned(back: Backward) -> Backward:
            other = fitting(back.scores, back.run.xp.matrix_transpose(back.scores))
            wrong = scores(back.but(scores=other))
            return scores(back).but(**{name: getattr(wrong, name) for name in names})

        return turned

    def turned_weights(back: Backward) -> Backward:
        weights = fitting(back.run.weights, back.run.xp.matrix_transpose(back.run.weights))
        return mix(back).but(value=mix(back.but(run=back.run.but(weights=weights))).value)

    yield "dk and dv", {Stage.SCORES: turned_scores("key"), Stage.MIX: turned_weights}
    yield "dk", {Stage.SCORES: turned_scores("key")}
    yield "dv", {Stage.MIX: turned_weights}
    yield "dq", {Stage.SCORES: turned_scores("query")}
    yield "dq and dk", {Stage.SCORES: turned_scores("query", "key")}


@gradient_fault(
    "gradient-value-channels",
    Stage.MIX,
    title="the gradient of the weights is made from a part of the value's channels",
    explanation=(
        "dp = d_out @ value^T sums over all channels of the value. A kernel that takes head_dim for both widths leaves "
        "channels out where the value has more of them; dq and dk are wrong in every row, and dv is right."
    ),
    repair="dp = d_out @ value.transpose(-1, -2)  # over value_dim channels, not head_dim",
)
def gradient_value_channels(spec: AttentionSpec) -> BackwardWays:
    """``dp`` from the first channels."""
    for size in (None, 2, 4, 8, 16, 32, 64, 128):
        yield "as many as the query has" if size is None else f"the first {size}", {Stage.MIX: _first_channels(size)}


def _first_channels(size: int | None) -> Callable[[Backward], Backward]:
    def cut(back: Backward) -> Backward:
        run, count = back.run, size or back.run.query.shape[-1]
        if count >= run.value.shape[-1]:
            raise impossible("the value has no more channels than that")
        part = mix(back.but(context=back.context[..., :count], run=run.but(value=run.value[..., :count])))
        return mix(back).but(weights=part.weights)

    return cut


@gradient_fault(
    "gradient-repeated-tokens",
    Stage.SCORES,
    title="keys that are alike get each other's gradients, or none",
    explanation=(
        "Two tokens that hold the same numbers are still two tokens, each with a gradient of its own. A backward pass "
        "that gathers or scatters by content or by an index list that repeats gives each the sum over all of them, or "
        "keeps only the one that was written last. Random inputs never repeat, so they don't show it."
    ),
    repair="dk.index_add_(1, index, contribution)  # adds where an index repeats; dk[index] = … keeps only one",
    commonness=1,
)
def gradient_repeated_tokens(spec: AttentionSpec) -> BackwardWays:
    """Sums over equal keys for each, or only the first or last of them."""

    def among(pick: Callable[[Run, Array], Array]) -> BackwardReplacements:
        def changed(back: Backward) -> Backward:
            run, xp = back.run, back.run.xp
            # Before rope, which tells equal tokens apart.
            key = run.before[Stage.POSITION].key
            alike = xp.all(key[..., :, None, :] == key[..., None, :, :], axis=-1)
            by = xp.astype(pick(run, alike), back.key.dtype)
            return back.but(key=xp.matmul(by, back.key), value=xp.matmul(by, back.value))

        return after(Stage.SCORES, changed)

    def earlier(run: Run, alike: Array) -> Array:
        at = run.xp.arange(alike.shape[-1])
        return alike & (at[None, :] < at[:, None])

    def own(run: Run, alike: Array, others: Array) -> Array:
        at = run.xp.arange(alike.shape[-1])
        return (at[None, :] == at[:, None]) & ~run.xp.any(others, axis=-1, keepdims=True)

    yield "each gets the sum over those like it", among(lambda run, alike: alike)
    yield "only the first gets its own", among(lambda run, alike: own(run, alike, earlier(run, alike)))
    yield (
        "only the last gets its own",
        among(lambda run, alike: own(run, alike, run.xp.matrix_transpose(earlier(run, alike)))),
    )
