"""Misplaced: an array in the place of another, or lying another way than what it meets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qkv.adapters.names import call_role_of
from qkv.adapters.recording import Place, Ref
from qkv.location.blaming import Blame
from qkv.location.frontier import Frontier, Suspect
from qkv.location.kinds import MULTIPLYING
from qkv.recognition import FUSED, Sight
from qkv.vocabulary import Stage


def turned(frontier: Frontier) -> int | None:
    """The operation that makes scores with a row for each key; None where all have a row for each query."""
    for number in sorted(frontier.slice):
        sight = frontier.sight_of(frontier.operation(number).results)
        if sight is not None and sight.name == "attn_scores" and sight.axes[-2:] == ("key", "query"):
            return number
    return None


def batch_for_tokens(frontier: Frontier, number: int) -> tuple[int, int | None] | None:
    """Where batch and tokens changed places, if an operation multiplies along the batch; None where it doesn't.

    Returns:
        the operation, and that which had exchanged them before, where one did.
    """
    if frontier.operation(number).name not in MULTIPLYING:
        return None
    value = next((value for value, sight in frontier.sighted(number) if "batch" in sight.axes[-2:]), None)
    here = (
        None if value is None else frontier.origin(value, lambda maker: _first(frontier, maker, _batch_behind_tokens))
    )
    if here is None:
        return None
    earlier = _first(frontier, here, _tokens_behind_batch)
    before = None if earlier is None else frontier.origin(
        earlier, lambda maker: _first(frontier, maker, _tokens_behind_batch)
    )  # fmt: skip
    twice = before is not None and _first(frontier, before, _batch_behind_tokens) is not None
    return here, before if twice else None


def _first(frontier: Frontier, number: int, lies: Callable[[Frontier, int], bool]) -> int | None:
    """The first array that an operation is given which lies in a certain way."""
    return next((value for value in frontier.flow.operands(number) if lies(frontier, value)), None)


def _batch_behind_tokens(frontier: Frontier, value: int) -> bool:
    sight = frontier.recognition.sights[value]
    if sight is not None and sight.name == FUSED:
        return True  # it can't be seen there; what it is made of tells
    batch, tokens = _batch_and_tokens(sight)
    return -1 < tokens < batch


def _tokens_behind_batch(frontier: Frontier, value: int) -> bool:
    sight = frontier.recognition.sights[value]
    if sight is not None and sight.name == FUSED:
        return True
    batch, tokens = _batch_and_tokens(sight)
    return -1 < batch < tokens


def _batch_and_tokens(sight: Sight | None) -> tuple[int, int]:
    """On which axes an array has the batch, and its tokens; -1 where it hasn't."""
    axes = [set(axis.split("*")) for axis in (() if sight is None else sight.axes)]
    batch, tokens = (
        next((place for place, inside in enumerate(axes) if inside & names), -1)
        for names in ({"batch"}, {"query", "key"})
    )
    return batch, tokens


def laid_across(frontier: Frontier, number: int) -> int | None:
    """Where an array was laid out that rope turns along its heads, and not its tokens; None where none is."""
    given = frontier.sighted(number) if frontier.operation(number).name == "mul" else []
    tables = [sight.axes for _, sight in given if sight.name.endswith(" of rope")]
    counted = {len(axes) - axes.index(name) for axes in tables for name in ("query", "key") if name in axes}
    for value, sight in given:
        if any(sight.axes[-behind : len(sight.axes) - behind + 1] == ("head",) for behind in counted):
            return frontier.origin(value, lambda maker: _first(frontier, maker, _head_behind_tokens))
    return None


def table_off(frontier: Frontier, number: int) -> int | None:
    """Where a table of rope was made, if what it turns is off by a factor that the table lacks; None where it isn't."""
    made = frontier.sight_of(frontier.operation(number).results)
    if made is None or made.right or not made.name.endswith(("by cos", "by sin")):
        return None
    for value, sight in frontier.sighted(number):
        if sight.name in ("cos of rope", "sin of rope") and made.name.endswith(sight.name[:3]):
            return first_of(frontier, value, sight)
    return None


def _head_behind_tokens(frontier: Frontier, value: int) -> bool:
    sight = frontier.recognition.sights[value]
    axes = () if sight is None else sight.axes
    tokens = [axes.index(name) for name in ("query", "key") if name in axes]
    return bool(tokens) and "head" in axes and axes.index("head") > tokens[0]


def across(frontier: Frontier, number: int) -> int | None:
    """Where an array of pairs was made that lies across the others that an operation is given: a row for each key."""
    across = [value for value in frontier.flow.operands(number) if _key_first(frontier, value)]
    if len(across) != 1 or len(frontier.flow.operands(number)) < 2:
        return None
    return frontier.origin(across[0], lambda maker: _first(frontier, maker, _key_first))


def _key_first(frontier: Frontier, value: int) -> bool:
    """Whether an array has a row for each key and a column for each query."""
    sight = frontier.recognition.sights[value]
    axes = () if sight is None else sight.axes
    return "key" in axes and "query" in axes and axes.index("key") < axes.index("query")


