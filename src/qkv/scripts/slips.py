"""Slips: the faults that only a script can have, beside those of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.faults import CATALOGUE


@dataclass(frozen=True)
class Slip:
    """What a learner's script does by mistake.

    Attributes:
        id: its name.
        stage: the stage that it belongs to.
        title: what it is, in a few words.
        explanation: why that is no attention.
        repair: code that is right.
    """

    id: str
    stage: str
    title: str
    explanation: str
    repair: str


_OWN = (
    Slip(
        "transpose-forgotten",
        "scores",
        "the second matrix of the scores is not transposed",
        "A score is the dot product of two tokens: a row of the first matrix with a row of the second. A "
        "matrix product takes "
        "rows with columns, so the second matrix has to be turned. That it runs at all is because it has as "
        "many tokens as "
        "channels.",
        "attn_scores = queries @ keys.T",
    ),
    Slip(
        "scores-of-channels",
        "scores",
        "the scores compare channels with each other, not tokens",
        "The transpose stands on the wrong matrix: each number says how alike two channels are over all tokens.",
        "attn_scores = queries @ keys.T",
    ),
    Slip(
        "elementwise",
        "scores",
        "the scores are made with * where @ is meant",
        "* multiplies number by number; @ makes the dot product of each row with each column.",
        "attn_scores = queries @ keys.T",
    ),
    Slip(
        "elementwise-mix",
        "mix",
        "weights and values are multiplied with * where @ is meant",
        "A context vector is the sum of all values, each times its weight; * multiplies number by number and "
        "sums nothing.",
        "context = attn_weights @ values",
    ),
    Slip(
        "value-turned",
        "mix",
        "the values are transposed before they are mixed",
        "A row of weights has one number for each token, so it goes with the rows of the values. That the "
        "other way runs at all "
        "is because there are as many tokens as channels.",
        "context = attn_weights @ values",
    ),
    Slip(
        "softmax-over-all",
        "softmax",
        "softmax runs over the whole matrix",
        "Each token's weights must sum to one by themselves; here all weights of all tokens together do.",
        "attn_weights = torch.softmax(attn_scores, dim=-1)",
    ),
    Slip(
        "rows-not-one",
        "softmax",
        "the weights of a token don't sum to one",
        "A context vector is a mean of the values. Weights that sum to something else make all of it larger "
        "or smaller.",
        "attn_weights = torch.softmax(attn_scores, dim=-1)",
    ),
    Slip(
        "values-in-another-order",
        "mix",
        "the values stand in another order than the keys",
        "Weight j of a row is that of key j, and it must meet the value of the same token.",
        "context = attn_weights @ values",
    ),
    Slip(
        "scores-for-weights",
        "mix",
        "the scores stand where the weights belong",
        "Softmax was done, and its result is not what the values are multiplied by.",
        "context = attn_weights @ values",
    ),
    Slip(
        "stale-variable",
        "mix",
        "a variable from before is used",
        "A variable keeps its numbers until it is given new ones: what was computed from an older version "
        "does not follow.",
        "attn_weights = torch.softmax(attn_scores, dim=-1)",
    ),
    Slip(
        "other-token",
        "project",
        "another token is taken than its name says",
        "Python counts from 0: the second token is at index 1.",
        "x_2 = inputs[1]",
    ),
    Slip(
        "other-index",
        "mix",
        "an index of a loop stands in the place of another one",
        "Each number that a loop makes belongs to one query and one key, or to one head: what it is made of must be "
        "theirs.",
        "context[i] += attn_weights[i, j] * values[j]",
    ),
    Slip(
        "compared-with-other-token",
        "mix",
        "two different tokens' context vectors are compared",
        "Row i of all context vectors belongs to token i, and is to be held against that token's own context vector.",
        "torch.allclose(all_context_vecs[1], context_vec_2)",
    ),
)
SCRIPT_SLIPS = {slip.id: slip for slip in _OWN}


def slip_of(name: str) -> Slip:
    """What a slip of this id is, from the catalogue where it stands there."""
    if name in SCRIPT_SLIPS:
        return SCRIPT_SLIPS[name]
    fault = CATALOGUE[name]
    return Slip(fault.id, str(fault.stage), fault.title, fault.explanation, fault.repair)
