"""What is wrong with a script's variables: old numbers, another token's row, inputs that were changed underway."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from qkv.recognition.arrangement import REPEATED
from qkv.scripts import naming
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known, close
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading, refs
from qkv.scripts.spots import spot_at
from qkv.scripts.writing import softmax_code

_COMPARING = frozenset({"allclose", "equal", "array_equal", "isclose", "assert_close", "assert_allclose", "eq"})


def of_variables(reading: Reading, mixes: list[Mix]) -> Iterator[Finding]:
    """Every slip of that kind."""
    live = live_values(reading, mixes)
    for mix in mixes:
        yield from _stale(mix, live)
        yield from _changed(mix)
    yield from _numbered(reading)
    yield from _rows_of_others(reading)
    yield from _compared(reading)


def live_values(reading: Reading, mixes: Sequence[Mix]) -> set[int]:
    """The arrays that some context vector was made of."""
    live: set[int] = set()
    pending = [value for mix in mixes for value in reading.values_of(mix.context)]
    while pending:
        value = pending.pop()
        if value not in live:
            live.add(value)
            pending += reading.parents.get(value, [])
    return live


def _stale(mix: Mix, live: set[int]) -> Iterator[Finding]:
    """A variable was given new numbers before the mix, nothing used them, and the mix rests on the old ones."""
    reading = mix.reading
    for known in mix.path[1:]:
        values = set(reading.values_of(known))
        for old in reading.run.bound:
            if old.value not in values:
                continue
            later = [
                one
                for one in reading.run.bound
                if (one.name, one.function) == (old.name, old.function) and old.after < one.after <= mix.operation
            ]
            dead = [one for one in later if one.value not in live and not _same(reading, one.value, known)]
            if later and later[-1] in dead:
                fresh, weights = dead[-1], reading.name_of(mix.weights) or "the weights"
                before = _again(mix, known, weights)
                said = (
                    f"line {reading.line(fresh.value)} gives {old.name} new numbers, and {weights} still comes "
                    "from the old ones: a variable does not follow when what it was made of changes. Do the softmax "
                    "again after it"
                )
                yield Finding("stale-variable", mix.operation, said, reading.code(mix.operation), mix, before)
                return


def _again(mix: Mix, known: Known, weights: str) -> str:
    """The statement that makes the weights again, of what a variable holds now."""
    step = mix.normalised
    if step is not None and known in step.sources[0].chain():
        return f"{weights} = {mix.reading.code(step.made)}"
    return f"{weights} = {softmax_code(mix, spot_at(mix.reading, mix.operation).name(known, 'attn_scores'))}"


def _same(reading: Reading, value: int, known: Known) -> bool:
    """Whether an array is that known one, or one that leads to it or comes of it."""
    sight = reading.sights.get(value)
    return sight is not None and (sight.known in known.chain() or known in sight.known.chain())


def _changed(mix: Mix) -> Iterator[Finding]:
    """The inputs were changed in place between the scores and the mix."""
    reading = mix.reading
    if mix.query is None:
        return
    given = {one: reading.name_of(one) for side in (mix.query, mix.key, mix.value) if side for one in side.chain()}
    for known, name in given.items():
        if known.kind != "tokens" or not name:
            continue
        for value in reading.values_of(known):
            made = reading.made_by.get(value)
            if made is None or not reading.operations[made].in_place:
                continue
            before = [
                other
                for other, named in given.items()
                if other is not known and named == name and other in known.chain()
            ]
            if before:
                said = (
                    f"this changes {name} in place, between the scores, which come from the old numbers, "
                    "and the context vectors"
                )
                yield Finding("inputs-changed", made, said, _as_new(name, reading.code(made)), mix)
                return


def _as_new(name: str, code: str) -> str:
    """The statement that gives what another one does in place to a new variable."""
    changed = re.fullmatch(rf"{re.escape(name)}\s*([-+*/@]|\*\*)=\s*(.+)", code)
    if changed is None:
        return f"changed = {name} * factor   # a new array, and {name} stays"
    return f"changed_{name} = {name} {changed[1]} ({changed[2]})"


def _numbered(reading: Reading) -> Iterator[Finding]:
    """Names that end in a number say which token they belong to, counted from 1 or from 0 throughout."""
    said = {value: named for value in reading.names if (named := _number_said(reading, value)) is not None}
    own = [named for value, named in said.items() if not _above(reading, value) & said.keys()]
    votes = Counter(number - token for _, number, token in own if number - token in (0, 1))
    shift = max(votes, key=lambda one: (votes[one], one)) if votes else 1
    for value, (name, number, token) in said.items():
        if number - token == shift or value not in reading.made_by:
            continue
        meant = number - shift
        called = f", the {_ordinal(number)} token" if shift else ""
        said_of_it = (
            f"{name} comes from the token at index {token}; by its name it belongs to the one at index {meant}{called}"
        )
        instead = _of_token(reading, value, token, meant) or f"{name}   # from row {meant} of the inputs"
        yield Finding("other-token", reading.made_by[value], said_of_it, instead)
        return


def _of_token(reading: Reading, value: int, token: int, meant: int) -> str:
    """The expression that makes an array, with another token's row in it; empty where that one has no name there."""
    code = reading.code(reading.made_by[value])
    if f"[{token}]" in code:
        return code.replace(f"[{token}]", f"[{meant}]")
    for row in reading.parents[value]:
        sight, name = reading.sights.get(row), reading.name(row)
        if sight is None or sight.token != token or not name:
            continue
        for other, names in reading.names.items():
            rows = sight.known.array.reshape(-1, sight.known.array.shape[-1])
            if len(rows) > meant and other in reading.made_by and close(reading.array(other), rows[meant]):
                return re.sub(rf"\b{re.escape(name)}\b", names[0], code)
    return ""


