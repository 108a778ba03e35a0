"""Lines: the line of the source on which the blamed operation is to be changed, or what it stands on is set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from qkv.adapters.recording import Place
from qkv.location.blaming import Blame
from qkv.location.bounds import right_with_another
from qkv.location.conditions import not_reached, replaced
from qkv.location.ends import scales_by_one
from qkv.location.frontier import Frontier
from qkv.location.kinds import DROPPING, EMPTY, GROUPING, REPEATING, WRAPPING
from qkv.location.misplaced import renamed
from qkv.location.namings import (
    bound,
    handed_as_another,
    names_it,
    read_by_another,
    set_under_another_name,
    wrong_index,
    wrong_name,
)
from qkv.location.notes import note_on
from qkv.location.numbers import (
    Values,
    filled_in,
    handed_by,
    handed_number,
    misnamed,
    own_function,
    rotary_dims_at,
    switched_on,
    turned_over,
    written_elsewhere,
    wrong_settings,
)
from qkv.location.settings import never_read
from qkv.location.source import Source, read
from qkv.location.spots import spot_of, spot_of_missing
from qkv.masks import SlidingWindow
from qkv.oracle import Run
from qkv.report import SourceLine
from qkv.vocabulary import Stage


def source_line(frontier: Frontier, blamed: Blame, right: Run) -> SourceLine | str:
    """The line that is to be changed, or why none can be told.

    Args:
        frontier: where what is right ends.
        blamed: the operation.
        right: the run that is meant.
    """
    place = spot_of(frontier, blamed)
    source = None if place is None else _watched(frontier, place)
    if place is None:
        return "what makes the wrong numbers stands in no file of the candidate's"
    if source is not None and frontier.operation(blamed.operation).name in WRAPPING:
        made_by = own_function(source, place) or filled_in(source, place)
        if made_by:
            return (
                f"line {place.line} is given wrong numbers by {made_by}, which makes them without arrays: not watched"
            )
    if source is None:
        return SourceLine(
            place.file, place.line, place.code, note_on(frontier, blamed, place.line, None), None, blamed.confirmed
        )
    return _line_in(source, spot_of_missing(source, frontier, blamed, place), frontier, blamed, right)


def _line_in(source: Source, place: Place, frontier: Frontier, blamed: Blame, right: Run) -> SourceLine:
    """The line of a file that is to be changed."""
    if blamed.exchanged and blamed.used_by is not None:
        return _exchanged(source, place, frontier.beside(blamed.operation, blamed.used_by, whole=True))
    loop = source.loop_around(place) if blamed.bound and bound(source, place, blamed.bound) is None else None
    if loop is not None:
        note = f"the keys behind those that line {place.line} takes last are left out"
        return SourceLine(place.file, loop, source.lines[loop - 1].strip(), note, place.line, blamed.confirmed)
    two = _counted_from(source, place, frontier, blamed) or _two_lines(source, place, frontier, blamed, right)
    if two is not None:
        line, other, note = two
        return SourceLine(place.file, line, source.lines[line - 1].strip(), note, other, blamed.confirmed)
    line = _number(source, place, frontier, blamed, right)
    code = source.lines[line - 1].strip() if line <= len(source.lines) else place.code
    until = _until(source, place, frontier, blamed)
    if until is not None and (until == line or (until < line and blamed.before is None)):
        until = None
    return SourceLine(place.file, line, code, note_on(frontier, blamed, line, until), until, blamed.confirmed)


def _watched(frontier: Frontier, place: Place) -> Source | None:
    """The file of a place, with the others that were watched; None where it can't be read."""
    files = dict.fromkeys(one.file for one in frontier.recognition.recording.places if one.file != place.file)
    source, others = read(place.file), [other for other in map(read, files) if other is not None]
    return None if source is None else replace(source, others=others)


def _exchanged(source: Source, made: Place, handed_on: Place | None) -> SourceLine:
    """The line that gives two arrays, or that takes them from there, in the order of the other one."""
    line, code = made.line, source.lines[made.line - 1].strip()
    until = None if handed_on is None or handed_on.line == line or handed_on.file != made.file else handed_on.line
    where = "here" if until is None else f"on the way from line {line} to line {until}"
    return SourceLine(made.file, line, code, f"cos and sin of rope change places {where}", until, confirmed=True)


