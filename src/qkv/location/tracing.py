"""Tracing: from the operation where right ends to the one that is to be changed."""

from __future__ import annotations

import numpy as np

from qkv.location.blaming import Blame
from qkv.location.bounds import turned_distance
from qkv.location.calls import called_wrongly
from qkv.location.ends import other_end
from qkv.location.frontier import CONFIRMED, Frontier, Suspect
from qkv.location.kinds import ASSEMBLING, LAYING_OUT
from qkv.location.masking import (
    cut_wrongly,
    hidden_in_part,
    hidden_too_late,
    laid_out_otherwise,
    unknown_behind,
    unturned,
)
from qkv.location.misplaced import across, batch_for_tokens, first_of, laid_across, odd, table_off, taken_apart, turned
from qkv.location.omissions import capped_unscaled, left_out, only_passes_scores_on, undivided
from qkv.location.stretches import counted_as_keys, cut_apart, keys_left_out, of_other_tokens, unlike_the_others
from qkv.location.tables import exchanged
from qkv.recognition import WITHOUT_SINK
from qkv.vocabulary import Stage


def blame(frontier: Frontier) -> Blame | None:
    """The operation to be changed; None where nothing on the frontier is more suspicious than the rest."""
    if not frontier.suspects:
        return keys_left_out(frontier) or _returned(frontier)
    first = frontier.suspects[0]
    confirmed = first.weight >= CONFIRMED
    returned = keys_left_out(frontier) or _returned(frontier) if first.weight == 0 else None
    if returned is not None:
        return returned
    if frontier.from_nowhere(first.operation):
        return None
    elsewhere = of_other_tokens(frontier) if frontier.stage in (None, Stage.MASK) else None
    if elsewhere is not None:
        return Blame(elsewhere, confirmed)
    if not (confirmed or _stands_alone(frontier)):
        return _by_stage(frontier, first) if frontier.stage == Stage.POSITION else None
    apart = taken_apart(frontier)
    if apart is not None:
        return Blame(apart, confirmed)
    earlier = _by_stage(frontier, first) or (_known_to_be_made(frontier, first) if confirmed else None)
    if earlier is not None:
        return earlier
    if frontier.fills_in_numbers(first.operation):
        called = called_wrongly(frontier, first.operation) != frontier.place(first.operation)
        return Blame(first.operation, confirmed) if called else None  # else it may be any line that makes the numbers
    table = table_off(frontier, first.operation)
    if table is not None:
        return Blame(table, confirmed)
    before = across(frontier, first.operation)
    if before is not None:
        return Blame(first.operation, confirmed, before=before)
    number = _laid_out_first(frontier, unturned(frontier, first))
    distance = turned_distance(frontier, number) if frontier.stage == Stage.MASK else None
    if distance is not None:
        maker, several = distance
        return Blame(maker, confirmed) if several else Blame(number, confirmed, before=maker)
    return _out_of_order(frontier, first) or Blame(number, confirmed, before=other_end(frontier, number))


def _by_stage(frontier: Frontier, first: Suspect) -> Blame | None:
    """What is looked for where a stage is at fault, before the suspect itself."""
    number = None
    match frontier.stage:
        case None:
            return _unexplained(frontier, first)
        case Stage.MASK:
            number = hidden_too_late(frontier)
            for look in (laid_out_otherwise, counted_as_keys):
                number = look(frontier, first.operation) if number is None else number
            if number is None and not frontier.masks:
                return cut_wrongly(frontier)
        case Stage.SCORES:
            number = turned(frontier)
        case Stage.SOFTMAX:
            return _without_sink(frontier, first)
        case Stage.HEADS:
            mixed = _laid_out_wrongly(frontier, first.operation)
            if mixed is not None:
                return Blame(mixed, first.weight >= CONFIRMED, before=other_end(frontier, mixed))
            turned_so = batch_for_tokens(frontier, first.operation)
            return None if turned_so is None else Blame(turned_so[0], first.weight >= CONFIRMED, before=turned_so[1])
        case Stage.SCALE:
            return capped_unscaled(frontier, first)
        case Stage.POSITION:
            return _of_positions(frontier, first)
    return None if number is None else Blame(number, first.weight >= CONFIRMED)


