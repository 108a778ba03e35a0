"""Faults of the mask as a whole, of prefix and documents, and of the ways the parts of a mask are joined."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Literal, TypeVar

from qkv.errors import ShapeError
from qkv.faults.as_if import as_if, unless, with_empty_rows
from qkv.faults.fault import Ways, fault
from qkv.faults.masking import (
    PARTS,
    Part,
    hidden_by,
    in_words,
    leaves,
    masked_as,
    pieces,
    simple,
    split,
    unjoined,
    with_changed,
    without,
)
from qkv.faults.needs import BIAS, DOCUMENTS, MASK
from qkv.masks import And, Causal, Documents, Everything, Mask, Not, Or, Padding, Prefix
from qkv.oracle import Array, Replacements, Run
from qkv.oracle.stages import additive_bias, allowed, mask
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

Thing = TypeVar("Thing")


def _kinds(run: Run) -> set[type[Mask]]:
    return {type(leaf) for leaf in leaves(run.spec.mask)} - {Everything, Padding}


def _only_the_rule(run: Run) -> bool:
    return run.inputs.may_attend is None and run.inputs.is_token is None


@fault(
    "mask-not-applied",
    Stage.MASK,
    title="the mask is made but never used",
    explanation=(
        "A mask is passed in or built, and no line hides anything with it: masked_fill without an assignment, an "
        "argument that isn't handed on. Every query sees every key; rows that may see everything are right, all "
        "others wrong."
    ),
    repair="attn_scores = attn_scores.masked_fill(~may_attend, float('-inf'))  # masked_fill returns a new tensor",
    needs=[MASK],
    commonness=2,
)
def mask_not_applied(spec: AttentionSpec) -> Ways:
    """``A(i)`` = all keys, or all that one part hides."""

    def nothing_hidden(run: Run) -> Run:
        unless(not pieces(run), "nothing is masked")
        return hidden_by(run, run.positions().everywhere)

    def rest_hidden(part: Part) -> Replacements:
        return {Stage.MASK: lambda run: hidden_by(run, split(run, part)[1])}

    yield "", {Stage.MASK: nothing_hidden}
    yield "the mask given with the call is ignored", rest_hidden("given")
    yield "all but the padding and the given mask is ignored", rest_hidden("spec")


@fault(
    "mask-inverted",
    Stage.MASK,
    title="the mask is read the wrong way round",
    explanation=(
        "True means 'may attend' here and 'hide' there: torch's scaled_dot_product_attention keeps where a boolean "
        "mask is True, nn.MultiheadAttention hides there. Read the wrong way each query sees exactly what it must "
        "not. Every row is wrong, and rows that may see everything have no key left."
    ),
    repair="out = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)  # True = may attend",
    needs=[MASK],
    commonness=2,
)
def mask_inverted(spec: AttentionSpec) -> Ways:
    """``not A(i)``, for the whole mask or one part of it."""

    def inverted(part: Part) -> Replacements:
        def turned(run: Run) -> Run:
            own, rest = split(run, part)
            return hidden_by(run, ~own & rest)

        return {Stage.MASK: turned}

    for part in PARTS:
        if part != "padding":
            yield from with_empty_rows(spec, inverted(part), in_words("", part))

    def also_of_everything(run: Run) -> Run:
        own = split(run, "whole")[0] if pieces(run) else run.positions().everywhere
        return hidden_by(run, ~own)

    yield from with_empty_rows(spec, {Stage.MASK: also_of_everything}, "so a mask that hides nothing hides every key")


@fault(
    "mask-transposed",
    Stage.MASK,
    title="rows and columns of the mask are swapped",
    explanation=(
        "Row i of a mask says what query i may see. Transposed, it says who may see key i: earlier tokens see later "
        "ones, and what was hidden as a key is hidden as a query. Masks that are symmetric don't show it."
    ),
    repair="may_attend = key_pos[None, :] <= query_pos[:, None]  # rows are queries, columns are keys",
    needs=[MASK],
    general=True,
    commonness=2,
)
def mask_transposed(spec: AttentionSpec) -> Ways:
    """``i in A(j)`` for ``j in A(i)``; the whole mask, or one given with the call."""

    def transposed(part: Part) -> Replacements:
        def turned(run: Run) -> Run:
            query_len, key_len = run.inputs.lengths
            unless(query_len != key_len, "a mask that is not square can't be transposed")
            own, rest = split(run, part)
            return hidden_by(run, run.xp.matrix_transpose(own) & rest)

        return {Stage.MASK: turned}

    yield from with_empty_rows(spec, transposed("whole"))
    yield from with_empty_rows(spec, transposed("given"), PARTS["given"])


@fault(
    "bias-read-as-mask",
    Stage.BIAS,
    title="a bias is read as a boolean mask",
    explanation=(
        "A number to be added to the scores is taken for true or false: every number but 0 becomes 'may attend' (or "
        "'hide'), and its size is lost. Rows with a single visible key may be right, all others are wrong."
    ),
    repair="attn_scores = attn_scores + bias  # a float mask is added, only a boolean one hides",
    needs=[BIAS],
    commonness=1,
)
def bias_read_as_mask(spec: AttentionSpec) -> Ways:
    """Keys with ``b != 0`` (or ``b == 0``) may be attended to, and ``b`` is not added."""

    def given(run: Run) -> Array:
        if run.inputs.bias is None:
            raise ShapeError("no bias came with the call")
        return run.inputs.bias

    def not_added(run: Run) -> Run:
        given(run)
        rest = additive_bias(run.but(inputs=run.inputs.but(bias=None)))
        return run if rest is None else run.but(scores=run.scores + rest)

    def visible(run: Run) -> Run:
        unless(not run.xp.any(given(run) == 0), "bias-missing says the same: no number is 0")
        return hidden_by(run, allowed(run) & (given(run) != 0))

    def hidden(run: Run) -> Run:
        unless(not run.xp.any(given(run) == 0), "nothing would be left: no number is 0")
        return hidden_by(run, allowed(run) & (given(run) == 0))

    not_zero: Replacements = {Stage.BIAS: not_added, Stage.MASK: visible}
    zero: Replacements = {Stage.BIAS: not_added, Stage.MASK: hidden}
    yield from with_empty_rows(spec, not_zero, "what is not 0 is kept")
    yield from with_empty_rows(spec, zero, "what is not 0 is hidden")


@fault(
    "prefix-block-missing",
    Stage.MASK,
    title="tokens that should see each other both ways are masked causally",
    explanation=(
        "A prefix (image tokens, a prompt) or a whole encoder may look both ways, and here it's masked causally. "
        "The rows of the prefix, or all rows but the last of an encoder, see too little; all others are right."
    ),
    repair=(
        "may_attend = causal | (key_pos < prefix_len)  # with a prefix\n"
        "may_attend = torch.ones(query_len, key_len, dtype=torch.bool)  # an encoder hides nothing"
    ),
    commonness=2,
)
def prefix_block_missing(spec: AttentionSpec) -> Ways:
    """``A(i)`` without ``j < prefix``; or with ``j <= i`` where no causal mask is meant."""
    if spec.masks(Prefix):
        yield "the prefix is missing", masked_as(unjoined(spec.mask, Prefix))
    if not spec.masks(Causal):
        yield "a causal mask where none is meant", masked_as(simple(spec.mask & Causal()))
        from_top_left = {Stage.MASK: _causal_from_top_left}
        note = "a causal mask where none is meant, from the top left corner"
        yield from with_empty_rows(spec, from_top_left, note, lowered=False)


def _causal_from_top_left(run: Run) -> Run:
    offset = run.spec.offset_for(*run.inputs.lengths)
    unless(offset == 0, "both corners of the mask are the same here")
    return as_if(mask, mask=run.spec.mask & Causal(-offset))(run)


@fault(
    "prefix-off-by-one",
    Stage.MASK,
    title="the prefix is one token too long or too short",
    explanation=(
        "One token after the prefix is visible to all, or its last token only to those after it. The rows before "
        "that token are wrong, those from it on are right."
    ),
    repair="may_attend = causal | (key_pos < prefix_len)",
    commonness=1,
)
def prefix_off_by_one(spec: AttentionSpec) -> Ways:
    """``j <= prefix`` or ``j < prefix - 1`` for ``j < prefix``."""
    if spec.masks(Prefix):
        yield "one too long", masked_as(with_changed(spec.mask, Prefix, lambda part: Prefix(part.length + 1)))
        shorter = masked_as(with_changed(spec.mask, Prefix, lambda part: Prefix(max(part.length - 1, 0))))
        yield from with_empty_rows(spec, shorter, "one too short")


@fault(
    "documents-leak",
    Stage.MASK,
    title="packed documents see each other",
    explanation=(
        "Several texts share one sequence to save room, and tokens must not look into another text. The first "
        "document's rows are right under a causal mask; the rows of every later one take weight from texts that "
        "have nothing to do with them."
    ),
    repair="may_attend = may_attend & (document[:, :, None] == document[:, None, :])[:, None]",
    needs=[DOCUMENTS],
    commonness=2,
)
def documents_leak(spec: AttentionSpec) -> Ways:
    """``A(i)`` without ``document[i] == document[j]``, for all or for two; or a border is off by one token."""
    if not spec.masks(Documents):
        return
    yield "", masked_as(without(spec.mask, Documents))
    yield "each document starts one token late", _numbered(lambda run, x: run.xp.concat([x[:, :1], x[:, :-1]], axis=1))
    yield (
        "each document starts one token late, the first one too",
        _numbered(lambda run, x: run.xp.concat([x[:, :1] - 1, x[:, :-1]], axis=1)),
    )
    yield "each document starts one token early", _numbered(lambda run, x: run.xp.concat([x[:, 1:], x[:, -1:]], axis=1))
    for least, words in ((1, ""), (2, ", where there are more than two")):
        yield f"the last two count as one{words}", _numbered(_joined("last", least))
        yield f"the first two count as one{words}", _numbered(_joined("first", least))


def _numbered(change: Callable[[Run, Array], Array]) -> Replacements:
    """The mask with other numbers of documents, ``(batch, key)``."""

    def changed(run: Run) -> Run:
        xp, (_, key_len) = run.xp, run.inputs.lengths
        one = xp.zeros((run.scores.shape[0], key_len), dtype=xp.int64)  # of all tokens, where nobody numbered them
        document = one if run.inputs.document is None else run.inputs.document
        return as_if(mask, inputs=lambda inputs: inputs.but(document=change(run, document)))(run)

    return {Stage.MASK: changed}


def _joined(which: Literal["first", "last"], least: int) -> Callable[[Run, Array], Array]:
    """The documents counted from 0, two of them as one; only where the last one has at least some number."""

    def joined(run: Run, document: Array) -> Array:
        xp = run.xp
        begins = xp.astype(document[:, 1:] != document[:, :-1], xp.int64)
        number = xp.cumulative_sum(begins, axis=1, include_initial=True)
        last = xp.max(number, axis=1, keepdims=True)
        second = last if which == "last" else xp.ones_like(last)
        return xp.where((number == second) & (last >= least), second - 1, number)

    return joined


# --- how the parts are joined ---


def _factors(mask: Mask) -> list[Mask]:
    return [*_factors(mask.left), *_factors(mask.right)] if isinstance(mask, And) else [mask]


def _terms(mask: Mask) -> list[Mask]:
    return [*_terms(mask.left), *_terms(mask.right)] if isinstance(mask, Or) else [mask]


def _all(masks: list[Mask]) -> Mask:
    everything: Mask = Everything()
    return simple(reduce(And, masks, everything))


def _regrouped(mask: Mask) -> Iterator[Mask]:
    """The same parts in other brackets: ``a & b | c`` as ``(a | c) & b``."""
    terms = _terms(mask)
    for place, term in enumerate(terms if len(terms) > 1 else []):
        others = reduce(Or, terms[:place] + terms[place + 1 :])
        factors = _factors(term)
        for inside in _proper_subsets(factors):
            yield simple(_all([factor for factor in factors if factor not in inside]) & Or(_all(inside), others))
    factors = _factors(mask)
    for factor in factors if len(factors) > 1 else []:
        if isinstance(factor, Or):
            rest = [other for other in factors if other is not factor]
            yield Or(_all([factor.left, *rest]), factor.right)
            yield Or(factor.left, _all([factor.right, *rest]))


def _proper_subsets(things: list[Thing]) -> Iterator[list[Thing]]:
    for size in range(1, len(things)):
        yield from (list(chosen) for chosen in itertools.combinations(things, size))


def _rejoined(mask: Mask) -> Iterator[Mask]:
    """The same parts with some ``&`` turned into ``|``, or some ``|`` into ``&``, in whatever order they stand."""
    match mask:
        case And() | Or():
            own, other = (And, Or) if isinstance(mask, And) else (Or, And)
            parts = _factors(mask) if isinstance(mask, And) else _terms(mask)
            for chosen in _proper_subsets(list(range(len(parts)))):
                inside = [parts[place] for place in chosen]
                rest = [part for place, part in enumerate(parts) if place not in chosen]
                if 0 in chosen:  # the two sides may change places
                    yield other(reduce(own, inside), reduce(own, rest))
                if len(chosen) > 1:
                    yield own(reduce(other, inside), reduce(own, rest))
            if len(parts) > 2:
                yield reduce(other, parts)
            for place, part in enumerate(parts):
                yield from (reduce(own, [*parts[:place], one, *parts[place + 1 :]]) for one in _rejoined(part))
        case Not(of=of):
            yield from (Not(other) for other in _rejoined(of))


@fault(
    "mask-order",
    Stage.MASK,
    title="the parts of the mask are joined in the wrong order, or with the wrong operator",
    explanation=(
        "What must all hold is joined with 'and', what opens the mask again with 'or', and the order matters: a "
        "prefix opened before the window is closed again by it, one opened after the padding lets padding in. Only "
        "the rows where the parts disagree are wrong."
    ),
    repair="may_attend = ((causal & window) | prefix) & is_token",
    needs=[MASK],
    commonness=2,
)
def mask_order(spec: AttentionSpec) -> Ways:
    """``(a | p) & b`` for ``a & b | p``; ``a | b`` for ``a & b``; the prefix opened after the padding was hidden."""
    seen = {spec.mask}
    for other in itertools.chain(_regrouped(spec.mask), _rejoined(spec.mask)):
        if other not in seen:
            seen.add(other)
            yield from with_empty_rows(spec, masked_as(other), f"{other}, for {spec.mask}")
    if spec.masks(Prefix) and spec.masks(Causal):
        yield "the prefix is opened after the padding was hidden", {Stage.MASK: _prefix_last}
    yield "joined to the padding with 'or'", {Stage.MASK: _either("padding")}
    yield "joined to the mask of the call with 'or'", {Stage.MASK: _either("given")}


def _prefix_last(run: Run) -> Run:
    unless(_only_the_rule(run), "nothing but the spec's mask is there")
    prefix = next(part for part in run.spec.mask.parts() if isinstance(part, Prefix))
    return hidden_by(run, allowed(run) | prefix.allows(run.positions()))


def _either(part: Part) -> Callable[[Run], Run]:
    def joined(run: Run) -> Run:
        own, rest = split(run, part)
        return hidden_by(run, own | rest)

    return joined