def _counted_from(source: Source, place: Place, frontier: Frontier, blamed: Blame) -> tuple[int, int, str] | None:
    """The call that hands over from where places are counted, and the line that counts them; None elsewhere."""
    operation, chain = frontier.operation(blamed.operation), frontier.chain(blamed.operation)
    if operation.name != "arange" or frontier.stage not in (None, Stage.MASK) or len(chain) < 2:
        return None
    handed = handed_by(source, place, chain[-2], operation) if chain[-2].file == place.file else None
    note = f"line {place.line} counts other tokens than it should, by a number that line {handed} hands over"
    return None if handed is None else (handed, place.line, note)


def _two_lines(
    source: Source, place: Place, frontier: Frontier, blamed: Blame, right: Run
) -> tuple[int, int, str] | None:
    """Two lines either of which may be wrong about a number, and why; None where it is told which."""
    if frontier.stage not in (Stage.SCALE, Stage.SOFTCAP) or blamed.skipped is not None or blamed.odd:
        return None
    operation, numbers = frontier.operation(blamed.operation), _numbers(frontier, blamed.operation, right)
    used, set_at = source.line_of(place, frontier.stage), turned_over(source, place, operation, numbers)
    if set_at not in (None, used):
        return used, set_at, f"line {used} uses a number the other way round than line {set_at} sets it: change one"
    lines = wrong_settings(source, place, operation, numbers)
    if len(lines) < 2:
        return None
    told = f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}"
    return lines[0], lines[-1], f"line {used} is given a wrong number, which is set on lines {told}"


def _until(source: Source, place: Place, frontier: Frontier, blamed: Blame) -> int | None:
    """The other end of what may be changed; None where it is one line."""
    before = None if blamed.before is None else frontier.place(blamed.before)
    if blamed.before is not None and frontier.operation(blamed.operation).name in GROUPING:
        before = frontier.beside(blamed.before, blamed.operation)  # what was handed on is laid out here
    if before is not None and before.file == place.file:
        one = frontier.stage == Stage.SCALE and scales_by_one(frontier, blamed.operation)
        return None if one and not never_read(source, before, "scale") else source.line_of(before, None)
    if blamed.skipped == Stage.OUTPUT:
        return source.return_behind(place)
    return None if blamed.skipped is None else source.used_behind(place, _used_at(frontier, blamed))


def _used_at(frontier: Frontier, blamed: Blame) -> Place | None:
    """Where what the blamed operation makes is used, in the same function if it is there or by a call."""
    return None if blamed.used_by is None else frontier.beside(blamed.used_by, blamed.operation)


def _number(source: Source, place: Place, frontier: Frontier, blamed: Blame, right: Run) -> int:
    """The number of the line: of the operation itself, or of what it stands on."""
    operation, used_at = frontier.operation(blamed.operation), _used_at(frontier, blamed)
    elsewhere = None
    if blamed.odd and used_at is not None and used_at.file == place.file:
        return _misplaced(source, frontier, blamed, used_at) or source.line_of(place, frontier.stage)
    if blamed.bound:
        return bound(source, place, blamed.bound) or place.line
    if frontier.stage is None and operation.name in DROPPING:
        return switched_on(source, place, operation) or source.line_of(place, Stage.DROPOUT)
    if operation.name in EMPTY and (line := replaced(source, place)) is not None:
        return line
    if blamed.skipped is not None and used_at is not None and used_at.file == place.file:
        reached = {one.line for one in frontier.recognition.recording.places if one.file == place.file}
        elsewhere = not_reached(source, place, used_at.line, reached, blamed.skipped)
    elsewhere = elsewhere or _handed_crosswise(source, place, frontier, blamed.operation)
    if frontier.stage == Stage.HEADS and operation.name not in REPEATING:
        elsewhere = elsewhere or wrong_index(source, place)
    chain = frontier.chain(blamed.operation)
    if frontier.stage == Stage.SCALE and blamed.before is not None and len(chain) > 1:
        elsewhere = elsewhere or handed_by(source, place, chain[-2], operation)
    elsewhere = elsewhere or _of_a_number(source, place, frontier, blamed.operation, right)
    return elsewhere or source.line_of(place, frontier.stage)


def _of_a_number(source: Source, place: Place, frontier: Frontier, number: int, right: Run) -> int | None:
    """The line on which a wrong number is set that an operation was given; None where none was."""
    operation, given = frontier.operation(number), {sight.of for _, sight in frontier.sighted(number)}
    numbers = _numbers(frontier, number, right)
    if frontier.stage == Stage.POSITION and (line := _misnamed(source, place, frontier, numbers)) is not None:
        return line
    if operation.name in WRAPPING:
        return written_elsewhere(source, place, numbers)
    turns = frontier.stage == Stage.POSITION and ("frequencies of rope" in given or operation.name == "arange")
    if turns or right_with_another(frontier, operation, right):
        return handed_number(source, place, operation, numbers)
    lines = wrong_settings(source, place, operation, {**numbers, "axis": _key_axes(frontier, number)})
    return lines[0] if lines else None


