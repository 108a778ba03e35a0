"""The search for a repair: small edits of a candidate's file, the likeliest first, until one of them makes it right."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from qkv.repair.code import Change, Code
from qkv.repair.rules import RULES, Rule
from qkv.repair.scope import definitions

MOST_TOGETHER = 4
"""Places at which one kind of edit is made at once, at most."""

A_ROUND = 20
"""Changes of one rule that are tried before the next rule has its turn."""


ONE_CONDITION_TOO_MANY = frozenset({"window-layers-swapped"})
"""Faults that are a condition which should not be there: one that is turned until it holds always is no repair."""


@dataclass(frozen=True)
class Suspicion:
    """What is known of what is wrong.

    Attributes:
        name: the candidate's name in its file.
        faults: ids of the faults that were named.
        line: the line that is blamed; None where none is.
    """

    name: str
    faults: Sequence[str] = ()
    line: int | None = None


def repaired(
    code: Code,
    likely: Iterable[Change],
    is_right: Callable[[bytes], bool],
    seconds: float,
    advance: Callable[[float], None] = lambda share: None,
) -> bytes | None:
    """The file with the first change under which it is right; None where none was found in time.

    Args:
        code: the file.
        likely: changes of it, the likeliest first.
        is_right: whether a changed file is right.
        seconds: how long to look.
        advance: is told the share of that time that has passed since it was told last.
    """
    now = time.monotonic()
    end, seen = now + seconds, {code.data}
    for change in likely:
        before, now = now, time.monotonic()
        advance((now - before) / seconds)
        if now > end:
            return None
        source = code.edited(change.edits)
        if source is None or source in seen or not _parses(source):
            continue
        seen.add(source)
        if is_right(source):
            return source
    return None


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def changes(code: Code, suspicion: Suspicion, rules: Sequence[Rule] = RULES) -> Iterator[Change]:
    """Every change that rules suggest, the likeliest first."""
    words = {word for fault in suspicion.faults for word in fault.split("-")}
    nodes = _nodes(code, suspicion)
    likely = sorted((rule for rule in rules if rule.about & words), key=lambda rule: -len(rule.about & words))
    others = [rule for rule in rules if not rule.about & words]
    on_line = [node for node in nodes if _is_on(code, node, suspicion.line)]
    whole = not ONE_CONDITION_TOO_MANY.isdisjoint(suspicion.faults)
    conditions = [code.span(node) for node in nodes if isinstance(node, ast.Compare)] if whole else []
    for some, places in ((likely, on_line), (likely, nodes), (others, on_line), (others, nodes)):
        found = _in_rounds([_of_rule(code, rule, places) for rule in some])
        yield from (change for change in found if not _within(conditions, change))


def _of_rule(code: Code, rule: Rule, nodes: Sequence[ast.AST]) -> Iterator[Change]:
    """The changes of one rule at some nodes, first one by one, then those of one kind together."""
    found = []
    for node in nodes:
        for change in rule.changes(code, node):
            found.append((node, change))
            yield change
    yield from _together(code, found)


def _within(spans: Sequence[tuple[int, int]], change: Change) -> bool:
    """Whether any of the edits changes only a part of what stands in one of the spans."""
    return any(
        start <= edit.start and edit.end <= end and (start, end) != (edit.start, edit.end)
        for edit in change.edits
        for start, end in spans
    )


def _in_rounds(waiting: list[Iterator[Change]]) -> Iterator[Change]:
    """Some of the changes of each rule in turn, so that none waits for all of another."""
    while waiting:
        for one in list(waiting):
            some = list(islice(one, A_ROUND))
            yield from some
            if len(some) < A_ROUND:
                waiting.remove(one)


def _nodes(code: Code, suspicion: Suspicion) -> list[ast.AST]:
    """Expressions and statements of the candidate's own definition, and of those it uses."""
    found = [node for definition in definitions(code, suspicion.name) for node in ast.walk(definition)]
    texts = {id(inner) for node in found if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    return [node for node in found if isinstance(node, ast.expr | ast.stmt) and id(node) not in texts]


def _is_on(code: Code, node: ast.AST, line: int | None) -> bool:
    """Whether a node stands on a line; of a function, a class or a block its head."""
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        last = body[0].lineno - 1
    return line is not None and first is not None and last is not None and first <= line <= last


def _together(code: Code, found: Iterable[tuple[ast.AST, Change]]) -> Iterator[Change]:
    """Changes of one kind in one function, made at once: the same slip made for query, key and value."""
    groups: dict[tuple[ast.AST, str], list[Change]] = {}
    for node, change in found:
        if change.kind:
            groups.setdefault((code.function_of(node), change.kind), []).append(change)
    for (_, kind), group in groups.items():
        if 1 < len(group) <= MOST_TOGETHER:
            yield Change(tuple(dict.fromkeys(edit for change in group for edit in change.edits)), kind)
            if len(group) > 2:
                for left in range(len(group)):
                    kept = [change for place, change in enumerate(group) if place != left]
                    yield Change(tuple(dict.fromkeys(edit for change in kept for edit in change.edits)), kind)