def _rows_of_others(reading: Reading) -> Iterator[Finding]:
    """Context vectors that were put together row by row must each stand in its own token's row."""
    last = {binding.name: binding.value for binding in reading.run.bound}
    for name, value in last.items():
        array, made = reading.array(value), reading.made_by.get(value)
        sight = reading.sights.get(value)
        if (sight is not None and REPEATED not in sight.axes) or array.ndim != 2 or made is None or len(array) < 2:
            continue
        above = {reading.sights[one].known for one in _above(reading, value) if one in reading.sights}
        contexts = [known for known in above if known.kind == "context" and known.array.shape == array.shape]
        for known in contexts:
            rows = [np.flatnonzero([close(row, other) for other in known.array]) for row in array]
            if all(len(row) for row in rows) and any(place not in row for place, row in enumerate(rows)):
                place = next(place for place, row in enumerate(rows) if place not in row)
                said = (
                    f"row {place} of {name} holds the context vector of token {rows[place][0]}: its query is not that "
                    "of the row's own token"
                )
                yield Finding("other-token", made, said, "query = inputs[i]   # inside the loop")


def _number_said(reading: Reading, value: int) -> tuple[str, int, int] | None:
    """A variable's name, the number in it, and the token that its array belongs to; None where one is missing."""
    sight = reading.sights.get(value)
    if sight is None or sight.token is None or sight.known.kind == "mask":
        return None
    if sight.known.first("order"):
        return None  # the number may be that of a row before they were put in another order, or after
    for name in reading.names[value]:
        number = naming.token_number(name)
        if number is not None:
            return name, number, sight.token
    return None


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _above(reading: Reading, value: int) -> set[int]:
    return set(reading.with_all_above(reading.parents.get(value, ())))


def _compared(reading: Reading) -> Iterator[Finding]:
    """Two context vectors that are held against each other must belong to one token."""
    for number, operation in enumerate(reading.operations):
        values = list(refs(operation.arguments))[:2]
        if operation.name not in _COMPARING or len(values) < 2:
            continue
        one, other = (reading.sights.get(value) for value in values)
        if one is None or other is None or {one.known.kind, other.known.kind} - {"context", "weights"}:
            continue
        if one.known.kind != other.known.kind or one.token is None or other.token is None or one.token == other.token:
            continue
        if set(reading.parents.get(values[0], [0])) & set(reading.parents.get(values[1], [1])):
            continue  # two rows of one array: whoever compares those means to
        said = f"one side is the row of token {one.token}, the other that of token {other.token}"
        code = reading.code(number).replace(f"[{one.token}]", f"[{other.token}]")
        yield Finding("compared-with-other-token", number, said, code)


def unequal(reading: Reading) -> Iterator[str]:
    """Which comparisons of the script's own come out false, where they hold context vectors against others."""
    for number, operation in enumerate(reading.operations):
        values = list(refs(operation.arguments))[:2]
        if operation.name not in _COMPARING - {"eq"} or len(values) < 2:
            continue
        one, other = (reading.array(value) for value in values)
        kinds = {reading.sights[above].known.kind for above in reading.above(number) if above in reading.sights}
        if "context" in kinds and one.shape == other.shape and not np.allclose(one, other, rtol=1e-3, atol=1e-4):
            yield f"{reading.code(number)} is False"