def _numbers(frontier: Frontier, number: int, right: Run) -> Values:
    """What names hold when they are right, and what an operation may multiply by what it is given."""
    given = {sight.of for _, sight in frontier.sighted(number)}
    numbers = _right_numbers(right, of_scores="attn_scores" in given or {"query", "key"} <= given)
    return {**numbers, **dict.fromkeys("*/", numbers["softcap"])} if frontier.stage == Stage.SOFTCAP else numbers


def _misplaced(source: Source, frontier: Frontier, blamed: Blame, used_at: Place) -> int | None:
    """The line on which an array is first taken for another, from where it is used outwards."""
    within = frontier.place(blamed.used_by) if blamed.used_by is not None else None
    if within is not None and within.file == used_at.file and names_it(source, within, blamed.odd, blamed.besides):
        return source.line_of(within, None)
    handed = (
        None if blamed.used_by is None else _handed_as_another(source, used_at, frontier, blamed.used_by, blamed.odd)
    )
    named = None if handed or blamed.used_by is None else renamed(frontier, blamed.used_by, blamed.odd)
    if named is not None and named.file == used_at.file:
        set_at = set_under_another_name(source, named, blamed.odd)
        if set_at is not None or not read_by_another(source, named, blamed.odd):
            return set_at or source.line_of(named, None)  # else it got its name with others, which says nothing of it
    return handed or wrong_name(source, used_at, blamed.odd)


def _handed_as_another(source: Source, within: Place, frontier: Frontier, number: int, odd: str) -> int | None:
    """The line of a call on the way to an operation that hands an array over for an argument that is another's."""
    for call, inner in pairwise(frontier.chain(number)):
        handed = handed_as_another(source, call, inner.function, odd) if call.file == within.file else None
        if handed is not None:
            return handed
    return None


def _handed_crosswise(source: Source, within: Place, frontier: Frontier, number: int) -> int | None:
    """The line of the call that hands an operation query, key or value in the place of another; None for none."""
    lines = (
        _handed_as_another(source, within, frontier, number, sight.of)
        for value, sight in frontier.sighted(number)
        if frontier.flow.maker(value) is not None
    )
    return next((line for line in lines if line is not None), None)


def _misnamed(source: Source, place: Place, frontier: Frontier, right: Values) -> int | None:
    """The line on which a size or base of rope is set that isn't what its name says; None where each is."""
    for number in sorted(frontier.slice):
        there = frontier.place(number)
        if there is not None and there.file == place.file:
            line = rotary_dims_at(source, there, frontier.operation(number), right)
            line = line or misnamed(source, there, frontier.operation(number), right, ("rotary_dims", "rope_base"))
            if line is not None:
                return line
    return None


def _key_axes(frontier: Frontier, operation: int) -> Sequence[int]:
    """Where the axis of the keys stands in what an operation is given, counted from either end."""
    for _, sight in frontier.sighted(operation):
        if sight.axes.count("key") == 1:
            place = sight.axes.index("key")
            return place, place - len(sight.axes)
    return ()


def _right_numbers(right: Run, of_scores: bool) -> Values:
    """What names hold when they are right, by their role, and what scores, or query and key, are multiplied by."""
    head_dim = right.query.shape[-1]
    scale = abs(right.spec.scale_for(head_dim))
    factors = [scale] if of_scores else [scale, math.sqrt(scale)]
    divisors = [1 / factor for factor in factors]
    bases = [] if right.spec.rope is None else [right.spec.rope.base]
    return {
        "*": factors,
        "/": divisors,
        "**": bases,
        "rope_base": bases,
        "scale": [*factors, *divisors],
        "temperature": divisors,
        "slopes": [] if right.spec.alibi is None else list(right.spec.alibi.slopes_for(right.spec.num_heads)),
        "rotary_dims": [] if right.spec.rope is None else [right.spec.rope.rotary_dims(head_dim)],
        "softcap": [] if right.spec.softcap is None else [right.spec.softcap],
        "head_dim": [head_dim],
        "window": [part.size for part in right.spec.mask.parts() if isinstance(part, SlidingWindow)],
        "embed_dim": [head_dim * right.spec.num_heads],
    }
