"""Judging: what is wrong on the way to each mix, in the words of a person who looks over the shoulder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from qkv.adapters.texts import Text
from qkv.scripts import naming
from qkv.scripts.allowed import documents
from qkv.scripts.findings import Finding
from qkv.scripts.fused import FUSED
from qkv.scripts.idle import idle_masks
from qkv.scripts.lacking import without_context
from qkv.scripts.lists import answer_of
from qkv.scripts.masking import masking
from qkv.scripts.mixes import Mix, mixes_of
from qkv.scripts.reading import Reading
from qkv.scripts.rotation import rotation
from qkv.scripts.sides import biases, crossed, scale, sides
from qkv.scripts.steps import axis, masked_late, slips, sums
from qkv.scripts.unlike import unlike
from qkv.scripts.unused import blamed_on_use
from qkv.scripts.variables import live_values, of_variables, unequal
from qkv.scripts.wording import finding_of


@dataclass
class Judgement:
    """What is known of a script at the end.

    Attributes:
        mixes: every product of weights and values.
        findings: all that is wrong, in the order of the lines.
        assumptions: what was taken for granted.
        unequal: which comparisons of its own come out false.
        worth: what was compared at the end, where that is all that is known.
        open: why it can't be said whether the rest is right; empty where it is.
        line: the line that this is said of; 0 for none.
        hint: what to type next, where that is so.
    """

    mixes: list[Mix]
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)
    worth: list[str] = field(default_factory=list)
    open: str = ""
    line: int = 0
    hint: str = "to have a function or a class judged, name it: qkv check FILE.py:NAME"


def judged(reading: Reading, text: Text) -> Judgement:
    """What is right and wrong in a script."""
    judgement = Judgement(mixes_of(reading))
    live = live_values(reading, judgement.mixes)
    for mix in judgement.mixes:
        findings = [finding for rule in (slips, axis, sums, masked_late, rotation) for finding in rule(mix)]
        judgement.assumptions += biases(mix)
        if mix.additive:
            judgement.assumptions.append(
                f"the scores of {mix.name(mix.weights, 'the weights')} are additive: taken as meant"
            )
        else:
            findings += [*sides(mix, text), *scale(mix, text.source, judgement.assumptions)]
        findings += masking(mix, judgement.mixes, judgement.assumptions, text)
        judgement.findings += (blamed_on_use(mix, finding, live) for finding in findings)
    judgement.findings = [*_with_crossed(reading, judgement.findings), *documents(reading, live)]
    judgement.findings += _afterwards(reading, judgement.mixes)
    judgement.findings += of_variables(reading, judgement.mixes)
    judgement.unequal += dict.fromkeys(unequal(reading))
    _add_idle(judgement, reading, text)
    judgement.findings = _first_of_each(reading, judgement.findings)
    _leave_open(judgement, reading, text)
    return judgement


def _leave_open(judgement: Judgement, reading: Reading, text: Text) -> None:
    """Nothing; says what could not be judged, where nothing else is wrong."""
    fused = next(
        (one for one in reading.operations if one.name in FUSED and one.results[0] not in reading.sights), None
    )
    unknown = [mix for mix in judgement.mixes if mix.weights.move == "derived" and not mix.normalised]
    if not judgement.mixes and not reading.run.recording.complete:
        judgement.open = "its arrays are too many or too large to be followed; run it with fewer tokens"
    elif not judgement.mixes:
        _by_lists(judgement, reading, text)
    elif not judgement.findings and (told := next(unlike(reading), None)):
        judgement.open, judgement.line = told
    elif fused is not None and not judgement.findings:
        judgement.open = f"what {fused.name} made of its arguments could not be followed"
    elif unknown and not judgement.findings:
        name = reading.name_of(unknown[0].weights) or "its weights"
        judgement.open = f"how {name} was made of the scores is not known, though its rows sum to one"


def _add_idle(judgement: Judgement, reading: Reading, text: Text) -> None:
    """Nothing; adds what is wrong with masks that are made for nothing, where nothing else is with a mask."""
    if any(finding.fault.startswith(("mask", "causal")) for finding in judgement.findings):
        return
    for idle in idle_masks(judgement.mixes, reading, text, judgement.assumptions, judgement.unequal):
        if isinstance(idle, str):
            judgement.open = judgement.open or idle
        else:
            judgement.findings.append(idle)


def _with_crossed(reading: Reading, findings: list[Finding]) -> list[Finding]:
    """The findings and those of crossed heads: heads that are taken in turn by some of them only are not so at all."""
    heads = list(crossed(reading))
    places = {reading.place(one.operation) for one in heads}
    kept = [one for one in findings if one.fault != "kv-heads-tiled" or reading.place(one.operation) not in places]
    return kept + heads


def _first_of_each(reading: Reading, findings: list[Finding]) -> list[Finding]:
    """One finding of each kind and place: what a loop does again and again is said once."""
    by_place = {(finding.fault, reading.place(finding.operation)): finding for finding in reversed(findings)}
    return sorted(by_place.values(), key=lambda finding: finding.operation)


def _by_lists(judgement: Judgement, reading: Reading, text: Text) -> None:
    """Nothing; judges what cannot be followed by the numbers that its variables hold at the end."""
    lists = reading.run.lists
    arrays = {one.name: reading.array(one.value) for one in reading.run.bound}
    causal = any(map(naming.causal_word, lists)) or bool(naming.causal_comment(text.source))
    answer = answer_of({**arrays, **lists}, causal) if lists and not reading.run.error else None
    if answer is None:
        judgement.open, judgement.hint = without_context(reading, text)
        return
    given = ", ".join(answer.given)
    unfollowed = [name for name in lists if name not in (answer.name, *answer.given)]
    if unfollowed:
        judgement.assumptions.append(
            f"{', '.join(unfollowed)}: Python's own numbers and lists, which are not followed step by step"
        )
    if answer.fault is None:
        of = "" if answer.token is None else f" for token {answer.token}"
        said = f"{answer.name} was held against what an attention makes of {given}{of}: it is equal"
        judgement.worth.append(said)
        return
    fault, note = answer.fault.fault, f" ({answer.fault.note})" if answer.fault.note else ""
    said = f"{answer.name} has the numbers that this fault makes of {given}{note}; the line can't be told"
    judgement.findings.append(Finding(fault.id, -1, said, fault.repair))


def _afterwards(reading: Reading, mixes: list[Mix]) -> Iterator[Finding]:
    """Slips behind the mix: where the heads are put together."""
    by_context = {mix.context: mix for mix in mixes}
    for known in dict.fromkeys(sight.known for sight in reading.sights.values()):
        mix = next((by_context[one] for one in known.chain() if one in by_context), None)
        if known.kind == "context" and known.move == "merge" and known.slip and mix is not None:
            yield finding_of(mix, known)
