"""Faults of what a cache holds: too little, too much, in the wrong place, or of somebody else."""

from __future__ import annotations

from collections.abc import Callable

from qkv.faults.caching import call_of_each_key, held, holding, seeing, steps_of
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import CACHE
from qkv.faults.replacing import chain, given, impossible
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import STAGES, position, weights_from
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "cache-not-appended",
    Stage.MASK,
    title="the new tokens' keys and values are not added to the cache",
    explanation=(
        "Each call must see the keys and values of all tokens before it. Here the new ones overwrite the cache, or it "
        "never grows: a token forgets what came before. Handed over at once, the same sequence is right."
    ),
    repair=(
        "key, value = torch.cat([cached_key, key], dim=-2), torch.cat([cached_value, value], dim=-2)\n"
        "cache = (key, value)"
    ),
    needs=[CACHE],
    commonness=3,
)
def cache_not_appended(spec: AttentionSpec) -> Ways:
    """Keys of this call alone; of it and the one before; of it and the first."""
    yield "a call sees its own tokens only", seeing(lambda run, key: key >= held(run))
    yield "it holds the tokens of the call before only", seeing(lambda run, key: key >= held(run) - steps_of(run)[-2])
    first = seeing(lambda run, key: (key < steps_of(run)[0]) | (key >= held(run)))
    yield "it keeps what the first call put there", first


@fault(
    "cache-token-missing",
    Stage.MASK,
    title="the cache is one token short",
    explanation=(
        "The slice that is read from the cache ends or begins one token off, or is taken before the new token was "
        "written: one key that should be seen is not. Handed over at once, the same sequence is right."
    ),
    repair="key = cache_k[:, :, : start_pos + query_len]  # the new tokens included",
    needs=[CACHE],
)
def cache_token_missing(spec: AttentionSpec) -> Ways:
    """Without the new tokens, the newest, the one before the new ones, or the first."""
    yield "the new tokens are not seen", seeing(lambda run, key: key < held(run))
    yield "the newest token is not seen", seeing(lambda run, key: key < held(run) + steps_of(run)[-1] - 1)
    yield "the token before the new ones is not seen", seeing(lambda run, key: key != held(run) - 1)
    yield "the first token is not seen", seeing(lambda run, key: key >= min(held(run), 1))
    yield "each call drops the first token that is left", seeing(lambda run, key: key >= len(steps_of(run)) - 1)


@fault(
    "cache-token-doubled",
    Stage.MASK,
    title="tokens stand in the cache twice",
    explanation=(
        "Keys and values are put into the cache and then joined to it once more, or a token is handed over again that "
        "the cache holds already. A key that stands there twice gets twice the weight, at the cost of the others."
    ),
    repair="key, value = cache.update(key, value)  # and no torch.cat after it",
    needs=[CACHE],
)
def cache_token_doubled(spec: AttentionSpec) -> Ways:
    """``ln 2`` is added to the scores of keys that are there twice."""
    yield "the new ones", _doubled(lambda run, key: key >= held(run))
    yield "all that came after the first call", _doubled(lambda run, key: key >= steps_of(run)[0])
    yield "the one before the new ones", _doubled(lambda run, key: key == held(run) - 1)
    yield "the last one of the first call", _doubled(lambda run, key: key == steps_of(run)[0] - 1 + 0 * held(run))


def _doubled(twice: Callable[[Run, Array], Array]) -> Replacements:
    def masked(run: Run) -> Run:
        both = run.array(twice(run, run.token_positions()[1])) * float(run.xp.log(run.array(2.0)))
        return STAGES[Stage.MASK](run.but(scores=run.scores + both))

    return {Stage.MASK: masked}


def _empty_slots(always: bool, masked: bool) -> Callable[[float], Replacements]:
    """Slots of a cache of that size which hold zeros: each has the score 0, and nothing to give."""

    def with_slots(size: float) -> Replacements:
        def softmax(run: Run) -> Run:
            tokens = run.inputs.lengths[1]
            empty = size - tokens
            if empty <= 0 or not (always or run.inputs.steps):
                raise impossible("no slot is empty, or no cache is used")
            column = run.xp.zeros((*run.scores.shape[:-1], 1)) + float(run.xp.log(run.array(empty)))
            weights = weights_from(run, run.xp.concat([run.scores, column], axis=-1))
            return run.but(weights=weights[..., :-1])

        unmasked = {} if masked else {Stage.MASK: _all_seen}
        return {**unmasked, Stage.SOFTMAX: softmax}

    return with_slots


def _all_seen(run: Run) -> Run:
    return run.but(may_attend=run.xp.ones(run.scores.shape, dtype=bool))


def _slots(spec: AttentionSpec, inputs: Inputs, size: float) -> str:
    return f"of {size:g} slots, those not filled yet are attended to"


