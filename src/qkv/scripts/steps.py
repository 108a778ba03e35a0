"""What is wrong in the steps from scores to context: slips, the axis of softmax, rows that don't sum to one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from qkv.scripts.edits import only_kept
from qkv.scripts.findings import Finding
from qkv.scripts.known import CLOSE, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.spots import Written, spot_at
from qkv.scripts.wording import finding_of
from qkv.scripts.writing import over_keys, shares, softmax_code, softmax_over_keys


def slips(mix: Mix) -> Iterator[Finding]:
    """Steps on the way that no right attention takes."""
    steps = [mix.context, *mix.path]
    for side in (mix.query, mix.key, mix.value):
        steps += [] if side is None else side.chain()
    for step in dict.fromkeys(steps):
        if step is mix.context and step.slip == "softmax-missing":
            yield _scores_mixed(mix)
        elif step.slip and not (step.move == "drop" and (step.number == 0 or _is_training(mix, step))):
            yield finding_of(mix, step)


def _is_training(mix: Mix, step: Known) -> bool:
    """Whether dropout is on where it belongs: in a model's own code, or in a script that trains."""
    place = mix.reading.place(step.made)
    trains = any(operation.name in ("backward", "mse_loss", "cross_entropy") for operation in mix.reading.operations)
    return trains or (place is not None and bool(place.function))


def _scores_mixed(mix: Mix) -> Finding:
    """Scores were mixed: were there weights of them to use?"""
    reading, spot = mix.reading, spot_at(mix.reading, mix.operation)
    name, values = mix.name(mix.weights, "attn_scores"), spot.name(mix.value, "values")
    made = [
        known for known in reading.knowns("weights") if known.first("softmax", "renormalise") and spot.variable(known)
    ]
    softmaxed = next((one for one in made if mix.weights in one.chain() and one.made < mix.operation), None)
    weights = spot.variable(softmaxed) if softmaxed is not None else ""
    if weights:
        said = (
            f"{name} holds the scores; the weights that softmax made of them are in {weights}, which is not used here"
        )
        return Finding("scores-for-weights", mix.operation, said, f"{weights} @ {values}", mix)
    said = f"{name} holds scores, whose rows don't sum to one: a softmax has to make weights of them first"
    before = f"attn_weights = {softmax_code(mix, spot.name(mix.weights, 'attn_scores'))}"
    return Finding("softmax-missing", mix.operation, said, f"attn_weights @ {values}", mix, before)


def axis(mix: Mix) -> Iterator[Finding]:
    """The weights must sum to one along the axis that is summed over."""
    step = mix.normalised
    if step is None or step.slip or not step.over or mix.context.slip or step.over == mix.context.over:
        return
    weights, value = mix.name(mix.weights, "attn_weights"), mix.name(mix.value, "values")
    if step.over == "query":
        written = softmax_over_keys(mix, step)
        said = (
            f"softmax runs down the columns here: the columns of {weights} sum to one, and its rows don't. A row "
            f"holds the weights of one token, so it is the row that must sum to one{_laid_flat(mix, written)}"
        )
        yield Finding.of("softmax-over-queries", said, written, mix)
        return
    said = (
        f"a row of {weights} holds the weights of one token, one for each row of {value}. Transposed, each "
        "context vector is made with one weight from every token, and these don't sum to one"
    )
    spot = spot_at(mix.reading, mix.operation)
    row = re.sub(r"\[:,\s*(\w+)\]", r"[\1]", spot.code)  # one token's weights, taken out of a column
    weights, value = spot.name(mix.weights, "attn_weights"), spot.name(mix.value, "values")
    whole = f"{weights} @ {value}" if mix.weights_first else f"{value}.T @ {weights}.T"
    yield Finding("weights-transposed", mix.operation, said, row if row != spot.code else whole, mix)


def _laid_flat(mix: Mix, written: Written) -> str:
    """That sums lose their axis, and what follows from that; empty where another axis is wrong."""
    if not only_kept(written.spot.code, written.code):
        return ""
    kept = "keepdim=True" if mix.is_torch else "keepdims=True"
    return f". Without {kept} the sums of the rows lie side by side, and column j is divided by the sum of row j"


def sums(mix: Mix) -> Iterator[Finding]:
    """Weights that were made in no known way must sum to one all the same."""
    if mix.normalised is not None or mix.weights.kind != "weights" or mix.context.slip:
        return
    of_rows = mix.weights.array.sum(axis=-2 if mix.context.over == "query" else -1).reshape(-1)
    wrong = np.flatnonzero(np.abs(of_rows - 1) > 100 * CLOSE)
    if not len(wrong):
        return
    name, row = mix.name(mix.weights, "the weights"), int(wrong[0])
    said = f"the weights of token {row} in {name} sum to {of_rows[row]:.4f}, and must sum to one"
    shared = _shared_out(mix, mix.weights)
    if not mix.weights.sources:
        yield Finding.of("rows-not-one", said, shared, mix, mix.operation)
    elif (kept := over_keys(mix, mix.weights)) is not None:
        yield Finding.of("rows-not-one", said + _laid_flat(mix, kept), kept, mix)
    else:
        # Numbers below zero, of a log_softmax say, are no shares of anything.
        written = shared if (mix.weights.array >= 0).all() else softmax_over_keys(mix, mix.weights)
        yield Finding.of("rows-not-one", said, written, mix, mix.made(mix.weights))


def masked_late(mix: Mix) -> Iterator[Finding]:
    """A mask after softmax leaves rows that don't sum to one, unless they are divided by their sums."""
    for place, step in enumerate(mix.path):
        if step.move != "mask" or step.kind != "weights" or step.first("softmax", "renormalise") is None:
            continue
        if not any(later.move == "renormalise" for later in mix.path[:place]):
            name = mix.name(step, "attn_weights")
            said = (
                "the mask comes after softmax: the hidden weights are zero, and what is left of each row no longer "
                f"sums to one. Mask the scores before softmax, or divide {name} by the sums of its rows"
            )
            yield Finding.of("mask-after-softmax", said, _shared_out(mix, step), mix, mix.made(step))


def _shared_out(mix: Mix, step: Known) -> Written:
    """The code that divides weights by the sums of their rows before they are used."""
    use, made = spot_at(mix.reading, mix.uses(step)[0]), mix.made(step)
    name = use.variable(step)
    if name or made < 0:
        name = name or "attn_weights"
        return Written(use, use.code, f"{name} = {shares(mix, name)}")
    own = spot_at(mix.reading, made)
    if own.place is not None and mix.reading.operations[made].in_place:
        name = own.place.target.partition("[")[0]
        return Written(own, f"{own.code}\n{name} = {shares(mix, name)}")
    return Written(own, shares(mix, f"({own.code})"))
