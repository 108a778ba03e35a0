"""The identity as one JSON object and as text; neither computes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from qkv.report.document import ProbeResult
from qkv.report.identity import Identity
from qkv.report.json_form import SCHEMA, plain
from qkv.report.page import headline, page
from qkv.report.plain import harmless
from qkv.report.seen import seen_of
from qkv.spec import describe, spec_to_mapping


def identity_to_mapping(identity: Identity) -> dict[str, Any]:
    """The identity as plain dicts and lists. ``spec`` has the fields of a spec file, and a check accepts it."""
    spec = identity.spec
    return {
        "schema": SCHEMA,
        "candidate": asdict(identity.candidate),
        "spec": None if spec is None else spec_to_mapping(spec),
        "sentence": "" if spec is None else describe(spec),
        "known": identity.known,
        "per_head": [dict(head) for head in identity.per_head],
        "errors": {name: estimate.error for name, estimate in identity.estimates.items()},
        "estimates": {name: asdict(estimate) for name, estimate in identity.estimates.items()},
        "readings": list(identity.readings),
        "undecided": list(identity.undecided),
        "rivals": list(identity.rivals),
        "handed_over": list(identity.handed_over),
        "documents": list(identity.documents),
        "pictures": dict(identity.pictures),
        "reproduced": identity.reproduced,
        "probes": [asdict(probe) for probe in identity.probes],
        "why": identity.why,
        "hint": identity.hint,
        "detail": identity.detail,
        "repeat": identity.repeat,
    }


def identity_to_json(identity: Identity) -> str:
    """The identity as indented JSON."""
    return json.dumps(plain(identity_to_mapping(identity)), indent=2, ensure_ascii=False)


def identity_text(identity: Identity, console: Console, *, verbose: bool = False) -> str:
    """The identity as text for a terminal. ``verbose`` adds every input that the spec was held against."""
    identity = harmless(identity)
    mark, said, style = STATES[state_of(identity)]
    sections = ((title, Text("\n".join(lines))) for title, lines in _sections(identity, verbose) if lines)
    return page(headline(mark, said, style, identity.candidate), sections, identity.repeat, console)


STATES = {
    "known": ("✓", "read", "bold green"),
    "part": ("?", "read in part", "bold yellow"),
    "none": ("!", "not read", "bold magenta"),
}
"""How much was read, as it is said."""


def state_of(identity: Identity) -> str:
    """How much was read: ``known``, ``part`` or ``none``."""
    if identity.spec is None:
        return "none"
    return "known" if identity.known else "part"


def _sections(identity: Identity, verbose: bool) -> Iterator[tuple[str, Sequence[str]]]:
    yield "why", [identity.why] if identity.why else []
    yield "", identity.detail.splitlines()
    yield "try", [identity.hint] if identity.hint else []
    yield "computes", [] if identity.spec is None else [describe(identity.spec)]
    for seen in seen_of(identity):
        yield "mask", [f"{seen.name}: {seen.said}", *seen.drawn.splitlines()]
    yield "read", identity.readings
    for name, drawn in identity.pictures.items():
        yield "picture", [name, *drawn.splitlines()]
    yield "or", identity.rivals
    yield "open", identity.undecided
    yield "held to", [_probe(probe) for probe in identity.probes] if verbose else [in_short(identity)]


def in_short(identity: Identity) -> str:
    """What the spec was held against, in a sentence."""
    taken = [probe for probe in identity.probes if probe.agrees is not None]
    if identity.candidate.kind == "dump":
        if not taken:
            return "nothing: no spec gives all of the dump's numbers"
        return "the dump itself, the one input there is: this spec gives its numbers"
    if not taken:
        return "nothing: no fresh input was taken"
    same = sum(bool(probe.agrees) for probe in taken)
    besides = f", with {' and '.join(identity.handed_over)} handed over besides" if identity.handed_over else ""
    return f"{same} of {len(taken)} fresh inputs give the same numbers under this spec{besides}"


def _probe(probe: ProbeResult) -> str:
    if probe.agrees is None:
        return f"{probe.name}: not taken ({probe.note})"
    return f"{probe.name}: {'same' if probe.agrees else 'other'} numbers, off by {probe.max_error:.1g}"
