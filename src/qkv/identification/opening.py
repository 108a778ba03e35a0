"""Opening: the form, sizes and layout in which a candidate can be called, and acts like attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.adapters.calling import Caller
from qkv.adapters.construction import Construction
from qkv.adapters.function import function_readings
from qkv.adapters.messages import Facts, Hosting
from qkv.adapters.module import TokensReading
from qkv.adapters.opening import OF_TOKENS, Conventions, as_built, fitting_constructions, kind_of, readings
from qkv.errors import CandidateError
from qkv.identification.box import Box, FunctionBox, Reading, Sizes
from qkv.identification.module_box import module_box
from qkv.identification.routing import Routing, routing_of
from qkv.inference import Intention
from qkv.spec import AttentionSpec

HEADS = (6, 8, 4, 12, 16, 2, 32, 3, 1)
WIDTHS = (8, 16, 64, 32, 128, 4)
TOKENS = (7, 5, 8, 16, 12, 10, 32, 6, 4, 64, 9, 20, 24, 128)
BLOCKS = (32, 64, 128)
"""Numbers of tokens of kernels that take whole blocks only."""

MOST_TRIES = 600
"""Sizes and layouts that are tried before the candidate is given up."""

MOST_RUN = 12
"""Forms that ran and were no attention before it is given up."""


def opened(
    host: Hosting,
    facts: Facts,
    sizes_of: Callable[[Facts], Intention],
    said: Conventions,
    rng: np.random.Generator,
) -> tuple[Box, Routing]:
    """The candidate in the first form in which it mixes tokens head by head, and where its heads lead.

    Args:
        host: holds it.
        facts: what it says of itself.
        sizes_of: the sizes that are known of it, by what it says of itself.
        said: its layout and further arguments, as far as they are known.
        rng: draws the inputs.

    Raises:
        CandidateError: it can't be called in any way, or mixes no tokens in any.
    """
    first_error: CandidateError | None = None
    told_by_groups = False
    box: Box | None = None
    ran: list[tuple[Box, Routing, Construction | None]] = []
    boxes = _boxes(host, facts, sizes_of, said)
    for _ in range(MOST_TRIES):
        try:
            box, construction = next(boxes, (None, None))
            if box is None:
                break
            routing = routing_of(box, rng)
        except CandidateError as error:
            if error.fatal:
                raise
            # What it says to heads that share keys is no answer where nobody said that they do.
            grouped = box is not None and box.sizes.group_size > 1
            if first_error is None or (told_by_groups and not grouped):
                first_error, told_by_groups = error, grouped
            continue
        if routing.is_attention:
            return box, routing
        ran.append((box, routing, construction))
        if len(ran) == MOST_RUN:
            break
    for box, routing, construction in ran:
        if routing.is_usable:
            if construction is not None:  # others were built since
                host.build(construction.kwargs)
            return box, routing
    if ran or first_error is None:
        raise CandidateError(
            "in no layout does one head's output mix the values of one key/value head, so this is no attention that "
            "can be read from outside",
            hint="if it is one, say its axes and sizes: --layout BTHD --heads 8 --head-dim 64",
        )
    raise first_error


def _boxes(
    host: Hosting, facts: Facts, sizes_of: Callable[[Facts], Intention], said: Conventions
) -> Iterator[tuple[Box, Construction | None]]:
    """The candidate in every form that it may be called in, with what it was built with."""
    meant = sizes_of(facts)
    for construction in fitting_constructions(host, facts, meant.spec, said, meant.stated):
        ready = facts if construction is None else as_built(host.build(construction.kwargs), construction)
        caller, meant = Caller(host, ready.framework), sizes_of(ready)
        if kind_of(ready) not in OF_TOKENS:
            yield from ((box, construction) for box in functions(caller, ready, meant.given, said))
            continue
        for reading in readings(caller, ready, construction, meant.spec, said, meant.stated):
            if isinstance(reading, TokensReading) and reading.learned is not None:
                yield module_box(at_its_defaults(reading)), construction


def functions(caller: Caller, facts: Facts, given: Mapping[str, Any], said: Conventions) -> Iterator[Box]:
    """A function of query, key and value, in every layout and size."""
    refused: list[CandidateError] = []
    for sizes in _sizes(given):
        spec = AttentionSpec(
            num_heads=sizes.num_heads,
            num_kv_heads=sizes.num_kv_heads,
            head_dim=sizes.head_dim,
            value_dim=sizes.value_dim,
            out_proj=False,
        )
        try:
            readings = list(
                function_readings(
                    caller, facts, spec, layout=said.layout, mask_meaning=said.mask_meaning,  # type: ignore[arg-type]
                    extra=dict(said.call), heads_said=True,
                )
            )  # fmt: skip
        except CandidateError as error:
            refused.append(error)
            continue
        for layout in dict.fromkeys(reading.layout for reading in readings):
            reading = at_its_defaults(next(reading for reading in readings if reading.layout == layout))
            batched = reading.abilities.batched
            yield FunctionBox(
                reading,
                Sizes(
                    reading.spec.num_heads,
                    reading.spec.kv_heads,
                    sizes.head_dim,
                    sizes.value_dim,
                    sizes.tokens,
                    batched,
                ),
            )
    if refused and len(refused) == sum(1 for _ in _sizes(given)):
        raise refused[0]


TENSORS = frozenset({"x", "query", "key", "value", "source"})
"""Roles of the arguments that are always given."""


def at_its_defaults(reading: Reading) -> Reading:
    """The reading with every argument left out that may be: what a candidate does by default is what is read."""
    roles = reading.signature.roles
    needed = {role: argument for role, argument in roles.items() if role in TENSORS or argument.required}
    return replace(reading, signature=replace(reading.signature, roles=needed))


def _sizes(given: Mapping[str, Any]) -> Iterator[Sizes]:
    """Sizes to try: those that are given, and the others in the order of how usual they are, one changed at a time."""
    seen: set[Sizes] = set()
    heads = [given["num_heads"]] if "num_heads" in given else list(HEADS)
    widths = [given["head_dim"]] if "head_dim" in given else list(WIDTHS)
    usual = (heads[0], widths[0], TOKENS[0])
    choices = [
        usual,
        *((usual[0], width, usual[2]) for width in widths[1:]),
        *((usual[0], usual[1], tokens) for tokens in TOKENS[1:]),
        *((usual[0], width, tokens) for width in widths[1:] for tokens in BLOCKS),
        *((number, usual[1], usual[2]) for number in heads[1:]),
        *((number, width, usual[2]) for number in heads[1:] for width in widths[1:]),
    ]
    for number, width, tokens in choices:
        for shared in _shared(number, given):
            sizes = Sizes(number, shared, width, given.get("value_dim") or width, tokens)
            if sizes not in seen:
                seen.add(sizes)
                yield sizes


def _shared(num_heads: int, given: Mapping[str, Any]) -> list[int]:
    """Numbers of key/value heads to try: fewer than query heads first, since that shows how they are shared."""
    if given.get("num_kv_heads"):
        return [given["num_kv_heads"]]
    divisor = next((number for number in (3, 2) if num_heads % number == 0 and num_heads > number), 1)
    return list(dict.fromkeys((num_heads // divisor, num_heads)))
