"""Faults of what a cache holds: too little, too much, or in the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qkv.faults.caching import call_of_each_key, held, holding, seeing, steps_of
from qkv.faults.fault import Family, Ways, fault
from qkv.faults.needs import CACHE
from qkv.faults.replacing import impossible
from qkv.masks import SlidingWindow
from qkv.oracle import Array, Inputs, Replacements, Run
from qkv.oracle.stages import STAGES, weights_from
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


def _kept(most: int) -> Replacements:
    return seeing(lambda run, key: key >= held(run) - most)


def _cut_shorter(run: Run) -> Iterator[tuple[str, Replacements]]:
    for most in range(min(run.inputs.lengths[1], 64)):
        yield f"it keeps {most} tokens at most", _kept(most)


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
    further=_cut_shorter,
)
def cache_token_missing(spec: AttentionSpec) -> Ways:
    """Without the new tokens, the newest, the one before the new ones, or the first."""
    yield "the new tokens are not seen", seeing(lambda run, key: key < held(run))
    yield "the newest token is not seen", seeing(lambda run, key: key < held(run) + steps_of(run)[-1] - 1)
    yield "the token before the new ones is not seen", seeing(lambda run, key: key != held(run) - 1)
    yield "the first token is not seen", seeing(lambda run, key: key >= min(held(run), 1))
    yield "each call drops the first token that is left", seeing(lambda run, key: key >= len(steps_of(run)) - 1)
    for part in spec.mask.parts():
        if isinstance(part, SlidingWindow) and part.size > 1:
            yield "it is cut to one token less than the window needs", _kept(part.size - 2)


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
            column = run.xp.zeros_like(run.scores[..., :1]) + run.xp.log(run.array(empty))
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

    def with_empty(always: bool, size: Callable[[int], int]) -> Replacements:
        def softmax(run: Run) -> Run:
            return _empty_slots(always, masked=True)(size(run.inputs.lengths[1]))[Stage.SOFTMAX](run)

        return {Stage.SOFTMAX: softmax}

    yield "as many as there are tokens", with_empty(True, lambda tokens: 2 * tokens)
    yield "as many as there are tokens, in calls with a cache", with_empty(False, lambda tokens: 2 * tokens)
    yield "one, in calls with a cache", with_empty(False, lambda tokens: tokens + 1)


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
    places: dict[str, Callable[[int, int, int], int]] = {
        "every call writes from slot 0 on": lambda call, begin, first: 0,
        "every call writes behind the tokens of the first": lambda call, begin, first: first,
        "one slot too early": lambda call, begin, first: begin - 1,
        "one slot too late": lambda call, begin, first: begin + 1,
        "one slot on with each call, however many tokens come": lambda call, begin, first: call,
    }
    for note, place in places.items():
        yield note, holding(_written(place))
        if spec.rope is not None:
            yield f"{note}, and keys are turned as they are read", holding(_written(place), turned=False)
        yield f"{note}, the values alone", holding(_written(place), of=["value"])
        yield f"{note}, the keys alone", holding(_written(place), of=["key"])


def _written(place: Callable[[int, int, int], int]) -> Callable[[Run], list[int]]:
    def slots(run: Run) -> list[int]:
        steps = steps_of(run)
        total = sum(steps)
        memory = [-1] * (total + 1)
        begin = 0
        for call, count in enumerate(steps):
            at = place(call, begin, steps[0]) if call else 0
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
    """``[new, old]`` for ``[old, new]``: of keys and values, or of one of them."""
    orders: dict[str, Callable[[Run], list[int]]] = {
        "new tokens stand in front of the older ones": _newest_first,
        "the tokens of this call stand in front of the older ones": _this_call_first,
    }
    for part in spec.mask.parts():
        if isinstance(part, SlidingWindow):
            orders |= _rings(part.size)
    for note, order in orders.items():
        yield note, holding(order)
        if spec.rope is not None:
            yield f"{note}, and keys are turned as they are read", holding(order, turned=False)
        yield f"{note}, the values alone", holding(order, of=["value"])
        yield f"{note}, the keys alone", holding(order, of=["key"])


def _rings(size: int) -> dict[str, Callable[[Run], list[int]]]:
    """Rings of that many slots whose tokens are taken to stand in the order of the slots."""
    return {
        "a ring is read from its first slot on": lambda run: _ring(run, size, held(run), held(run)),
        "a ring is read from its first slot on, empty ones before it": lambda run: _ring(run, size, held(run), size),
        "a ring with the new tokens in it is read from its first slot on": lambda run: _ring(
            run, size, sum(steps_of(run)), size
        ),
    }


def _ring(run: Run, size: int, written: int, places: int) -> list[int]:
    """For each key the token that a ring has in the slot that it is taken from.

    Args:
        run: the call.
        size: slots of the ring.
        written: how many tokens have been put into it.
        places: how many slots, at most ``size``, are taken for the last tokens that were written.
    """
    slots = [max(range(slot, written, size), default=-1) for slot in range(min(size, places))]
    tokens = list(range(sum(steps_of(run))))
    for slot, token in enumerate(slots, start=written - len(slots)):
        if slot >= 0:
            tokens[slot] = token
    return tokens


def _newest_first(run: Run) -> list[int]:
    calls = call_of_each_key(run)
    return sorted(range(len(calls)), key=lambda token: (-calls[token], token))


def _this_call_first(run: Run) -> list[int]:
    begin, total = held(run), sum(steps_of(run))
    return [*range(begin, total), *range(begin)]
