"""A mix without a mask in a script that says that there is one: in a name, a comment, or by a mask that is not used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.edits import with_code
from qkv.scripts.findings import Finding
from qkv.scripts.idle import applied, not_applied, seen_in
from qkv.scripts.known import Known
from qkv.scripts.mixes import Mix
from qkv.scripts.spots import Written, spot_at
from qkv.scripts.variables import live_values
from qkv.scripts.writing import drawn, hiding, remade


def unmasked(mix: Mix, mixes: Sequence[Mix], assumptions: list[str], text: Text) -> Iterator[Finding]:
    """What is wrong where no mask leads to a mix, though the script says so of it, or of its last one."""
    mix, live = replace(mix, last=True), live_values(mix.reading, mixes)
    word = next(filter(naming.causal_word, mix.names()), "")
    if not word and (mixes[-1].context is not mix.context or any(other.visible is not None for other in mixes)):
        return
    idle = list(_idle(mix, live))
    found = next((one for known in idle if (one := _too_late(mix, known) or _thrown_away(mix, known))), None)
    found = found or _unused(mix, live, text, assumptions)
    said = word or naming.causal_comment(text.source)
    if found is None and idle:
        found = _not_used(mix, idle[-1], assumptions)
    if found is None and said:
        found = _missing(mix, said)
    if found is not None:
        yield found


def _idle(mix: Mix, live: Set[int]) -> Iterator[Known]:
    """The masked scores of a mix that nothing is made of."""
    dead = dict.fromkeys(sight.known for value, sight in mix.reading.sights.items() if value not in live)
    for known in dead:
        if known.move == "mask" and not known.slip and known.kind == "scores" and known.sources[0] in mix.path:
            yield known


def _too_late(mix: Mix, masked: Known) -> Finding | None:
    """Scores are masked in place once others were made of them, which don't follow; None where they are not."""
    reading, before = mix.reading, masked.sources[0]
    spot = spot_at(reading, masked.made)
    if not reading.operations[masked.made].in_place or mix.uses(before)[0] > masked.made:
        return None
    later = [one for one in mix.path if one.kind == "scores" and mix.uses(one)[0] > masked.made]
    name = next((name for one in later if (name := spot.variable(one))), "")
    changed = spot.variable(before)
    code, times = with_code(spot.code, changed, name) if name else ("", 0)
    said = (
        f"{changed} is masked here, after {name} was made of it, and the weights are made of {name}: a variable does "
        "not follow when what it was made of changes"
    )
    return Finding.of("mask-not-applied", said, Written(spot, code), mix) if times else None


def _thrown_away(mix: Mix, masked: Known) -> Finding | None:
    """New scores are made, masked, and given to no variable; None where one holds them."""
    reading, spot = mix.reading, spot_at(mix.reading, masked.made)
    name = spot.variable(masked.sources[0])
    if not name or spot.place is None or spot.place.target or reading.operations[masked.made].in_place:
        return None
    said = f"this makes masked scores and keeps them nowhere: {name} stays as it was. Give them to a variable"
    return Finding.of("mask-not-applied", said, Written(spot, f"{name} = {spot.code}"), mix)


def _unused(mix: Mix, live: Set[int], text: Text, assumptions: list[str]) -> Finding | None:
    """A mask in a variable that no weights are made with; None for none."""
    reading = mix.reading
    masks = [value for value, sight in reading.sights.items() if sight.known.kind == "mask" and reading.name(value)]
    if not masks or any(value in live for value in masks):
        return None
    name = reading.name(masks[-1])
    said = f"{name} is made, and the weights are not made with it: every token sees all others, later ones too"
    visible = seen_in(mix, reading.array(masks[-1]))
    return not_applied(mix, said, applied(mix, masks[-1], name, text), visible, assumptions)


def _not_used(mix: Mix, masked: Known, assumptions: list[str]) -> Finding:
    name = mix.name(masked, "a masked copy of the scores")
    said = f"{name} is made, and the weights are not made of it: every token sees all others, later ones too"
    written = remade(mix, mix.softmax or mix.context, lambda scores: name)
    assert masked.visible is not None
    return not_applied(mix, said, written, masked.visible, assumptions)


def _missing(mix: Mix, word: str) -> Finding:
    step = mix.softmax or mix.context
    said = f"'{word}' says that no token sees a later one, and no mask is applied before softmax"
    written = remade(mix, step, lambda scores: hiding(mix, scores, "mask"))
    draws = drawn(mix, written.spot.name(step.sources[0], "attn_scores"))
    before = f"{draws}\n{written.before}" if written.before else draws
    return Finding.of("causal-missing", said, written._replace(before=before), mix)
