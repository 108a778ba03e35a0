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
    masking,
    naming,
    numbers,
    operators,
    order,
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


RULES: tuple[Rule, ...] = (
    _rule(precision.dropout, "dropout"),
    _rule(precision.cast, "precision"),
    _rule(axes.axis, "softmax axis norm heads sink"),
    _rule(numbers.diagonal, "causal window prefix"),
    _rule(operators.compared, "causal window documents mask padding"),
    _rule(masking.fill, "fill zeroed masked row mask"),
    _rule(masking.from_number, "mask masked bias read"),
    _rule(masking.after_softmax, "mask"),
    _rule(masking.lost, "causal padding mask rope"),
    _rule(masking.fused, "causal mask padding documents fused"),
    _rule(numbers.power, "scale"),
    _rule(scaling.of_another_size, "scale"),
    _rule(scaling.turned_over, "scale"),
    _rule(naming.sibling, "value key weights query scores projection shared sink norm rope"),
    _rule(naming.traded, "swapped key value query"),
    _rule(naming.unpacked, "swapped key value fused query"),
    _rule(operators.exchanged, "scores swapped key value alibi sign causal mask window transposed"),
    _rule(operators.binary, "scale alibi sign rope bias mask order kv sinks documents window causal"),
    _rule(operators.negated, "causal mask padding sign rope alibi inverted"),
    _rule(operators.inverted, "causal mask padding inverted wrong"),
    _rule(forgotten.layer, "projection norm output missing bias dropout"),
    _rule(forgotten.whole_layer, "projection bias transposed"),
    _rule(forgotten.bias, "bias"),
    _rule(forgotten.same_as_sibling, "norm rope missing one sided"),
    _rule(shaping.split, "heads split strided fused view"),
    _rule(shaping.merged, "heads merged view"),
    _rule(shaping.einsum, "scores heads merged transposed mix"),
    _rule(shaping.repeated, "kv rope alibi"),
    _rule(shaping.expanded, "kv"),
    _rule(axes.transposed, "heads scores fused merged view transposed"),
    _rule(axes.new_axis, "padding mask transposed queries causal"),
    _rule(order.statements, "softcap norm rope mask order scale"),
    _rule(capping.incomplete, "softcap"),
    _rule(capping.missing, "softcap"),
    _rule(numbers.known, "rope window softcap constant frequencies base"),
    _rule(numbers.one_off, "window causal rope alibi sink offset shifted cache"),
    _rule(numbers.one_more, "window causal rope offset"),
    _rule(dropping.operand, "scale bias rope window mask twice extra offset term"),
    _rule(dropping.argument, "scale softcap precision"),
    _rule(dropping.statement, "twice value norm rope softcap strided prefix attends sink extra"),
    _rule(dropping.call, "transposed rope twice strided merged norm mask padding"),
    _rule(dropping.attribute, "mask causal transposed"),
    _rule(dropping.condition, "padding causal mask window documents alibi dropout"),
    _rule(dropping.part, "sink"),
    _rule(scaling.constant, "scale"),
    _rule(scaling.moved, "scale"),
    _rule(scaling.missing, "scale"),
    _rule(naming.another_size, "scale rope frequencies head causal window"),
    _rule(forgotten.function, "rope missing alibi norm mask"),
    _rule(masking.missing, "causal mask padding documents window missing"),
    _rule(forgotten.attribute, "window softcap alibi rope scale"),
    _rule(naming.another, "rope causal window padding mask value weights offset missing scores"),
    _rule(axes.subscripts, "kv rope padding mask sequence fused causal"),
    _rule(forgotten.returned_layer, "projection output"),
    _rule(shaping.transposed, "scores transposed projection heads"),
)
