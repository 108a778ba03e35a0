"""Omissions: behind which operation a stage should have followed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from qkv.adapters.names import call_role_of
from qkv.location.blaming import Blame
from qkv.location.ends import other_end, scales_by_one
from qkv.location.frontier import Frontier, Suspect
from qkv.location.kinds import ASSEMBLING
from qkv.location.masking import hides_nothing, part_of_a_mask, unturned, unused_part
from qkv.location.misplaced import first_of
from qkv.recognition import FUSED, SHOWN, Sight
from qkv.vocabulary import Stage


def left_out(frontier: Frontier, suspect: Suspect, stage: Stage) -> Blame | None:
    """The operation behind which the stage at fault should have followed."""
    dropped = _dropped(frontier, stage)
    if dropped is not None:
        return Blame(dropped, confirmed=True, skipped=stage, unused=True, used_by=suspect.operation)
    unused = unused_part(frontier) if stage == Stage.MASK else None
    if unused is not None:
        return Blame(unused[0], confirmed=True, skipped=stage, unused=True, used_by=unused[1])
    if any(sight.name == FUSED for _, sight in frontier.sighted(suspect.operation)):
        return Blame(suspect.operation, confirmed=True)
    picked = _picked(frontier, suspect) if stage == Stage.HEADS else None
    if picked is not None:
        return Blame(picked, confirmed=True)
    nothing_hidden = hides_nothing(frontier) if stage == Stage.MASK else None
    if nothing_hidden is not None:
        return Blame(nothing_hidden, confirmed=True)
    part = part_of_a_mask(frontier) if stage == Stage.MASK else None
    if part is not None:
        return Blame(part[0], confirmed=True, skipped=stage, used_by=part[1])
    by_one = _by_one(frontier, suspect) if stage == Stage.SCALE else None
    if by_one is not None:
        return Blame(by_one, confirmed=True, before=other_end(frontier, by_one))
    behind = _furthest_behind(frontier, suspect, stage)
    maker = None if behind is None else _first_like(frontier, *behind)
    if maker is None:
        return None
    if _all_at_once(frontier, suspect, stage):
        number = unturned(frontier, suspect)
        return Blame(number, confirmed=True, before=other_end(frontier, number))
    return Blame(maker, confirmed=True, skipped=stage, used_by=suspect.operation)


def capped_unscaled(frontier: Frontier, suspect: Suspect) -> Blame | None:
    """What made the scores that are capped before they are scaled; None where they aren't."""
    made = {*frontier.operation(suspect.operation).results}
    caps = [one for one in frontier.slice if frontier.operation(one).name == "tanh"]
    if not any(made.intersection(frontier.flow.operands(one)) for one in caps):
        return None
    for value, sight in frontier.sighted(suspect.operation):
        maker = first_of(frontier, value, sight) if sight.of == "attn_scores" and sight.factor == 1.0 else None
        if maker is not None:
            return Blame(maker, False, skipped=Stage.SCALE, used_by=suspect.operation)
    return None


def _by_one(frontier: Frontier, suspect: Suspect) -> int | None:
    """What multiplies the scores of a suspect by 1 instead of scaling them; None where nothing does."""
    behind = frontier.flow.behind([value for value, _ in frontier.sighted(suspect.operation)])
    return next((one for one in sorted(behind) if scales_by_one(frontier, one)), None)


def _furthest_behind(frontier: Frontier, suspect: Suspect, stage: Stage) -> tuple[int, Sight] | None:
    """What a suspect is made of that lacks a stage: the value's number, and what it is; None for nothing known."""
    before: list[tuple[int, Sight]] = []
    waiting, seen = frontier.sighted(suspect.operation), set()
    while waiting:
        value, sight = waiting.pop()
        if sight.stage is not None and sight.stage <= stage:
            before.append((value, sight))
        elif value not in seen:
            seen.add(value)
            maker = frontier.flow.maker(value)
            waiting += [] if maker is None else frontier.sighted(maker)
    # Of query and key that which lags behind; of scores and values the scores. A first token is turned by nothing.
    reached: dict[str, tuple[int, Sight]] = {}
    for value, sight in before:
        if stage == Stage.POSITION and sight.of == "value":
            continue  # it has none
        if sight.of not in reached or _order(reached[sight.of][1]) < _order(sight):
            reached[sight.of] = value, sight
    furthest = min if stage <= Stage.POSITION else max
    return furthest(reached.values(), key=lambda pair: _order(pair[1]), default=None)