@fault(
    "cache-empty-slots",
    Stage.SOFTMAX,
    title="slots of the cache that hold nothing yet are attended to",
    explanation=(
        "A cache that is made once, for the longest text, holds zeros where no token has come yet. A key of zeros has "
        "the score 0, which is no small one: its weight is e^0, and its value gives nothing. All other weights are too "
        "small, the more so the larger the cache is. Every row is wrong."
    ),
    repair=(
        "key, value = cache_k[:, :, : start_pos + query_len], cache_v[:, :, : start_pos + query_len]\n"
        "# or hide slots from start_pos + query_len on with the mask"
    ),
    families=[
        Family(_empty_slots(always, masked), (10.0, 20.0, 40.0, 64.0, 256.0, 2048.0), _slots, lambda size: size > 1)
        for masked in (True, False)
        for always in (False, True)
    ],
    commonness=3,
)
def cache_empty_slots(spec: AttentionSpec) -> Ways:
    """``size - tokens`` keys and values of zeros; the families estimate the size."""

    def half_full(always: bool) -> Replacements:
        def softmax(run: Run) -> Run:
            return _empty_slots(always, masked=True)(2.0 * run.inputs.lengths[1])[Stage.SOFTMAX](run)

        return {Stage.SOFTMAX: softmax}

    yield "as many as there are tokens", half_full(always=True)
    yield "as many as there are tokens, in calls with a cache", half_full(always=False)


@fault(
    "cache-slot-overwritten",
    Stage.POSITION,
    title="new tokens are written to the wrong slots of the cache",
    explanation=(
        "The place where new keys and values go must move on with every token. Where it does not, or begins one too "
        "early, they overwrite tokens that are still needed, and other slots stay empty. The first call is right, the "
        "calls after it are wrong."
    ),
    repair="cache_k[:, :, start_pos : start_pos + query_len] = key  # start_pos: how many tokens came before",
    needs=[CACHE],
)
def cache_slot_overwritten(spec: AttentionSpec) -> Ways:
    """What each slot holds after the calls so far, where those after the first write elsewhere."""
    places: dict[str, Callable[[int, int], int]] = {
        "every call writes from slot 0 on": lambda begin, first: 0,
        "every call writes behind the tokens of the first": lambda begin, first: first,
        "one slot too early": lambda begin, first: begin - 1,
        "one slot too late": lambda begin, first: begin + 1,
    }
    for note, place in places.items():
        yield note, holding(_written(place))
        if spec.rope is not None:
            yield f"{note}, and keys are turned as they are read", holding(_written(place), turned=False)


def _written(place: Callable[[int, int], int]) -> Callable[[Run], list[int]]:
    def slots(run: Run) -> list[int]:
        steps = steps_of(run)
        total = sum(steps)
        memory = [-1] * (total + 1)
        begin = 0
        for call, count in enumerate(steps):
            at = place(begin, steps[0]) if call else 0
            memory[at : at + count] = range(begin, begin + count)
            begin += count
        return memory[:total]

    return slots


@fault(
    "cache-order",
    Stage.POSITION,
    title="the cache holds the tokens in another order than they came in",
    explanation=(
        "Keys and values are put in front of the older ones, or a ring is read from its first slot on. A causal mask, "
        "and anything else that counts along the keys, then takes the newest for the oldest. With one new token and no "
        "positions nothing shows, since a sum has no order."
    ),
    repair="key = torch.cat([cached_key, key], dim=-2)  # the new ones behind the old ones",
    needs=[CACHE],
)
def cache_order(spec: AttentionSpec) -> Ways:
    """``[new, old]`` for ``[old, new]``."""
    orders: dict[str, Callable[[Run], list[int]]] = {
        "new tokens stand in front of the older ones": _newest_first,
        "the tokens of this call stand in front of the older ones": _this_call_first,
    }
    for note, order in orders.items():
        yield note, holding(order)
        if spec.rope is not None:
            yield f"{note}, and keys are turned as they are read", holding(order, turned=False)


def _newest_first(run: Run) -> list[int]:
    calls = call_of_each_key(run)
    return sorted(range(len(calls)), key=lambda token: (-calls[token], token))


def _this_call_first(run: Run) -> list[int]:
    begin, total = held(run), sum(steps_of(run))
    return [*range(begin, total), *range(begin)]


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
    lengthened = {
        stage: given(STAGES[stage], _behind_the_earlier)
        for stage in (Stage.PROJECT, Stage.POSITION, Stage.BIAS, Stage.MASK)
    }
    yield "of the sequence before, in front of its own", lengthened


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


def _behind_the_earlier(run: Run) -> Inputs:
    """The inputs as they are with the keys and values of the sequence before in front of their own."""
    inputs, earlier = run.inputs, run.inputs.earlier
    if earlier is None:
        raise impossible("no sequence came before")

    def joined(before: Array | None, own: Array | None, axis: int) -> Array | None:
        return None if before is None or own is None else run.xp.concat([before, own], axis=axis)

    own = inputs.x if inputs.source is None else inputs.source
    return inputs.but(
        source=joined(earlier.x, own, 1),
        key=joined(earlier.key, inputs.key, -2),
        value=joined(earlier.value, inputs.value, -2),
    )