def _unexplained(frontier: Frontier, first: Suspect) -> Blame | None:
    """What is looked for where no fault gives the numbers."""
    given = frontier.sighted(first.operation)
    divides = frontier.operation(first.operation).name in ("div", "mul") or len(given) > 1
    exps = None if divides else undivided(frontier, given)
    if exps is not None:
        return Blame(exps, False, skipped=Stage.SOFTMAX, used_by=first.operation)
    number = unlike_the_others(frontier, first)
    number = hidden_in_part(frontier, first) if number is None else number
    return cut_apart(frontier, first) if number is None else Blame(number, False)


def _of_positions(frontier: Frontier, first: Suspect) -> Blame | None:
    """What is looked for where positions are at fault."""
    swapped = exchanged(frontier)
    if swapped is not None:
        return Blame(swapped[0], confirmed=True, used_by=swapped[1], exchanged=True)
    laid = laid_across(frontier, first.operation)
    if laid is not None:
        return Blame(laid, first.weight >= CONFIRMED, skipped=Stage.HEADS, used_by=first.operation)
    for look in (_taken_for_frequencies, _off_by_a_sign, _another_angle):
        number = look(frontier)
        if number is not None:
            return Blame(number, first.weight >= CONFIRMED)
    return None


def _taken_for_frequencies(frontier: Frontier) -> int | None:
    """The operation that makes angles of one token which all positions are multiplied by; None where none does."""
    for number in sorted(frontier.slice):
        given = frontier.sighted(number)
        angles = next((one for one in given if one[1].name == "angles of rope" and "query" in one[1].fixed), None)
        if angles is not None and frontier.operation(number).name in ("mul", "outer", "einsum"):
            return first_of(frontier, *angles)
    return None


def _without_sink(frontier: Frontier, first: Suspect) -> Blame | None:
    """The operation that makes each row's sum, where a suspect divides by it and its sink was not added."""
    for value, sight in frontier.sighted(first.operation):
        maker = first_of(frontier, value, sight) if sight.name == WITHOUT_SINK else None
        if maker is not None:
            return Blame(maker, first.weight >= CONFIRMED, skipped=Stage.SOFTMAX, used_by=first.operation)
    return None


def _laid_out_wrongly(frontier: Frontier, number: int) -> int | None:
    """The operation that only laid out what was handed over, and mixed it up, before this one; None where none did."""
    for value in frontier.flow.operands(number):
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        if sight is not None and sight.scrambled and maker is not None and frontier.empty(maker):
            return _laid_out_first(frontier, maker)
    return None


def _known_to_be_made(frontier: Frontier, first: Suspect) -> Blame | None:
    """What stands before a suspect that makes what the diagnosed fault makes: an array misplaced, a stage left out.

    What only lays the array out again that it is given goes on to no later stage.
    """
    made, stage = None if first.sight is None else first.sight.stage, frontier.stage
    if made is None or stage is None or first.sight is None:
        return None
    sights = frontier.recognition.sights
    mixed = any(
        (one := sights[value]) is not None and one.scrambled for value in frontier.operation(first.operation).results
    )
    within = any(
        sight.name == first.sight.name and (mixed or sight.stage == made)
        for _, sight in frontier.sighted(first.operation)
    )
    goes_on = (made > stage and not within) or only_passes_scores_on(frontier, first)
    return odd(frontier, first, made) or (left_out(frontier, first, stage) if goes_on else None)


def _off_by_a_sign(frontier: Frontier) -> int | None:
    """The first operation that makes what isn't known, on the way to what is known but for a factor; None for none."""
    sights = frontier.recognition.sights
    for number in sorted(frontier.slice):
        for value in frontier.operation(number).results:
            sight = sights[value]
            if sight is not None and sight.axes and not sight.right and sight.stage == Stage.POSITION:
                return next(unknown_behind(frontier, value), None)
    return None


