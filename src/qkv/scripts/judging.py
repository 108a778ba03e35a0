"""Judging: what is wrong on the way to each mix, in the words of a person who looks over the shoulder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from qkv.adapters.texts import Text
from qkv.scripts.findings import Finding
from qkv.scripts.known import CLOSE, Known
from qkv.scripts.masking import masking
from qkv.scripts.mixes import Mix, mixes_of
from qkv.scripts.reading import Reading
from qkv.scripts.variables import of_variables


@dataclass
class Judgement:
    """What is known of a script at the end.

    Attributes:
        mixes: every product of weights and values.
        findings: all that is wrong, in the order of the lines.
        assumptions: what was taken for granted.
        open: why it can't be said whether the rest is right; empty where it is.
    """

    mixes: list[Mix]
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    open: str = ""


def judged(reading: Reading, text: Text) -> Judgement:
    """What is right and wrong in a script."""
    judgement = Judgement(mixes_of(reading))
    for mix in judgement.mixes:
        for rule in RULES:
            judgement.findings += rule(mix, judgement.assumptions, text)
        judgement.findings += masking(mix, judgement.mixes, judgement.assumptions, text)
    judgement.findings += _afterwards(reading, judgement.mixes)
    judgement.findings += of_variables(reading, judgement.mixes)
    judgement.findings = _first_of_each(judgement.findings)
    unknown = [mix for mix in judgement.mixes if mix.weights.move == "derived" and not mix.normalised]
    if not judgement.mixes:
        judgement.open = _without_context(reading)
    elif unknown and not judgement.findings:
        name = reading.name_of(unknown[0].weights) or "its weights"
        judgement.open = f"how {name} was made of the scores is not known, though its rows sum to one"
    return judgement


def _first_of_each(findings: list[Finding]) -> list[Finding]:
    by_place = {(finding.fault, finding.operation): finding for finding in reversed(findings)}
    return sorted(by_place.values(), key=lambda finding: finding.operation)


def _without_context(reading: Reading) -> str:
    kinds = {sight.known.kind for sight in reading.sights.values()}
    if "weights" in kinds:
        return (
            "it makes weights, and no context vectors of them: weights @ values is missing, or is made in a way unknown"
        )
    if "scores" in kinds:
        return "it makes scores, and no weights of them: the softmax is missing, or is made in a way unknown"
    return "no attention was found in its variables: no product of tokens with tokens that goes on to a softmax"


def _afterwards(reading: Reading, mixes: list[Mix]) -> Iterator[Finding]:
    """Slips behind the mix: where the heads are put together."""
    by_context = {mix.context: mix for mix in mixes}
    for known in dict.fromkeys(sight.known for sight in reading.sights.values()):
        mix = next((by_context[one] for one in known.chain() if one in by_context), None)
        if known.kind == "context" and known.move == "merge" and known.slip and mix is not None:
            yield _finding(mix, known, known.slip)


# --- rules on one mix -------------------------------------------------------------------------------------------------


def _slips(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """Moves on the way that no attention makes."""
    steps = [mix.context, *mix.path]
    for side in (mix.query, mix.key, mix.value):
        steps += [] if side is None else side.chain()
    later_masked = False
    for step in dict.fromkeys(steps):
        if step.slip == "dropout-in-eval" and step.number == 0:
            continue
        if step.slip == "softmax-missing" and step is mix.context:
            yield _missing_softmax(mix)
        elif step.slip:
            yield _finding(mix, step, step.slip)
        later_masked = later_masked or step.move == "mask"


def _missing_softmax(mix: Mix) -> Finding:
    """Scores were mixed: were there weights of them to use?"""
    reading, scores = mix.reading, mix.weights
    made = [sight.known for sight in reading.sights.values() if sight.known.kind == "weights"]
    softmaxed = next((one for one in made if scores in one.chain() and one.made < mix.context.made), None)
    weights, values = reading.name_of(softmaxed) if softmaxed else "", reading.name_of(mix.value) or "values"
    name = reading.name_of(scores) or "the scores"
    if weights:
        said = f"{name} holds the scores; the weights that softmax made of them are in {weights}, and are not used here"
        return Finding("scores-for-weights", mix.context.made, said, f"{weights} @ {values}", mix)
    said = f"{name} holds scores, whose rows don't sum to one: a softmax has to make weights of them first"
    instead = f"attn_weights = {_softmax(mix, name)}\ncontext = attn_weights @ {values}"
    return Finding("softmax-missing", mix.context.made, said, instead, mix)


def _softmax(mix: Mix, scores: str) -> str:
    numpy = any(
        "float64" in mix.reading.run.recording.values[value].dtype for value in mix.reading.values_of(mix.context)
    )
    if numpy:
        return f"np.exp({scores}) / np.exp({scores}).sum(axis=-1, keepdims=True)"
    return f"torch.softmax({scores}, dim=-1)"


def _finding(mix: Mix, step: Known, fault: str) -> Finding:
    reading = mix.reading
    source = reading.name_of(step.sources[0]) if step.sources else ""
    said, instead = _WORDS[fault](mix, step, source or "the array")
    return Finding(fault, step.made, said, instead, mix)


def _scores_words(mix: Mix, step: Known, source: str) -> tuple[str, str]:
    left, right = (mix.reading.name_of(one) or "tokens" for one in step.sources)
    said = (
        f"a score is the dot product of a row of {left} with a row of {right}, so the second one has to be transposed"
    )
    return said, f"{left} @ {right}.T" if step.sources[1].array.ndim == 2 else f"{left} @ {right}.transpose(-2, -1)"


def _mix_words(mix: Mix, step: Known, source: str) -> tuple[str, str]:
    weights, value = mix.reading.name_of(mix.weights) or "attn_weights", mix.reading.name_of(mix.value) or "values"
    return f"each context vector is the sum of the rows of {value}, each times its weight", f"{weights} @ {value}"


def _share_words(mix: Mix, step: Known, source: str) -> tuple[str, str]:
    said = f"the scores are divided by their sum, or squeezed one by one; softmax takes e to the power of each in {source} first"
    return said, _softmax(mix, source)


def _fill_words(mix: Mix, step: Known, source: str) -> tuple[str, str]:
    masked = step.array[~step.visible] if step.visible is not None else np.zeros(1)
    fill = 0.0 if step.slip == "masked-scores-zeroed" else float(np.median(masked))
    said = (
        f"hidden scores are made {fill:g}, and e to the power of {fill:g} is {np.exp(min(fill, 50.0)):.3g}, not 0: the hidden "
        "tokens keep some weight. Only minus infinity leaves them none"
    )
    if step.slip == "mask-added-as-number":
        said = f"the mask's {step.number:g} is added to the scores, and hides nothing: hidden scores must become -inf"
    return said, f"{source}.masked_fill(mask, -torch.inf)   # mask: True where a token may not look"


_WORDS: dict[str, Callable[[Mix, Known, str], tuple[str, str]]] = {
    "transpose-forgotten": _scores_words,
    "scores-of-channels": _scores_words,
    "elementwise": _scores_words,
    "elementwise-mix": _mix_words,
    "value-turned": _mix_words,
    "softmax-missing": _share_words,
    "masked-scores-zeroed": _fill_words,
    "mask-fill-too-small": _fill_words,
    "mask-added-as-number": _fill_words,
    "softmax-over-all": lambda mix, step, source: (
        "all weights together sum to one; each row must do so by itself", _softmax(mix, source)),
    "softmax-over-heads-or-batch": lambda mix, step, source: (
        f"this softmax runs over the axis {step.over}; a token's weights over all keys must sum to one", _softmax(mix, source)),
    "softmax-twice": lambda mix, step, source: (f"{source} went through softmax before: its rows sum to one already", source),
    "scale-after-softmax": lambda mix, step, source: (
        f"the weights are multiplied by {step.number:.4g} after softmax, so that they no longer sum to one; "
        "the scores are what is scaled", f"torch.softmax(scores * {step.number:.4g}, dim=-1)"),
    "dropout-in-eval": lambda mix, step, source: (
        f"dropout sets some weights to zero by chance and multiplies the others by {1 / (1 - step.number):.3g}: every run gives "
        "other context vectors. It belongs in training alone", "dropout.eval()   # or leave dropout out"),
    "heads-split-by-view": lambda mix, step, source: (
        "this view cuts the tokens up, not the channels: the head's axis has to come from the last axis, and then be moved",
        f"{source}.view(batch, num_tokens, num_heads, head_dim).transpose(1, 2)"),
    "heads-merged-by-view": lambda mix, step, source: (
        "the heads lie one behind the other; without a transpose this puts different tokens side by side",
        f"{source}.transpose(1, 2).reshape(batch, num_tokens, -1)"),
}  # fmt: skip


def _axis(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """The axis along which the weights sum to one must be the one that is summed over."""
    step, reading = mix.normalised, mix.reading
    if step is None or step.slip or not step.over or mix.context.slip or step.over == mix.context.over:
        return
    weights, value = reading.name_of(mix.weights) or "attn_weights", reading.name_of(mix.value) or "values"
    if step.over == "query":
        source = reading.name_of(step.sources[0]) or "the scores"
        said = (
            f"softmax runs down the columns here, so the columns of {weights} sum to one and its rows don't. A row holds the "
            "weights of one token, and it is the row that must sum to one"
        )
        yield Finding("softmax-over-queries", step.made, said, _softmax(mix, source), mix)
        return
    said = (
        f"a row of {weights} holds the weights of one token, and they belong to the rows of {value}; here {weights} is "
        "transposed, so that weights which don't sum to one are used"
    )
    yield Finding("weights-transposed", mix.context.made, said, f"{weights} @ {value}", mix)


def _sums(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """Weights that were made in no known way must sum to one all the same."""
    if mix.weights.move not in ("given", "derived") or mix.weights.kind != "weights" or mix.context.slip:
        return
    sums = mix.weights.array.sum(axis=-2 if mix.turned else -1).reshape(-1)
    wrong = np.flatnonzero(np.abs(sums - 1) > 100 * CLOSE)
    if len(wrong):
        name, row = mix.reading.name_of(mix.weights) or "the weights", int(wrong[0])
        which = "every row" if len(wrong) == len(sums) > 1 else f"row {row}"
        said = f"{which} of {name} does not sum to one: that of token {row} sums to {sums[row]:.4f}"
        yield Finding("rows-not-one", mix.context.made, said, _softmax(mix, "attn_scores"), mix)


def _masked_late(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """A mask after softmax leaves rows that don't sum to one, unless they are divided by their sums."""
    for place, step in enumerate(mix.path):
        if step.move != "mask" or step.kind != "weights":
            continue
        if not any(later.move == "renormalise" for later in mix.path[:place]):
            name = mix.reading.name_of(step) or "the weights"
            said = (
                f"the mask comes after softmax: the hidden weights are zero now, and the rest of each row no longer sums to one. "
                f"Mask the scores before softmax, or divide {name} by the sums of its rows"
            )
            instead = f"{name} / {name}.sum(dim=-1, keepdim=True)"
            yield Finding("mask-after-softmax", step.made, said, instead, mix)


