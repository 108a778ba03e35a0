"""Wording: what was found, as a spec, as numbers with their errors, and in sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.comparison import EPSILON
from qkv.identification import constants
from qkv.identification.biases import slopes_named
from qkv.identification.found import Found
from qkv.identification.mask_rules import drawn, rule_of
from qkv.masks import Causal, Documents, Everything, Mask, PerHead, Unexplained
from qkv.positions import Alibi, RelativeBias
from qkv.report.identity import Estimate
from qkv.spec import AttentionSpec

MOST_DRAWN = 48
"""Queries and keys of a set that are drawn."""


def spec_of(found: Found) -> AttentionSpec:
    """The spec that was read, with its default for whatever was not shown."""
    sizes = found.box.sizes
    grouped = sizes.num_kv_heads != sizes.num_heads
    rule = found.one_rule
    return AttentionSpec(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads if grouped else None,
        head_dim=sizes.head_dim,
        value_dim=None if sizes.value_dim == sizes.head_dim else sizes.value_dim,
        scale=_scale(found),
        mask=Unexplained() if rule is None else rule.mask,
        query_offset=found.offset,
        rope=found.rope,
        alibi=_alibi(found),
        relative_bias=_relative_bias(found),
        softcap=None if found.softcap is None else constants.rounded(*found.softcap),
        sinks=found.sinks is not None,
        qk_norm=found.normalised,
        dropout_p=found.dropout,
        empty_row=found.empty_row or "zero",
    )


def scale_read(found: Found) -> Estimate | None:
    """The scale of all heads together, with its name."""
    if not found.scales:
        return None
    first = found.scales[0]
    return Estimate(first.value, first.error, constants.name_of(found.scales))


def _scale(found: Found) -> float | None:
    read = scale_read(found)
    if read is None or read.name == "1/sqrt(head_dim)":
        return None
    if read.name in constants.FORMULAS:
        return constants.FORMULAS[read.name](found.scales[0].sizes)
    return constants.rounded(read.value, read.error)


def _slopes(found: Found) -> tuple[list[float], float]:
    slopes = [read.slope if read.kind == "alibi" else 0.0 for read in found.biases]
    return slopes, max((read.error for read in found.biases), default=0.0)


def _alibi(found: Found) -> Alibi | None:
    if not any(read.kind == "alibi" for read in found.biases):
        return None
    if any(read.kind not in ("alibi", "none") for read in found.biases):
        return None
    slopes, error = _slopes(found)
    signed = any(read.signed for read in found.biases)
    if slopes_named(slopes, error).startswith("alibi's own"):
        return Alibi(signed=signed)
    return Alibi(tuple(constants.rounded(slope, error) for slope in slopes), signed)


def _relative_bias(found: Found) -> RelativeBias | None:
    """The table of all heads, up to the distance from which it stays as it is."""
    if not any(read.kind == "distance" for read in found.biases) or any(
        read.kind == "position" for read in found.biases
    ):
        return None
    tables = [_as_table(found, head) for head in found.heads]
    reach = max(max((abs(step) for step in table), default=0) for table in tables)
    rows = np.array([[_at(table, step) for step in range(-reach, reach + 1)] for table in tables])
    while reach > 1 and np.allclose(rows[:, [0, -1]], rows[:, [1, -2]], rtol=0, atol=1e-9 + _noise(rows)):
        rows, reach = rows[:, 1:-1], reach - 1
    return RelativeBias(tuple(tuple(float(number) for number in row) for row in rows))


def _noise(rows: np.ndarray) -> float:
    return 1e-6 * float(np.abs(rows).max())


def _as_table(found: Found, head: int) -> dict[int, float]:
    read = found.biases[head]
    if read.kind == "alibi":
        longest = found.view.squares[-1][1]
        steps = range(1 - longest, longest)
        return {step: read.slope * (step if read.signed else -abs(step)) for step in steps}
    return read.table or {}


def _at(table: dict[int, float], step: int) -> float:
    """The number of a distance; of one that was not seen, that of the nearest that was on its side."""
    if not table:
        return 0.0
    if step in table:
        return table[step]
    side = [other for other in table if (other >= 0) == (step >= 0)] or list(table)
    return table[min(side, key=lambda other: abs(other - step))]


def estimates_of(found: Found) -> dict[str, Estimate]:
    """Every number that was measured, by name."""
    read: dict[str, Estimate] = {}
    scale = scale_read(found)
    if scale is not None:
        read["scale"] = scale
    if found.softcap is not None:
        read["softcap"] = Estimate(*found.softcap)
    if found.rope is not None:
        read["rope.base"] = Estimate(found.rope.base, found.rope.base * found.rope_error)
        if found.rope.scaling is not None:
            read["rope.scaling.factor"] = Estimate(
                found.rope.scaling.factor, found.rope.scaling.factor * found.rope_error
            )
    slopes, error = _slopes(found)
    name = slopes_named(slopes, error)
    for head, one in enumerate(found.biases):
        if one.kind == "alibi":
            read[f"alibi.slope.{head}"] = Estimate(one.slope, one.error, name)
    if found.sinks is not None:
        for head, (sink, off) in enumerate(zip(*found.sinks, strict=True)):
            read[f"sink.{head}"] = Estimate(float(sink), float(off))
    if found.dropout:
        read["dropout_p"] = Estimate(found.dropout, 0.01)
    return read


def per_head(found: Found) -> list[dict[str, Any]]:
    """What is each head's own."""
    rows = []
    for head in found.heads:
        turned, bias, rule = found.turnings[head], found.biases[head], found.rules[head]
        row: dict[str, Any] = {
            "head": head,
            "query_head": found.routing.query_head[head],
            "kv_head": found.routing.kv_head[head],
            "scale": None if turned is None else turned.scale,
            "mask": None if rule is None else str(rule.mask),
        }
        if bias.kind == "alibi":
            row["alibi_slope"] = bias.slope
        if bias.kind == "distance" and bias.table is not None:
            row["bias_by_distance"] = {str(step): number for step, number in sorted(bias.table.items())}
        if bias.matrix is not None:
            row["bias_by_position"] = bias.matrix
        if found.sinks is not None:
            row["sink"] = float(found.sinks[0][head])
        if not found.routing.plain_channels:
            row["value_channels"] = None if found.routing.channels is None else list(found.routing.channels[head])
        if turned is not None and turned.pairs and found.frequencies is not None:
            row["rope_pairs"] = [list(pair) for pair in turned.pairs]
            row["rope_radians"] = [float(number) for number in found.frequencies.radians]
        rows.append(row)
    return rows


