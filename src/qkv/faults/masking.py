"""Tools for faults of the mask: one part of a mask changed or taken away while the others stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if, unless
from qkv.masks import And, Everything, Mask, Not, Or, Padding, Positions
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import mask as right_mask
from qkv.vocabulary import Stage

NOTHING = Not(Everything())
"""The mask that hides every key."""

Kind = TypeVar("Kind", bound=Mask)

# --- the mask as a tree ---


def with_changed(mask: Mask, kind: type[Kind], change: Callable[[Kind], Mask]) -> Mask:
    """``mask`` with every part of one kind changed."""
    match mask:
        case And(left=left, right=right):
            return And(with_changed(left, kind, change), with_changed(right, kind, change))
        case Or(left=left, right=right):
            return Or(with_changed(left, kind, change), with_changed(right, kind, change))
        case Not(of=of):
            return Not(with_changed(of, kind, change))
    return change(mask) if isinstance(mask, kind) else mask


def without(mask: Mask, kind: type[Mask]) -> Mask:
    """``mask`` as if the parts of one kind hid nothing."""
    return simple(_freed(mask, kind, True))


def _freed(mask: Mask, kind: type[Mask], keeps: bool) -> Mask:
    match mask:
        case And(left=left, right=right):
            return And(_freed(left, kind, keeps), _freed(right, kind, keeps))
        case Or(left=left, right=right):
            return Or(_freed(left, kind, keeps), _freed(right, kind, keeps))
        case Not(of=of):
            return Not(_freed(of, kind, not keeps))
    if isinstance(mask, kind):
        return Everything() if keeps else NOTHING
    return mask


def unjoined(mask: Mask, kind: type[Mask]) -> Mask:
    """``mask`` as if the parts of one kind had never been joined to it: ``causal | prefix(3)`` becomes ``causal``."""
    return _unjoined(mask, kind) or Everything()


def _unjoined(mask: Mask, kind: type[Mask]) -> Mask | None:
    match mask:
        case And(left=left, right=right) | Or(left=left, right=right):
            sides = [side for side in (_unjoined(left, kind), _unjoined(right, kind)) if side is not None]
            return type(mask)(*sides) if len(sides) == 2 else next(iter(sides), None)
        case Not(of=of):
            rest = _unjoined(of, kind)
            return None if rest is None else Not(rest)
    return None if isinstance(mask, kind) else mask


def simple(mask: Mask) -> Mask:
    """The same mask without the parts that change nothing."""
    match mask:
        case And(left=left, right=right):
            left, right = simple(left), simple(right)
            if NOTHING in (left, right):
                return NOTHING
            return right if left == Everything() else left if right == Everything() else And(left, right)
        case Or(left=left, right=right):
            left, right = simple(left), simple(right)
            if Everything() in (left, right):
                return Everything()
            return right if left == NOTHING else left if right == NOTHING else Or(left, right)
        case Not(of=of):
            of = simple(of)
            return of.of if isinstance(of, Not) else Not(of)
    return mask


def leaves(mask: Mask) -> Iterator[Mask]:
    """The parts that are no combination of others."""
    return (part for part in mask.parts() if not isinstance(part, And | Or | Not))


# --- masks that only faulty implementations have ---


@dataclass(frozen=True)
class Band(Mask):
    """A query sees ``back`` keys before itself and ``ahead`` keys after itself; None means all of them."""

    back: int | None
    ahead: int | None

    def allows(self, at: Positions) -> Array:
        """True inside the band."""
        may_attend = at.everywhere
        if self.back is not None:
            may_attend = may_attend & (at.query - at.key <= self.back)
        return may_attend if self.ahead is None else may_attend & (at.key - at.query <= self.ahead)


@dataclass(frozen=True)
class Blocks(Mask):
    """A query sees the keys of its own block of ``size`` tokens."""

    size: int

    def allows(self, at: Positions) -> Array:
        """True where query and key stand in the same block."""
        return at.query // self.size == at.key // self.size


@dataclass(frozen=True)
class FromBlock(Mask):
    """A query sees the keys on either side of it from the beginning of the block in which its window begins."""

    size: int
    block: int

    def allows(self, at: Positions) -> Array:
        """True from there on, and as far behind the query as the window reaches."""
        begin = (at.query - self.size + 1) // self.block * self.block
        return (at.key >= begin) & (at.key - at.query < self.size)


# --- the mask of one run ---

Part = Literal["whole", "spec", "given", "padding"]
"""Which part of a mask a fault touches: all of it, the spec's rule, the mask of the call, or the padding."""

PARTS: dict[Part, str] = {
    "whole": "",
    "spec": "the padding and the mask given with the call are right",
    "given": "only the mask given with the call",
    "padding": "only the padding",
}
"""Every part, with the words for a fault that touches only it."""


def in_words(note: str, part: Part) -> str:
    """A note, with the part that it's about."""
    return "; ".join(words for words in (note, PARTS[part]) if words)


def hidden_by(run: Run, may_attend: Array) -> Run:
    """The mask stage done with another mask."""
    may_attend = run.xp.broadcast_to(may_attend, run.scores.shape)
    return run.but(may_attend=may_attend, scores=run.xp.where(may_attend, run.scores, run.array(-float("inf"))))


def masked_as(mask: Mask) -> Replacements:
    """The mask stage done with another mask in the place of the spec's; padding and the call's own mask stay."""
    return {Stage.MASK: as_if(right_mask, mask=mask)}


def pieces(run: Run) -> dict[Part, Array]:
    """The parts of the mask that are there, each broadcast to ``(batch, head, query, key)``."""
    at = run.positions()
    there: dict[Part, Array] = {}
    rule = without(run.spec.mask, Padding)
    if rule != Everything():
        there["spec"] = rule.allows(at)
    if run.inputs.may_attend is not None:
        there["given"] = run.inputs.may_attend
    if at.key_is_token is not None:
        there["padding"] = at.key_is_token
    return {part: run.xp.broadcast_to(array, run.scores.shape) for part, array in there.items()}


def split(run: Run, part: Part) -> tuple[Array, Array]:
    """Who may attend to whom by one part of the mask, and by all the rest of it.

    Raises:
        ShapeError: the part isn't there, or is all there is, so that another part's name says the same.
    """
    there = pieces(run)
    unless(not there, "nothing is masked")
    everything = run.xp.broadcast_to(run.positions().everywhere, run.scores.shape)
    if part == "whole":
        return _all_of(list(there.values()), everything), everything
    if part not in there or len(there) == 1:
        raise ShapeError(f"the mask has no part {part!r} beside others")
    return there[part], _all_of([array for name, array in there.items() if name != part], everything)


def _all_of(arrays: list[Array], everything: Array) -> Array:
    for array in arrays:
        everything = everything & array
    return everything


def seen_from(at: Positions, moved_by: int) -> Positions:
    """The same positions, with every query ``moved_by`` tokens further on; documents stay where they are."""
    return replace(at, query=at.query + moved_by)
