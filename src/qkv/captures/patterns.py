"""Patterns: what a head looks at, as the share of its attention that goes there; and the heads named by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qkv.pictures.attention import Focus, LayerWeights
from qkv.pictures.oddities import put_right, sentences
from qkv.pictures.sampling import one_of_each
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import Array, HeadWeights

NAMED, NAMED_EVEN = 0.4, 0.9
"""Share of its attention from which on a head is called by a pattern; and how near to even it has to be. Weights of
random scores are at 0.6."""

FEW = 8
"""Queries below which what a head looks at may be chance, and it isn't called by it."""

MOST_WEIGHTS = 1 << 22
"""Weights that are looked at in each head; of more, some queries are."""

EVEN = "evenly"
"""The pattern of a head that tells no keys apart."""

INDUCTION = "induction"


@dataclass(frozen=True)
class Looking:
    """Some queries and all keys, to say of each pair what it is.

    Attributes:
        queries: positions of the queries among the keys, ``(query, 1)``.
        keys: positions of the keys, ``(1, key)``.
        repeats: whether the key comes just behind an earlier token that is the query's own, ``(query, key)``; None
            where there are no tokens, or all differ.
    """

    queries: Array
    keys: Array
    repeats: Array | None


Where = Callable[[Looking], Array | None]

TARGETS: Mapping[str, Where] = {
    "previous token": lambda pairs: pairs.keys == pairs.queries - 1,
    INDUCTION: lambda pairs: pairs.repeats,
    "first token": lambda pairs: (pairs.keys == 0) & (pairs.queries > 0),
    "itself": lambda pairs: pairs.keys == pairs.queries,
    "next token": lambda pairs: pairs.keys == pairs.queries + 1,
}
"""Where a head may look, as ``(query, key)`` booleans, by what it is called then."""


@dataclass(frozen=True)
class Scores:
    """What is known of one head.

    Attributes:
        layer: name of its layer.
        head: its own name.
        shares: of each pattern, the share of its attention that goes there: the mean over the queries that have such a
            key and may attend to another one too. ``evenly`` is 1 where all visible keys get the same.
        queries: how many queries may attend to several keys.
        seen: how many of its weights and rows are odd, and how.
    """

    layer: str
    head: str
    shares: Mapping[str, float]
    queries: int
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def best(self) -> tuple[str, float] | None:
        """The pattern that says most of it; None where none says much."""
        if self.queries < FEW:
            return None
        found = max(self.shares.items(), key=lambda item: (item[0] != EVEN, item[1]), default=("", 0.0))
        if found[1] >= NAMED and found[0] != EVEN:
            return found
        even = self.shares.get(EVEN, 0.0)
        return (EVEN, even) if even >= NAMED_EVEN else None


def scores_of(view: AttentionView, advance: Callable[[float], None] = lambda share: None) -> list[Scores]:
    """The patterns of every head, layer by layer.

    Args:
        view: the weights.
        advance: is told the share of the work done since it was told last.
    """
    query_len, key_len = view.shape
    stride = max(1, -(-query_len * key_len // MOST_WEIGHTS))
    queries = one_of_each(query_len, stride)
    where = _targets(view, queries)
    found = []
    for layer in view.layers:
        for head in layer.heads:
            found.append(_scores(layer, head, queries, where))
            advance(1 / len(view.heads))
    return found


def named(view: AttentionView, scores: Sequence[Scores]) -> AttentionView:
    """The view with each head called by what it looks at, where that is one thing: ``head 0: previous token 0.86``.

    It begins with the clearest induction head, where there is one.
    """
    if any(head.against is not None for head in view.heads):
        return view  # what candidates are tried on is random, and so is what they look at
    every, layers = iter(scores), []
    for layer in view.layers:
        heads = [_named(head, next(every)) for head in layer.heads]
        layers.append(LayerWeights(layer.name, heads))
    return replace(view, layers=layers, focus=view.focus or _induction(view, scores))


def _induction(view: AttentionView, scores: Sequence[Scores]) -> Focus | None:
    """The head that follows induction most, where one is called by it."""
    places = [f"{place}.{at}" for place, layer in enumerate(view.layers) for at in range(len(layer.heads))]
    found = [(one.best[1], place, one) for place, one in zip(places, scores, strict=True)
             if one.best is not None and one.best[0] == INDUCTION]  # fmt: skip
    if not found:
        return None
    _, place, one = max(found, key=lambda each: each[0])
    said = f"{one.layer}, {one.head} is an induction head: a token looks at what stood behind the same token earlier"
    return Focus(place, said=said[:1].upper() + said[1:])


def oddities(scores: Sequence[Scores]) -> list[str]:
    """What no attention weights should be, in sentences."""
    return sentences(sum((one.seen for one in scores), Counter()))


def _named(head: HeadWeights, scores: Scores) -> HeadWeights:
    best = scores.best
    name = head.name if best is None else f"{head.name}: {best[0]} {best[1]:.2f}"
    return head.but(name=name, patterns=dict(scores.shares))


def _targets(view: AttentionView, queries: Array) -> dict[str, Array]:
    """Which pairs are of which pattern, ``(query, key)`` each."""
    pairs = Looking(queries[:, None] + view.first_query, np.arange(view.shape[1])[None, :], _repeats(view, queries))
    found = {name: where(pairs) for name, where in TARGETS.items()}
    return {name: pairs for name, pairs in found.items() if pairs is not None}


def _repeats(view: AttentionView, queries: Array) -> Array | None:
    of_queries, of_keys = view.texts
    if of_queries is None or of_keys is None or len(set(of_keys)) == len(of_keys):
        return None
    numbers = {text: number for number, text in enumerate(dict.fromkeys([*of_keys, *of_queries]))}
    query = np.array([numbers[text] for text in of_queries])[queries] if len(queries) else np.zeros(0)
    key = np.array([numbers[text] for text in of_keys])
    position = queries[:, None] + view.first_query
    same = (query[:, None] == key[None, :]) & (np.arange(len(key))[None, :] < position)  # query key
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    return after


def _scores(layer: LayerWeights, head: HeadWeights, queries: Array, where: Mapping[str, Array]) -> Scores:
    whole: Any = slice(0, head.shape[0]) if len(queries) == head.shape[0] else queries
    with np.errstate(all="ignore"):
        keys, weights, may_attend, seen = put_right(head.rows(whole))
    weights = np.clip(weights, 0, None)
    chooses = may_attend.sum(axis=-1) > 1  # query
    shares = {}
    for name, pairs in where.items():
        there = pairs[:, keys] & may_attend
        counted = there.any(axis=-1) & chooses
        if counted.any():
            shares[name] = float((weights * there).sum(axis=-1)[counted].mean())
    if chooses.any():
        shares[EVEN] = _evenness(weights[chooses], may_attend[chooses])
    return Scores(layer.name, head.name, shares, int(chooses.sum()), seen)


def _evenness(weights: Array, may_attend: Array) -> float:
    """How near the weights of each row are to being equal, the mean over rows: 1 less the share that is too much."""
    visible = may_attend.sum(axis=-1, keepdims=True)
    excess = np.clip(weights - may_attend / visible, 0, None).sum(axis=-1)
    return float(np.clip(1 - excess / np.clip(1 - 1 / visible[:, 0], 1e-12, None), 0, 1).mean())