def readings_of(found: Found) -> list[str]:
    """What was found beside the spec's own sentence."""
    said = [*_sharing(found), *_scaling(found), *_positions(found), *_rows(found)]
    if not found.routing.plain_channels:
        said.append("output channels hold other channels of the value: per_head has their order")
    if found.precision != "float64":
        said.append(f"numbers are as coarse as {found.precision} somewhere between the scores and the output")
    if found.dropout:
        said.append(f"dropout is left on, with a probability of {found.dropout:.3g}: two runs on one input differ")
    return said


def _sharing(found: Found) -> list[str]:
    sizes, heads = found.box.sizes, found.routing.kv_head
    said = []
    if found.routing.query_head not in (tuple(found.heads), (-1,) * sizes.num_heads):
        said.append(f"output heads follow query heads {_list(found.routing.query_head)}")
    if sizes.num_kv_heads < sizes.num_heads:
        interleaved = tuple(head // sizes.group_size for head in found.heads)
        tiled = tuple(head % sizes.num_kv_heads for head in found.heads)
        how = (
            "neighbours share one"
            if heads == interleaved
            else "heads are tiled"
            if heads == tiled
            else "in an order of their own"
        )
        said.append(f"query heads read key/value heads {_list(heads)}: {how}")
    elif heads != tuple(found.heads):
        said.append(f"query heads read key/value heads {_list(heads)}")
    return said


def _scaling(found: Found) -> list[str]:
    read = scale_read(found)
    said = []
    if read is not None:
        said.append(f"scale {read} (± {read.error:.1g})")
        if constants.is_base_two(read.name):
            said.append("the softmax is one of powers of two, or the scale carries a ln(2)")
    cosine = constants.cosine_factor(found.scales) if found.normalised else None
    if cosine is not None:
        said.append(f"scores are the cosine of query and key, times {cosine:.6g}")
    if found.softcap is not None:
        said.append(f"scores are capped at {found.softcap[0]:.8g} (± {found.softcap[1]:.1g})")
    return said


def _positions(found: Found) -> list[str]:
    said = []
    if any(read.kind == "alibi" for read in found.biases):
        slopes, error = _slopes(found)
        name = slopes_named(slopes, error)
        said.append(
            f"alibi slopes {', '.join(f'{slope:.6g}' for slope in slopes)} (± {error:.1g})"
            + (f": {name}" if name else "")
        )
    if any(read.kind == "distance" for read in found.biases):
        said.append("a bias that depends on head and distance is added to the scores")
    if any(read.kind == "position" for read in found.biases):
        said.append("a bias by query and key position is added to the scores: per_head has it, and no spec can say it")
    if found.frequencies is not None:
        turns = ", ".join(f"{number:.6g}" for number in found.frequencies.radians)
        said.append(f"query and key are turned by position, {turns} radians a token")
    return said


def _rows(found: Found) -> list[str]:
    said = []
    if found.offset_shown and found.offset == "bottom_right":
        said.append("where queries are fewer than keys, the last query stands at the last key (bottom right)")
    left = next((seen.left for seen in found.view.sights.values() if seen.left is not None), None)
    if left is not None:
        said.append(f"hidden keys keep a score of {left:.4g}: a weight of {np.exp(left):.1g} is left for them")
    rule = found.one_rule
    if rule is not None and rule.documents is not None:
        lengths = np.bincount(rule.documents)
        said.append(
            f"documents of {', '.join(map(str, lengths[:8]))}{' …' if len(lengths) > 8 else ''} tokens are kept apart"
        )
    if found.sinks is not None:
        same = np.allclose(found.sinks[0], 0, atol=1e-4)
        said.append(
            "each row leaves weight to a sink of score 0 (one is added to the softmax's sum)"
            if same
            else f"sinks {', '.join(f'{sink:.6g}' for sink in found.sinks[0])}"
        )
    return said


def undecided_of(found: Found) -> list[str]:
    """What the inputs could not decide, with what would."""
    said = [*found.odd, *found.undecided]
    longest = max((lengths[1] for lengths in found.view.sights), default=0)
    rule = found.one_rule
    if rule is None:
        said.extend(_unruly(found))
    elif not _bounded(rule.mask):
        said.append(f"a window of more than {longest} keys: no longer input was tried")
    positional = found.frequencies is not None or any(read.kind in ("alibi", "distance") for read in found.biases)
    if not found.offset_shown and (positional or (rule is not None and rule.mask not in (Everything(), Documents()))):
        said.append(
            "which corner a causal mask or positions start from where there are fewer queries than keys: it takes "
            "equal lengths only"
        )
    if found.empty_row is None and rule is not None and rule.mask != Everything():
        said.append("what an empty row gives: no query that was tried is without keys")
    said.extend(_changing_scale(found))
    if any(turned is None for turned in found.turnings) and not found.odd:
        said.append("scale and scores of heads whose queries see one key at most")
    if found.frequencies is not None and EPSILON[found.precision] > 1e-6:
        said.append("which slow pairs of channels rope turns too, and its base: the numbers are too coarse to tell")
    if found.frequencies is not None and found.rope is None:
        said.append("the rule of the rope: its frequencies are those of none that is known; per_head has them")
    if found.routing.leaks:
        said.append("why a sequence changes when another one of the batch does")
    return said


def _changing_scale(found: Found) -> list[str]:
    """A scale that no formula makes at all sizes that it was read at, and that is no constant."""
    if not found.scales or constants.name_of(found.scales):
        return []
    if found.normalised and constants.cosine_factor(found.scales) is not None:
        return []
    first, *others = found.scales
    moved = [read for read in others if abs(read.value - first.value) > 1e-5 * abs(first.value) + 8 * read.error]
    if not moved:
        return []
    read = "; ".join(
        f"{one.value:.6g} for {one.sizes.tokens} keys of {one.sizes.head_dim} channels" for one in found.scales
    )
    return [f"how the scale follows from the sizes: {read}"]


def _bounded(mask: Mask) -> bool:
    if isinstance(mask, PerHead):
        return all(map(_bounded, mask.masks))
    return mask not in (Everything(), Causal()) and not isinstance(mask, Documents)


def _unruly(found: Found) -> list[str]:
    strange = [head for head in found.heads if found.rules[head] is None]
    if strange:
        return [
            f"the rule of the mask of heads {_list(strange)}: no known mask makes the sets that were seen (see the "
            "picture)"
        ]
    masks = ", ".join(f"head {head}: {rule.mask}" for head, rule in enumerate(found.rules) if rule)
    return [f"one mask for all heads: they have their own ({masks})"]


def documents_of(found: Found) -> tuple[int, ...]:
    """The first token of each document, where the mask keeps documents apart."""
    rule = found.one_rule
    if rule is None or rule.documents is None:
        return ()
    return tuple(int(first) for first in np.unique(rule.documents, return_index=True)[1])


def pictures_of(found: Found) -> dict[str, str]:
    """Sets that no rule makes, drawn at the first lengths that no rule explains, one for all heads that share it."""
    pictures = {}
    for heads in found.view.alike(head for head in found.heads if found.rules[head] is None):
        allowed = found.allowed(_telling(found, heads[0]))[heads[0]][:MOST_DRAWN, :MOST_DRAWN]
        pictures[f"heads {_list(heads)}, the first {allowed.shape[1]} tokens"] = drawn(allowed)
    return pictures


def _telling(found: Found, head: int) -> tuple[int, int]:
    """The shortest equal lengths at which no rule makes what the head sees there and at shorter ones."""
    sets = found.view.of_head(head)
    for count, lengths in enumerate(found.view.squares, 1):
        if rule_of({seen: sets[seen] for seen in found.view.squares[:count]}, lengths) is None:
            return lengths
    return found.view.square


def _list(numbers: Any) -> str:
    return ", ".join(str(number) for number in numbers)
