"""Size rules: sentences such as "key_len is no multiple of 64", and which of them fit what was seen at some sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.probes.sizes import Size

Numbers = np.ndarray[Any, np.dtype[Any]]

Columns = Mapping[str, Numbers]
"""Sizes side by side: one array a field."""

AXES = ("key_len", "query_len", "head_dim", "value_dim", "batch", "num_heads", "num_kv_heads")
MOST_JOINED = 2000
"""Joined rules that are told apart by further calls at most."""

MOST = 0.5
"""Share of the sizes inside a bound that must be wrong."""

BLOCKS = (2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256)


@dataclass(frozen=True)
class SizeRule:
    """A sentence about sizes.

    Attributes:
        words: the sentence.
        holds: for which sizes it is true.
        parts: the rules that it joins; none for one that stands alone.
    """

    words: str
    holds: Callable[[Columns], Numbers]
    parts: Sequence[SizeRule] = ()

    def __and__(self, other: SizeRule) -> SizeRule:
        parts = (*(self.parts or (self,)), *(other.parts or (other,)))
        words = f"{self.words} and {other.words}"
        return SizeRule(words, lambda at: self.holds(at) & other.holds(at), parts)

    def sides(self, at: Columns) -> Iterator[Numbers]:
        """Which sizes lie where it is true; and where it is false, for each of its parts, by that one alone."""
        parts = [part.holds(at) for part in self.parts or (self,)]
        yield self.holds(at)
        for place, one in enumerate(parts):
            yield np.logical_and.reduce([~one, *parts[:place], *parts[place + 1 :]])


def columns(sizes: Sequence[Size]) -> Columns:
    """The sizes side by side."""
    at = {name: np.array([getattr(size, name) for size in sizes]) for name in (*AXES, "memory")}
    rows = {"query": at["num_heads"] * at["query_len"], "key": at["num_kv_heads"] * at["key_len"]}
    rows["value"] = rows["key"]
    dims = {"query": "head_dim", "key": "head_dim", "value": "value_dim"}
    return at | {_count(role): at["batch"] * rows[role] * at[dim] for role, dim in dims.items()}


def _count(role: str) -> str:
    """How many numbers an array holds: where the places of its numbers are counted, in 16 bits say, this matters."""
    return f"the count of numbers in the {role}"


def fitting(evidence: Mapping[Size, bool]) -> list[SizeRule]:
    """Every rule that holds exactly where the evidence says so, the simplest first; two joined where no one does."""
    wrong = list(evidence.values())
    if all(wrong) or not any(wrong):
        return []
    clear = {size: wrong for size, wrong in evidence.items() if wrong or shows(size)}
    return _single(evidence) or _single(clear) or _joined(clear)[:MOST_JOINED]


def finer(rule: SizeRule, evidence: Mapping[Size, bool]) -> list[SizeRule]:
    """Narrower rules that fit as well so far: the rule joined with another about blocks or about one of something."""
    at, seen = columns(list(evidence)), np.array(list(evidence.values()))
    joined = [rule & other for other in _rules(at, ())]
    return [one for one in joined if (one.holds(at) == (rule.holds(at) & seen)).all()]


def shows(size: Size) -> bool:
    """Whether most faults could be seen at a size.

    With one key its weight is one whatever the scores are, and sequences that are one and the same can't be mixed up.
    """
    return size.key_len > 1 and size.memory != "expanded"


def _single(evidence: Mapping[Size, bool]) -> list[SizeRule]:
    at, seen = columns(list(evidence)), np.array(list(evidence.values()))
    return [rule for rule in _rules(at) if (rule.holds(at) == seen).all()]


def _joined(evidence: Mapping[Size, bool]) -> list[SizeRule]:
    at, seen = columns(list(evidence)), np.array(list(evidence.values()))
    wide = [(rule, holds) for rule in _rules(at) if (holds := rule.holds(at))[seen].all()]
    beyond = np.array([holds[~seen] for _, holds in wide], dtype=np.float32).reshape(len(wide), -1)
    pairs = np.argwhere(np.triu(beyond @ beyond.T == 0, k=1))
    return [wide[right][0] & wide[left][0] for left, right in pairs]


def bounding(evidence: Mapping[Size, bool]) -> SizeRule | None:
    """The rule outside which nothing was ever wrong, and inside which most was; None where there is none.

    For faults that show with some numbers only, such as a largest score that has to lie in a later block.
    """
    at, seen = columns(list(evidence)), np.array(list(evidence.values()))
    wide = [(rule, holds) for rule in _rules(at, BLOCKS) if (holds := rule.holds(at))[seen].all()]
    outside = [(seen[holds].mean(), rule) for rule, holds in wide if holds.sum() < len(seen)]
    share, rule = max(outside, key=lambda one: one[0], default=(0.0, None))
    return rule if share >= MOST else None


def telling(rules: Sequence[SizeRule], pool: Sequence[Size]) -> Size | None:
    """The size of a pool that tells the rules apart best, the one with the least work of several; None if none does."""
    if not pool or not rules:
        return None
    at = columns(pool)
    holding = np.sum([rule.holds(at) for rule in rules], axis=0)
    evenness = np.minimum(holding, len(rules) - holding)
    best = int(evenness.max())
    if best == 0:
        return None
    return min((size for size, even in zip(pool, evenness, strict=True) if even == best), key=lambda size: size.work)


def _rules(at: Columns, numbers: Sequence[int] | None = None) -> Iterator[SizeRule]:
    """All rules, the simplest first; those that name a number for all up to the largest that was seen, or for some."""
    yield from _memory()
    yield from _relations()
    for axis in AXES:
        top = int(at[axis].max())
        yield from (_compared(axis, words, 1) for words in _COMPARISONS)
        yield from _blocks(axis, [block for block in BLOCKS if block <= top] if axis in AXES[:4] else [])
        for number in dict.fromkeys((*BLOCKS, *range(2, top + 1))) if numbers is None else numbers:
            if number <= top:
                yield from (_compared(axis, words, number) for words in _COMPARISONS)
    yield from _counts(at)


def _memory() -> Iterator[SizeRule]:
    yield SizeRule("the arrays are not contiguous", lambda at: at["memory"] != "contiguous")
    yield SizeRule("the arrays are strided", lambda at: at["memory"] == "strided")
    yield SizeRule("the arrays are expanded", lambda at: at["memory"] == "expanded")


_COMPARISONS: Mapping[str, Callable[[Any, Any], Numbers]] = {
    ">": np.greater,
    "is": np.equal,
    "<": np.less,
    "is not": np.not_equal,
}


def _relations() -> Iterator[SizeRule]:
    for left, right in (("query_len", "key_len"), ("value_dim", "head_dim"), ("num_kv_heads", "num_heads")):
        for words in ("<", ">", "is not", "is"):
            yield _related(left, words, right)


def _related(left: str, words: str, right: str) -> SizeRule:
    return SizeRule(f"{left} {words} {right}", lambda at: _COMPARISONS[words](at[left], at[right]))


def _blocks(axis: str, blocks: Sequence[int]) -> Iterator[SizeRule]:
    for block in blocks:
        yield _left_over(axis, block, "is no multiple of", lambda rest: rest != 0)
        yield _left_over(axis, block, "is a multiple of", lambda rest: rest == 0)
        yield _left_over(axis, block, "is one more than a multiple of", lambda rest: rest == 1)
    if blocks:
        yield SizeRule(f"{axis} is no power of two", lambda at: (at[axis] & (at[axis] - 1)) != 0)


def _counts(at: Columns) -> Iterator[SizeRule]:
    for role in ("key", "value", "query"):
        top = int(at[_count(role)].max())
        yield from (_compared(_count(role), ">", 2**bits) for bits in range(8, 32) if 2**bits < top)


def _left_over(axis: str, block: int, words: str, holds: Callable[[Numbers], Numbers]) -> SizeRule:
    return SizeRule(f"{axis} {words} {block}", lambda at: holds(at[axis] % block))


def _compared(axis: str, words: str, number: int) -> SizeRule:
    return SizeRule(f"{axis} {words} {number}", lambda at: _COMPARISONS[words](at[axis], number))
