"""What is wrong in the steps from scores to context: slips, the axis of softmax, rows that don't sum to one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from qkv.scripts.findings import Finding
from qkv.scripts.known import CLOSE, Known
from qkv.scripts.mixes import Mix
from qkv.scripts.wording import finding_of, over_keys, softmax_code


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
    reading, values = mix.reading, mix.name(mix.value, "values")
    name = mix.name(mix.weights, "attn_scores")
    made = [sight.known for sight in reading.sights.values() if sight.known.kind == "weights"]
    softmaxed = next((one for one in made if mix.weights in one.chain() and one.made < mix.context.made), None)
    weights = reading.name_of(softmaxed) if softmaxed is not None else ""
    if weights:
        said = (
            f"{name} holds the scores; the weights that softmax made of them are in {weights}, which is not used here"
        )
        return Finding("scores-for-weights", mix.context.made, said, f"{weights} @ {values}", mix)
    said = f"{name} holds scores, whose rows don't sum to one: a softmax has to make weights of them first"
    before = f"attn_weights = {softmax_code(mix, name)}"
    return Finding("softmax-missing", mix.context.made, said, f"attn_weights @ {values}", mix, before)


def axis(mix: Mix) -> Iterator[Finding]:
    """The weights must sum to one along the axis that is summed over."""
    step = mix.normalised
    if step is None or step.slip or not step.over or mix.context.slip or step.over == mix.context.over:
        return
    weights, value = mix.name(mix.weights, "attn_weights"), mix.name(mix.value, "values")
    if step.over == "query":
        said = (
            f"softmax runs down the columns here: the columns of {weights} sum to one, and its rows don't. A row "
            "holds the "
            "weights of one token, so it is the row that must sum to one"
        )
        yield Finding("softmax-over-queries", step.made, said, over_keys(mix, step), mix)
        return
    said = (
        f"a row of {weights} holds the weights of one token, one for each row of {value}. Transposed, each "
        "context vector "
        "is made with one weight from every token, and these don't sum to one"
    )
    code = mix.reading.code(mix.context.made)
    row = re.sub(r"\[:,\s*(\w+)\]", r"[\1]", code)  # one token's weights, taken out of a column
    instead = row if row != code else f"{weights} @ {value}" if mix.weights_first else f"{value}.T @ {weights}.T"
    yield Finding("weights-transposed", mix.context.made, said, instead, mix)


def sums(mix: Mix) -> Iterator[Finding]:
    """Weights that were made in no known way must sum to one all the same."""
    if mix.weights.move not in ("given", "derived") or mix.weights.kind != "weights" or mix.context.slip:
        return
    of_rows = mix.weights.array.sum(axis=-2 if mix.context.over == "query" else -1).reshape(-1)
    wrong = np.flatnonzero(np.abs(of_rows - 1) > 100 * CLOSE)
    if len(wrong):
        name, row = mix.name(mix.weights, "the weights"), int(wrong[0])
        said = f"the weights of token {row} in {name} sum to {of_rows[row]:.4f}, and must sum to one"
        source = next((one for one in mix.weights.chain() if one.kind == "scores"), None)
        scores = "attn_scores" if source is None else mix.name(source, "attn_scores")
        if source is not None:
            yield Finding("rows-not-one", mix.weights.made, said, softmax_code(mix, scores), mix)
        elif mix.reading.name_of(mix.weights):
            before = f"{name} = {_shares(mix, name)}"
            yield Finding("rows-not-one", mix.context.made, said, mix.reading.code(mix.context.made), mix, before)
        else:
            instead = f"attn_weights = {softmax_code(mix, scores)}   # or divide each row by its sum"
            yield Finding("rows-not-one", mix.context.made, said, instead, mix)


def masked_late(mix: Mix) -> Iterator[Finding]:
    """A mask after softmax leaves rows that don't sum to one, unless they are divided by their sums."""
    for place, step in enumerate(mix.path):
        if step.move != "mask" or step.kind != "weights":
            continue
        if not any(later.move == "renormalise" for later in mix.path[:place]):
            name = mix.name(step, "attn_weights")
            said = (
                "the mask comes after softmax: the hidden weights are zero, and what is left of each row no longer "
                "sums to "
                f"one. Mask the scores before softmax, or divide {name} by the sums of its rows"
            )
            code, changes = mix.reading.code(step.made), mix.reading.operations[step.made].in_place
            shares = f"{code}\n{name} = {_shares(mix, name)}" if changes else _shares(mix, f"({code})")
            yield Finding("mask-after-softmax", step.made, said, shares, mix)


def _shares(mix: Mix, rows: str) -> str:
    """Rows divided by their sums."""
    return f"{rows} / {rows}.sum({'dim=-1, keepdim=True' if mix.is_torch else 'axis=-1, keepdims=True'})"
