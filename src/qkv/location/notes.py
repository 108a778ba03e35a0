"""Notes: what is said of the line that is blamed, in words."""

from __future__ import annotations

from qkv.location.blaming import Blame
from qkv.location.ends import scales_by_one
from qkv.location.frontier import Frontier
from qkv.location.kinds import COMPARING, GROUPING
from qkv.location.spots import along_heads
from qkv.vocabulary import Stage


def note_on(frontier: Frontier, blamed: Blame, line: int, until: int | None) -> str:
    """What is said of the line that is blamed, and of the other end of what may be changed."""
    agree = ": watching it run and its outputs say the same" if _confirmed(frontier, blamed) else ""
    if blamed.skipped is not None:
        between = "" if until is None else f", before line {until} uses it"
        if along_heads(frontier, blamed):
            return f"rope counts along the heads of what lies so: its tokens belong behind its heads{between}{agree}"
        if blamed.skipped is Stage.MASK and _makes_a_mask(frontier, blamed):
            where = "" if until is None else f" for line {until}"
            return f"the mask that it makes{where} is not the one that is meant{agree}"
        return f"what it makes is right; the stage {blamed.skipped} that belongs behind it is left out{between}{agree}"
    if blamed.unused and blamed.used_by is not None and (used := frontier.place(blamed.used_by)) is not None:
        return f"what it makes is right, and line {used.line} is given it too early or too late{agree}"
    if blamed.before is not None and until is not None:
        if {frontier.operation(one).name for one in (blamed.operation, blamed.before)} == {"getitem"}:
            return f"the keys that line {line} takes don't follow those that line {until} takes"
        if scales_by_one(frontier, blamed.operation):
            return (
                f"line {line} says to scale by 1, and the query of line {until} isn't scaled either: change one{agree}"
            )
        return f"line {line} is given the right numbers by line {until}, {_unfit(frontier, blamed)}{agree}"
    if agree:
        return f"what it is given is right, and from here on the numbers are those of the fault{agree}"
    return "what it is given is right, and what it makes no right attention makes"


def _unfit(frontier: Frontier, blamed: Blame) -> str:
    """In what way right numbers are not what is needed where they are used."""
    if frontier.operation(blamed.operation).name not in GROUPING:
        if frontier.stage == Stage.SCALE:
            return "scaled in part already"
        if frontier.stage == Stage.SOFTMAX:
            return "with a row in which all is hidden"
        if frontier.stage == Stage.MASK:
            counted = frontier.operation(blamed.operation).name in COMPARING
            return "counted the other way round than it needs" if counted else "in another form than it needs"
    return "in another order of axes than it needs"


def _confirmed(frontier: Frontier, blamed: Blame) -> bool:
    """Whether something that is made of it is what the diagnosed fault makes there."""
    faulty = (value for value, sight in enumerate(frontier.recognition.faulty) if sight is not None)
    makers = (frontier.flow.maker(value) for value in faulty)
    return any(
        maker is not None
        and (
            maker == blamed.operation or blamed.operation in frontier.flow.behind([*frontier.operation(maker).results])
        )
        for maker in makers
    )


def _makes_a_mask(frontier: Frontier, blamed: Blame) -> bool:
    """Whether the operation that is blamed says what may be seen: then the mask is not left out, but another one."""
    results = frontier.operation(blamed.operation).results
    return bool(results) and all(frontier.recognition.recording.values[value].array.dtype == bool for value in results)