def _first_like(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """What made the first array that is what another is: what cancels may be done between, or channels joined again."""
    turned = _where_its_pair_is_turned(frontier, value, sight) if frontier.stage == Stage.POSITION else None
    if turned is not None:
        return turned
    found = number = first_of(frontier, value, sight)
    while number is not None:
        given = frontier.sighted(number)
        part = next((one for one in given if one[1].name == f"{sight.of}, channels to turn"), None)
        if part is not None:
            return first_of(frontier, *part)
        number = first_of(frontier, *given[0]) if len(given) == 1 else None
        if number is not None and _is_again(given[0][1], sight):
            found = number
    return found


def _is_again(sight: Sight, other: Sight) -> bool:
    """Whether an array is what another is, times the same."""
    same = (sight.name, sight.stage) == (other.name, other.stage)
    return same and math.isclose(sight.factor, other.factor, rel_tol=1e-6)


def _where_its_pair_is_turned(frontier: Frontier, value: int, sight: Sight) -> int | None:
    """The first operation on the way to a query or key in the very call that turns the other one; None for none.

    What makes it stands outside of that call.
    """
    maker = first_of(frontier, value, sight)
    outside = () if maker is None else tuple(frontier.operation(maker).calls)
    calls = {tuple(frontier.operation(number).calls) for number in _turning(frontier, sight.of)} - {outside, ()}
    for number in sorted(frontier.flow.behind([value])):
        made = frontier.sight_of(frontier.operation(number).results)
        if made is not None and made.of == sight.of and tuple(frontier.operation(number).calls) in calls:
            return number
    # Else where the other one is turned by a call that gives both.
    turned = (number for number in _turning(frontier, sight.of) if _gives(frontier, number, sight.of))
    return min(turned, default=None)


def _gives(frontier: Frontier, number: int, role: str) -> bool:
    """Whether a call on the way to an operation gives several arrays, and one is called what a role is."""
    given = (call.target.split(",") for call in frontier.chain(number)[:-1])
    return any(len(names) > 1 and role in {call_role_of(name.strip()) for name in names} for names in given)


def _turning(frontier: Frontier, untouched: str) -> Iterator[int]:
    """The operations that first make the turned query where the key isn't turned, or reversely."""

    def is_turned(sight: Sight | None) -> bool:
        return sight is not None and sight.stage == Stage.POSITION and sight.name in {"query", "key"} - {untouched}

    for number in frontier.slice:
        given = any(is_turned(sight) for _, sight in frontier.sighted(number))
        if is_turned(frontier.sight_of(frontier.operation(number).results)) and not given:
            yield number


def _order(sight: Sight) -> int:
    return -1 if sight.stage is None else sight.stage.order


def _all_at_once(frontier: Frontier, suspect: Suspect, stage: Stage) -> bool:
    """Whether the suspect multiplies query and key and does what comes behind as well: ``baddbmm``, fused attention."""
    names = {sight.of for _, sight in frontier.sighted(suspect.operation)}
    return stage >= Stage.SCORES and {"query", "key"} <= names


def _picked(frontier: Frontier, suspect: Suspect) -> int | None:
    """The operation that takes one head: where the suspect goes on with all, or of key or value that it is given."""
    if suspect.sight is None:
        return None
    if "head" not in suspect.sight.fixed:
        shared = [list(_taking_a_head(frontier, frontier.slice, (name,))) for name in ("key", "value")]
        fewest = min(filter(None, shared), key=lambda numbers: _heads_of(frontier, numbers), default=[])
        others = _taking_a_head(frontier, frontier.slice, ("query", "attn_scores", "context"))
        return next(iter(fewest), None) or next(others, None)  # heads of queries are seldom miscounted
    for value, sight in frontier.sighted(suspect.operation):
        if sight.of in ("key", "value") and "head" in sight.fixed:
            return next(_taking_a_head(frontier, frontier.flow.behind([value]), (sight.of,)), None)
    return None


def _taking_a_head(frontier: Frontier, numbers: set[int], names: Collection[str]) -> Iterator[int]:
    for number in sorted(numbers):
        sight = frontier.sight_of(frontier.operation(number).results)
        if sight is not None and sight.of in names and "head" in sight.fixed:
            yield number


UNDIVIDED = ("exp of the scores", "exp of the scores and sink", "context before its division")
"""What a softmax makes, or is made of it, before it is divided by each row's sum."""


def undivided(frontier: Frontier, given: list[tuple[int, Sight]]) -> int | None:
    """The operation behind which weights were not divided by their row's sum; None where what is given is divided.

    Args:
        frontier: where what is right ends.
        given: what is handed on to where it has to be divided: the numbers of the values, and what they are.
    """

    def earlier(number: int) -> int | None:
        return next((value for value, sight in frontier.sighted(number) if sight.name in UNDIVIDED), None)

    return next((frontier.origin(value, earlier) for value, sight in given if sight.name in UNDIVIDED), None)


def _heads_of(frontier: Frontier, numbers: list[int]) -> int:
    """How many different heads some operations take."""
    made = (frontier.sight_of(frontier.operation(number).results) for number in numbers)
    return len({sight.fixed["head"] for sight in made if sight is not None})


ON_THE_WAY = frozenset(
    {"query", "key", "value", "attn_scores", "capped scores", "biased scores", "attn_weights", "context", "output"}
)
"""Arrays that the stages hand on; others are only used within one."""


def _dropped(frontier: Frontier, stage: Stage) -> int | None:
    """The last operation of a stage that is done, and whose result is not used; None where there is none."""
    found = None
    for number, operation in enumerate(frontier.recognition.recording.operations):
        sight = (
            None if number in frontier.slice or operation.during == "build" else frontier.sight_of(operation.results)
        )
        if sight is not None and sight.right and sight.stage == stage and sight.name in ON_THE_WAY:
            found = number
    return found


def only_passes_scores_on(frontier: Frontier, suspect: Suspect) -> bool:
    """Whether scores that lack a mask are only laid out: joined with the sinks."""
    made = suspect.sight
    unmasked = frontier.stage == Stage.MASK and made is not None and not made.form and made.name != SHOWN
    return unmasked and frontier.operation(suspect.operation).name in ASSEMBLING