def _sides(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """Query, key and value must each be what stands in its place."""
    query, key, value, reading = mix.query, mix.key, mix.value, mix.reading
    if query is None or key is None or mix.product is None or mix.product.slip:
        return
    roles = {known.role for known in _tokens(reading)}
    names = {one: reading.name_of(one) or one.role for one in (query, key, value)}
    for side in dict.fromkeys((query, key, value)):
        yield from _matrices(mix, side)
    if (query.role, key.role) == ("key", "query"):
        said = (
            f"here the rows belong to {names[query]} and the columns to {names[key]}. A row must belong to a query, since it "
            "holds what one token looks at"
        )
        yield Finding("scores-transposed", mix.product.made, said, f"{names[key]} @ {names[query]}.T", mix)
    elif query.role == "query" and query is key and "key" in roles:
        said = f"{names[query]} is multiplied with itself: the keys are not used"
        yield Finding("key-is-query", mix.product.made, said, f"{names[query]} @ {_named(reading, 'key')}.T", mix)
    elif key.role == "key" and query is key and "query" in roles:
        said = f"{names[key]} is multiplied with itself: the queries are not used"
        yield Finding("query-is-key", mix.product.made, said, f"{_named(reading, 'query')} @ {names[key]}.T", mix)
    elif "value" in (query.role, key.role):
        said = f"{names[query]} and {names[key]} make the scores; values take no part in them"
        right = f"{_named(reading, 'query')} @ {_named(reading, 'key')}.T"
        yield Finding("projection-reused", mix.product.made, said, right, mix)
    weights = reading.name_of(mix.weights) or "attn_weights"
    if value.role in ("query", "key") and "value" in roles:
        said = f"the weights are applied to {names[value]}; what is mixed are the values"
        yield Finding("weights-times-key", mix.context.made, said, f"{weights} @ {_named(reading, 'value')}", mix)
    elif not value.role and mix.projected and "value" in roles and value in (*query.chain(), *key.chain()):
        said = f"the weights are applied to {reading.name_of(value) or 'the inputs'}, as they are before any projection"
        yield Finding("value-not-projected", mix.context.made, said, f"{weights} @ {_named(reading, 'value')}", mix)


def _matrices(mix: Mix, side: Known) -> Iterator[Finding]:
    """A projection whose matrix has another role by its name than what it makes."""
    step = side.first("project")
    if step is None or not step.role or len(step.sources) < 2:
        return
    matrix = step.sources[1]
    if matrix.role and matrix.role != step.role:
        names = mix.reading.name_of(matrix), mix.reading.name_of(step)
        right = next((known for known in _kind(mix.reading, "matrix") if known.role == step.role), None)
        instead = (
            f"{mix.reading.name_of(step.sources[0])} @ {mix.reading.name_of(right) if right else 'W_' + step.role}"
        )
        said = f"{names[1] or step.role} is made with {names[0]}, the matrix of the {matrix.role}"
        yield Finding("projection-reused", step.made, said, instead, mix)


def _kind(reading: Reading, kind: str) -> list[Known]:
    return list(dict.fromkeys(sight.known for sight in reading.sights.values() if sight.known.kind == kind))


def _tokens(reading: Reading) -> list[Known]:
    return _kind(reading, "tokens")


def _named(reading: Reading, role: str) -> str:
    """The variable that holds the tokens of a role."""
    named = [reading.name_of(known) for known in _tokens(reading) if known.role == role]
    return next((name for name in named if name), role)


def _scale(mix: Mix, assumptions: list[str], text: Text) -> Iterator[Finding]:
    """Scores of projected tokens are divided by the root of the number of channels."""
    product, dim, reading = mix.product, mix.head_dim, mix.reading
    if product is None or product.slip or dim < 2 or mix.normalised is None or mix.normalised.slip:
        return
    factor, right = mix.factor, dim**-0.5
    if np.isclose(factor, right, rtol=1e-3) or (not mix.projected and np.isclose(factor, 1, rtol=1e-3)):
        return
    if any(word in text.source.lower() for word in ("unscaled", "no scal", "without scal", "not scale")):
        assumptions.append(f"the scores are not scaled by 1/sqrt({dim}), as the text says")
        return
    name = reading.name_of(product) or "scores"
    key = reading.name_of(mix.key) if mix.key is not None else ""
    instead = f"{name} / {key or 'keys'}.shape[-1] ** 0.5"
    made = next((one.made for one in mix.path if one.move == "scale"), mix.normalised.made)
    found = _scale_words(mix, factor, dim)
    yield Finding(found[0], made, found[1] + f", and {instead} is meant", instead, mix)


def _scale_words(mix: Mix, factor: float, dim: int) -> tuple[str, str]:
    if np.isclose(factor, 1, rtol=1e-3):
        return "scale-missing", (
            f"the scores go into softmax unscaled. Sums of {dim} products grow with {dim}, and softmax then gives nearly all "
            f"weight to one token: they are divided by sqrt({dim})"
        )
    if np.isclose(factor, 1 / dim, rtol=1e-3):
        return (
            "scale-other-constant",
            f"the scores are divided by {dim}, not by sqrt({dim}) = {dim**0.5:.4g}: the root is missing",
        )
    if np.isclose(factor, dim**0.5, rtol=1e-3):
        return "scale-inverted", f"the scores are multiplied by sqrt({dim}), where they should be divided by it"
    if mix.query is not None and "head" in mix.query.axes:
        width = dim * mix.query.array.shape[mix.query.axes.index("head")]
        if np.isclose(factor, width**-0.5, rtol=1e-3):
            return (
                "scale-by-model-width",
                f"the scores are divided by sqrt({width}), the width of all heads; one head has {dim}",
            )
    if np.isclose(factor, 1 / dim, rtol=1e-3) or np.isclose(factor, (dim**-0.5) ** 2, rtol=1e-3):
        return "scale-twice", f"the scores are divided by sqrt({dim}) twice"
    return (
        "scale-other-constant",
        f"the scores are multiplied by {factor:.4g}; with {dim} channels 1/sqrt({dim}) = {dim**-0.5:.4g}",
    )


RULES = (_slips, _axis, _sums, _masked_late, _sides, _scale)