def _another_angle(frontier: Frontier) -> int | None:
    """The operation that says where the last token stands, if its angles are none of a token, or those of all.

    It makes the one number that the frequencies are multiplied by, or multiplies them by one that no array holds. None
    where they are multiplied by the places of several tokens.
    """
    values = frontier.recognition.recording.values
    turns = [
        number
        for number in sorted(frontier.slice)
        if frontier.operation(number).name == "mul"
        and any(sight.name == "frequencies of rope" for _, sight in frontier.sighted(number))
    ]
    angles = [values[frontier.operation(number).results[0]].array for number in turns]
    stuck = len(turns) > 2 and all(np.array_equal(one, angles[0]) for one in angles)
    if not turns or (not stuck and any(map(frontier.recognition.right, frontier.operation(turns[-1]).results))):
        return None
    ones = [value for value in frontier.flow.operands(turns[-1]) if values[value].array.size == 1]
    by_number = any(isinstance(one, int | float) for one in frontier.operation(turns[-1]).arguments)
    made = frontier.origin(ones[0], lambda maker: next(iter(frontier.flow.operands(maker)), None)) if ones else None
    return turns[-1] if made is None and by_number else made


def _laid_out_first(frontier: Frontier, number: int) -> int:
    """The first of the operations that only lay out what was handed over, up to this one; itself where it does more."""
    while frontier.operation(number).name in LAYING_OUT:
        (value, *_) = (*frontier.flow.operands(number), -1)
        maker = frontier.flow.maker(value)
        if maker is None or frontier.recognition.right(value) or not frontier.empty(maker):
            break
        number = maker
    return number


def _out_of_order(frontier: Frontier, suspect: Suspect) -> Blame | None:
    """What is done after a softmax that belongs before it: from there on the numbers are those of the fault."""
    if suspect.weight >= CONFIRMED or frontier.operation(suspect.operation).name != "softmax":
        return None
    masked = any(sight.stage == Stage.MASK for _, sight in frontier.sighted(suspect.operation))
    if masked and frontier.stage == Stage.SOFTMAX:
        return None  # nothing was left to be done
    # Of a loop the last round: in the first a query may have but one key.
    place = frontier.operation(suspect.operation).place
    last = max(one.operation for one in frontier.suspects if frontier.operation(one.operation).place == place)
    for number in sorted(frontier.slice):
        results = frontier.operation(number).results
        if number > last and any(frontier.recognition.faulty[value] is not None for value in results):
            return Blame(number, confirmed=True)
    return None


def _stands_alone(frontier: Frontier) -> bool:
    """Whether no other operation is as suspicious as the first, but on its line, or of its kind: done to two arrays."""
    first, *others = frontier.suspects
    place, name = called_wrongly(frontier, first.operation), frontier.operation(first.operation).name
    for other in others:
        there = called_wrongly(frontier, other.operation)
        same_line = None not in (place, there) and (place.file, place.line) == (there.file, there.line)  # type: ignore[union-attr]
        if other.weight == first.weight and not same_line and frontier.operation(other.operation).name != name:
            return False
    return True


def _returned(frontier: Frontier) -> Blame | None:
    """The maker of what was returned, where that is right and only isn't the output."""
    for value in frontier.recognition.recording.returned:
        sight, maker = frontier.recognition.sights[value], frontier.flow.maker(value)
        exps = None if sight is None else undivided(frontier, [(value, sight)])
        if exps is not None:
            return Blame(exps, confirmed=False, skipped=Stage.SOFTMAX, used_by=maker)
        if sight is not None and maker is not None and sight.stage is not None and sight.name != "output":
            if sight.stage < Stage.OUTPUT:
                return Blame(_last_of_one(frontier, maker), confirmed=False, skipped=Stage.OUTPUT)
            return Blame(first_of(frontier, value, sight) or maker, confirmed=False)
    return None


def _last_of_one(frontier: Frontier, maker: int) -> int:
    """The operation that made the last of what another only lays together or hands on: one token's, one head's."""
    values = frontier.recognition.recording.values
    while frontier.sighted(maker):
        given, made = (
            values[one].array for one in (frontier.sighted(maker)[-1][0], frontier.operation(maker).results[0])
        )
        if frontier.operation(maker).name not in ASSEMBLING and not np.array_equal(given, made):
            break
        earlier = frontier.flow.maker(frontier.sighted(maker)[-1][0])
        if earlier is None:
            break
        maker = earlier
    return maker