def taken_apart(frontier: Frontier) -> int | None:
    """The operation that takes query, key and value apart in another order than its names say; None where none does."""
    for number in sorted(frontier.slice):
        place, results = frontier.place(number), frontier.operation(number).results
        names = [] if place is None else [call_role_of(name.strip()) for name in place.target.split(",")]
        sights = [frontier.recognition.sights[value] for value in results]
        made = [one.of if one is not None and one.right else "" for one in sights]
        if len(made) > 1 and {*made} <= {"query", "key", "value"} and {*made} == {*names} and made != names:
            return number
    return None


PROJECTED = ("query", "key", "value")
"""What a projection makes."""

UNDIVIDED = {"exp of the scores": "attn_weights"}
"""What stands for what, before it is divided by each row's sum."""

MULTIPLIED = {Stage.SCORES: ("query", "key"), Stage.MIX: ("attn_weights", "value")}
"""What is multiplied in a stage."""


def odd(frontier: Frontier, suspect: Suspect, made: Stage) -> Blame | None:
    """The maker of an array that is multiplied, or turned, in the place of another."""
    operands = frontier.sighted(suspect.operation)
    if made == Stage.POSITION and suspect.sight is not None and suspect.sight.of in PROJECTED:
        return _turned_for(frontier, operands, suspect.sight.of, suspect.operation)
    if frontier.stage != Stage.SOFTMAX:  # weights may be divided later on
        operands = [(one, replace(sight, name=UNDIVIDED.get(sight.name, sight.name))) for one, sight in operands]
    names = [sight.of for _, sight in operands]
    fused = made >= Stage.MIX and "query" in names
    belong = PROJECTED if fused else MULTIPLIED.get(made, ())
    missing = {*belong} - {*names}
    if not missing or len(operands) < 2:
        return None
    for value, sight in operands:
        maker = first_of(frontier, value, sight)
        place = None if maker is None else frontier.place(maker)
        if maker is None or place is None:
            continue
        if sight.of not in belong:
            last = frontier.flow.maker(value)
            if frontier.stage == Stage.SOFTMAX and sight.of == "attn_scores" and last is not None:
                return Blame(last, confirmed=True, skipped=Stage.SOFTMAX, used_by=suspect.operation)
            return Blame(maker, confirmed=True, odd=sight.of, used_by=suspect.operation)
        if call_role_of(place.target) in missing:  # it is called what is missing, and is another
            return Blame(maker, confirmed=True)
    arguments = [one.value for one in frontier.operation(suspect.operation).arguments if isinstance(one, Ref)]
    for value, name in zip(arguments, belong, strict=False) if len({*arguments}) == len(arguments) else ():
        taken = frontier.recognition.sights[value]
        maker = None if taken is None or taken.of not in names else first_of(frontier, value, taken)
        if taken is not None and maker is not None and taken.of != name:
            return Blame(maker, confirmed=True, odd=taken.of, besides=1, used_by=suspect.operation)
    twice = next((name for name in names if names.count(name) > 1), "")
    return Blame(suspect.operation, confirmed=True, odd=twice, besides=1, used_by=suspect.operation if twice else None)


def _turned_for(frontier: Frontier, given: list[tuple[int, Sight]], role: str, number: int) -> Blame | None:
    """The maker of another array of the projected ones, that is turned for the one that is meant."""
    for value, sight in given:
        maker = first_of(frontier, value, sight) if sight.of in {*PROJECTED} - {role} else None
        if maker is not None:
            return Blame(maker, confirmed=True, odd=sight.of, used_by=number)
    return None


def renamed(frontier: Frontier, used_by: int, odd: str) -> Place | None:
    """Where an array is first given the name of another on its way to where it is used; None where it never is.

    Args:
        frontier: where what is right ends.
        used_by: the operation that is given it.
        odd: what it is: ``key``.
    """
    for start, sight in frontier.sighted(used_by):
        value: int | None = start if sight.of == odd else None
        found = None
        while value is not None and (maker := frontier.flow.maker(value)) is not None:
            place = frontier.beside(maker, used_by, whole=True)
            roles = {
                call_role_of(name.strip()) for name in ("" if place is None else place.makes or place.target).split(",")
            }
            if odd in roles:
                if found is not None:
                    return found
                break
            found = place if roles & {*PROJECTED} else found
            value = next((one for one, given in frontier.sighted(maker) if given.of == odd), None)
    return None


def first_of(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """The operation that made an array's values, before they were only laid out in other ways."""

    def same(maker: int) -> int | None:
        for operand, other in frontier.sighted(maker):
            alike = _as_laid_out(other) == _as_laid_out(sight)
            # Of heads what is looked for is where its head was picked.
            picked = frontier.stage == Stage.HEADS and other.fixed != sight.fixed
            if alike and not picked and frontier.flow.maker(operand) is not None:
                return operand
        return None

    return frontier.origin(value, same)


def _as_laid_out(sight: Sight) -> tuple[str, float, bool]:
    """What stays the same of an array however it is laid out."""
    return sight.name, sight.factor, sight.stage == Stage.MASK
