"""Rotation: query and key turned by their positions, as rope does it, and what else should be turned or should not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known, close
from qkv.scripts.mixes import Mix
from qkv.scripts.reading import Reading
from qkv.scripts.spots import Spot, Written, spot_at


def rotation(mix: Mix) -> Iterator[Finding]:
    """What is wrong where some of query, key and value are turned by their positions and others are not."""
    query, key, product = mix.query, mix.key, mix.product
    if query is None or key is None or product is None or query is key:
        return
    reading = mix.reading
    turned = [_unturned(reading, side) for side in (query, key)]
    before = _unturned(reading, mix.value)
    if None not in turned and before is not None:
        name = mix.name(mix.value, "the value")
        said = f"{name} is turned by its position, as query and key are: values are mixed as they are"
        made = mix.made_for(mix.context, mix.value)
        spot = Spot(reading, made, next(reversed(reading.calls(made)), reading.place(made)))
        yield Finding.of("value-after-rope", said, Written(spot, reading.name(before) or spot.code), mix)
    elif (turned[0] is None) != (turned[1] is None):
        one, other = (key, query) if turned[0] is None else (query, key)
        names = mix.name(one, one.role or "one"), mix.name(other, other.role or "the other")
        said = (
            f"{names[0]} is turned by its positions, and {names[1]} is not: scores go by how far two tokens are apart "
            "only where both of them are"
        )
        spot = spot_at(reading, mix.made(product))
        yield Finding.of("rope-one-sided", said, Written(spot, _both_turned(mix, spot, one, other)), mix)


def _unturned(reading: Reading, side: Known) -> int | None:
    """The array that tokens were made of in a way that changes rows and leaves all their lengths; None for none."""
    value = next((one for one in reading.values_of(side) if one in reading.made_by), None)
    if value is None or side.first("product") is not None:
        return None
    array, frame = reading.array(value), reading.calls(reading.made_by[value])
    for above in reading.with_all_above(reading.parents[value]):
        before, number = reading.array(above), reading.made_by.get(above, -1)
        inside = number >= 0 and frame and reading.calls(number) == frame  # half of it is turned already, say
        if inside or before.shape != array.shape or array.ndim < 2 or close(before, array):
            continue
        if close(np.linalg.norm(before, axis=-1), np.linalg.norm(array, axis=-1)):
            return above
    return None


def _both_turned(mix: Mix, spot: Spot, one: Known, other: Known) -> str:
    """The code of the scores in which the other side is turned by the same call; as it is where that can't be told."""
    reading, name, before = mix.reading, spot.variable(other), _unturned(mix.reading, one)
    made = min((reading.made_by[value] for value in reading.values_of(one) if value in reading.made_by), default=-1)
    calls = [*reading.calls(made), *([place] if (place := reading.place(made)) else [])] if name else []
    for call in calls:
        for old in reading.names.get(before, ()) if before is not None else ():
            turned, times = with_code(call.code, old, name)
            if times and call.function == spot.function:
                return with_code(spot.code, name, turned)[0]
    return spot.code
