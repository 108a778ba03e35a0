"""The rules of repair: each yields changes for one node of a file, for one idea of what may be wrong with it.

A rule may be generous: a change is kept only if the file is found right with it. What matters is which comes first,
since the first one that is right is shown: so each rule says which faults it is about, by words of their ids.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from qkv.repair.code import Change, Code
from qkv.repair.rules import (
    axes,
    capping,
    dropping,
    forgotten,
    indices,
    masking,
    naming,
    numbers,
    operators,
    order,
    pairing,
    precision,
    scaling,
    shaping,
)


class Rule(NamedTuple):
    """A kind of edit, and what faults it is likely to mend."""

    changes: Callable[[Code, ast.AST], Iterator[Change]]
    about: frozenset[str]


def _rule(changes: Callable[[Code, ast.AST], Iterator[Change]], about: str) -> Rule:
    return Rule(changes, frozenset(about.split()))


BY_INDEX: tuple[Rule, ...] = (
    _rule(indices.counted, "kv heads divisor tiled sequence confused token index weights out step causal inverted"),
    _rule(indices.row, "token index scores transposed weights out step"),
)
"""The rules about what a loop counts."""

RULES: tuple[Rule, ...] = (
    _rule(precision.dropout, "dropout eval"),
    _rule(precision.cast, "precision low softmax"),
    _rule(axes.axis, "softmax over queries heads batch axis norm sink rows"),
    _rule(numbers.diagonal, "causal strict ahead inverted corner window prefix"),
    _rule(operators.compared, "causal strict ahead inverted window off documents leak padding wrong"),
    _rule(masking.filled_with, "mask fill small zeroed masked empty row read"),
    _rule(masking.from_number, "mask added number masked scores zeroed bias read"),
    _rule(masking.after_softmax, "mask after softmax"),
    _rule(masking.lost, "causal missing padding mask not applied rope"),
    _rule(masking.fused, "causal missing strict ahead inverted mask added number fill small padding documents"),
    _rule(numbers.power, "scale inverted"),
    _rule(scaling.of_another_size, "scale model width constant other missing"),
    _rule(scaling.turned_over, "scale inverted twice"),
    _rule(naming.sibling, "value key weights query times projection is shared sink norm rope"),
    _rule(naming.traded, "swapped key value query"),
    _rule(naming.unpacked, "swapped key value query fused qkv"),
    _rule(operators.exchanged, "scores transposed swapped key value alibi sign causal inverted mask window"),
    _rule(operators.unconjugated, "rope sign"),
    _rule(operators.conjugated, "rope sign"),
    _rule(operators.negated, "causal inverted mask padding wrong sign rope alibi"),
    _rule(operators.binary, "scale inverted alibi sign rope bias mask order kv documents window causal leak"),
    _rule(operators.rotation, "rope sign"),
    _rule(naming.another_function, "causal inverted mask padding wrong"),
    _rule(operators.inverted, "causal inverted mask padding wrong side added read"),
    _rule(forgotten.layer, "projection output missing norm qk bias"),
    _rule(forgotten.parameter, "projection output missing value not projected bias alibi sink"),
    _rule(forgotten.whole_layer, "projection bias transposed term"),
    _rule(forgotten.bias, "bias term"),
    _rule(forgotten.same_as_sibling, "norm qk rope missing one sided"),
    _rule(shaping.split, "heads split by view strided read contiguous fused qkv layout"),
    _rule(shaping.merged, "heads merged by view"),
    _rule(shaping.einsum, "scores transposed heads merged mix"),
    _rule(shaping.regrouped, "heads merged split view interleaved kv tiled rope layout mixed fused qkv"),
    _rule(shaping.repeated, "kv heads tiled rope layout mixed alibi slopes"),
    _rule(shaping.expanded, "kv heads tiled"),
    _rule(pairing.one_place, "rope layout mixed"),
    _rule(pairing.everywhere, "rope layout"),
    _rule(axes.transposed, "heads merged split fused qkv layout view"),
    _rule(axes.new_axis, "padding on queries mask transposed causal"),
    _rule(order.statements, "softcap before after norm rope mask order scale cache"),
    _rule(capping.incomplete, "softcap missing"),
    _rule(capping.missing, "softcap missing"),
    _rule(numbers.known, "rope frequencies base softcap constant"),
    _rule(numbers.one_off, "window off one causal ahead strict rope offset shifted alibi slopes sink cache"),
    _rule(numbers.one_more, "window off one causal ahead strict rope offset shifted"),
    _rule(
        dropping.operand,
        "scale twice bias extra rope offset shifted term causal ahead mask window layers swapped alibi",
    ),
    _rule(dropping.argument, "scale missing inverted twice model width constant softcap"),
    _rule(dropping.statement, "scale twice value is key norm rope after strided contiguous prefix block sink extra"),
    _rule(dropping.call, "projection transposed rope applied twice strided contiguous norm mask padding wrong cache"),
    _rule(dropping.attribute, "mask transposed causal inverted projection"),
    _rule(dropping.condition, "padding missing causal mask window documents leak alibi slopes dropout eval"),
    _rule(dropping.part, "sink counted block"),
    _rule(scaling.constant, "scale missing constant other model width inverted"),
    _rule(scaling.moved, "scale after softmax"),
    _rule(scaling.missing, "scale missing"),
    _rule(naming.another_size, "scale model width constant other rope frequencies partial kv divisor"),
    _rule(forgotten.function, "rope missing alibi norm mask"),
    _rule(masking.missing, "causal missing mask not applied padding documents leak window"),
    _rule(masking.emptied, "empty row"),
    _rule(forgotten.attribute, "window missing softcap alibi rope partial ignored scale"),
    _rule(naming.another, "rope offset lost causal corner missing window padding mask value scores weights"),
    *BY_INDEX,
    _rule(axes.subscripts, "value is key swapped kv divisor rope padding mask other sequence fused qkv causal"),
    _rule(forgotten.returned_layer, "projection output missing"),
    _rule(shaping.transposed, "scores transposed projection heads"),
)
