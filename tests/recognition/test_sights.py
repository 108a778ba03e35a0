"""What an array is recognised as, however it is laid out; and what isn't recognised."""

import numpy as np
import pytest

from qkv.adapters.recording import Recording, Value
from qkv.masks import Causal, SlidingWindow
from qkv.oracle import Inputs, run_stages
from qkv.positions import Alibi, Rope
from qkv.recognition import Sight, recognise
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

BATCH, HEADS, KV_HEADS, TOKENS, DIM, VALUE_DIM = 2, 6, 2, 7, 8, 10


def run(**fields):
    rng = np.random.default_rng(0)
    spec = AttentionSpec(num_heads=HEADS, num_kv_heads=KV_HEADS, **fields)
    shapes = ((HEADS, TOKENS, DIM), (KV_HEADS, TOKENS, DIM), (KV_HEADS, TOKENS, VALUE_DIM))
    query, key, value = (rng.normal(size=(BATCH, *shape)) for shape in shapes)
    return run_stages(spec, Inputs(query=query, key=key, value=value))


def sight(array, of, faulty=None) -> Sight | None:
    recording = Recording([Value(np.asarray(array), "float64")], [], [])
    found = recognise(recording, of, faulty)
    return found.sights[0] if faulty is None else found.faulty[0]


def test_scores_are_recognised_scaled_masked_and_head_by_head() -> None:
    of = run(mask=Causal())
    raw, masked = of.before[Stage.SCALE].scores, of.scores
    assert sight(raw, of) == Sight("attn_scores", Stage.SCORES, ("batch", "head", "query", "key"))
    assert sight(masked, of).stage == Stage.MASK
    assert sight(np.where(np.isinf(masked), -1e9, masked), of).right
    one = sight(raw[1, 4] * of.spec.scale_for(DIM), of)
    assert one is not None
    assert (one.axes, dict(one.fixed), one.factor) == (("query", "key"), {"batch": 1, "head": 4}, DIM**-0.5)
    grouped = sight(raw.transpose(0, 2, 3, 1).reshape(BATCH, TOKENS, TOKENS, 2, 3), of)
    assert grouped is not None
    assert grouped.axes == ("batch", "query", "key", "head part", "head part")


def test_another_factor_is_named_and_not_right() -> None:
    of = run(mask=Causal())
    other = sight(of.before[Stage.SCALE].scores / DIM, of)
    assert other is not None
    assert not other.right
    assert other.factor == pytest.approx(1 / DIM)


def test_hiding_what_no_mask_hides_is_not_right() -> None:
    of = run(mask=Causal() & SlidingWindow(3))
    scores = of.before[Stage.MASK].scores
    at = np.arange(TOKENS)
    causal = at[:, None] >= at
    assert sight(np.where(causal, scores, -np.inf), of).right  # the window may follow
    one_ahead = at[:, None] + 1 >= at
    assert sight(np.where(one_ahead, scores, -np.inf), of) is None


@pytest.mark.parametrize("form", ["keep", "hide", "additive"])
def test_masks_are_recognised_in_every_form_and_made_ahead_for_longer_texts(form) -> None:
    of = run(mask=Causal())
    keeps = np.tri(64, dtype=bool)
    array = {"keep": keeps, "hide": (~keeps).astype(float), "additive": np.where(keeps, 0.0, -np.inf)}[form]
    found = sight(array[None, None], of)
    assert found is not None
    assert (found.stage, found.form, found.axes[2:]) == (Stage.MASK, form, ("query", "key"))
    assert sight(np.tri(64, k=1, dtype=bool), of) is None


def test_a_context_merged_by_a_view_is_scrambled() -> None:
    of = run()
    context = of.before[Stage.MERGE].context
    merged, right = sight(context.reshape(BATCH, TOKENS, -1), of), sight(of.context, of)
    assert merged is not None
    assert right is not None
    assert merged.scrambled
    assert not merged.right
    assert right.axes == ("batch", "query", "head*value dim")


def test_heads_shared_by_groups_are_right_and_tiled_heads_are_not() -> None:
    of = run()
    key = of.inputs.key
    assert sight(np.repeat(key, 3, axis=1), of).right
    tiled = sight(np.tile(key, (1, 3, 1, 1)), of)
    assert tiled is None or not tiled.right


@pytest.mark.parametrize("pairing", ["halves", "adjacent"])
def test_steps_of_rope_are_recognised(pairing) -> None:
    of = run(rope=Rope(pairing))
    given = of.before[Stage.POSITION].query
    frequencies = np.asarray(of.spec.rope.frequencies(DIM))
    angles = np.arange(TOKENS)[:, None] * frequencies
    assert sight(frequencies, of).name == "frequencies of rope"
    assert sight(np.cos(angles), of).name == "cos of rope"
    assert sight(of.query, of).stage == Stage.POSITION
    assert sight(given[..., : DIM // 2], of) is not None or pairing == "adjacent"


def test_alibi_is_recognised_from_its_slopes_on() -> None:
    of = run(alibi=Alibi(), mask=Causal())
    slopes = np.asarray(of.spec.alibi.slopes_for(HEADS))
    distance = np.arange(TOKENS)[None, :] - np.arange(TOKENS)[:, None]
    assert sight(slopes, of).name == "alibi slopes"
    assert sight(slopes[:, None, None] * distance, of).name in ("bias", "alibi bias")
    assert sight(np.arange(1 - TOKENS, 1), of).right  # distances from the last key
    exponents = np.arange(1, 9)  # of 6 heads the row of 8 is made too
    assert sight(exponents, of).name == "heads counted from 1"
    assert sight(1 / 2.0**exponents, of).of == "alibi slopes"


def test_other_slopes_are_recognised_under_their_fault_only() -> None:
    of = run(alibi=Alibi(), mask=Causal())
    spec = of.spec
    other = tuple(slope / 2 for slope in spec.alibi.slopes_for(HEADS))
    faulty = run_stages(spec, of.inputs, {Stage.BIAS: lambda run: _biased(run, other)})
    assert sight(other, of, faulty).name == "alibi slopes"
    by_key = np.asarray(other)[:, None] * np.arange(1 - TOKENS, 1)
    assert sight(by_key, of, faulty).name == "alibi bias"
    assert sight(by_key, of) is None or not sight(by_key, of).right


def _biased(run, slopes):
    at = np.arange(TOKENS)
    return run.but(scores=run.scores - np.asarray(slopes)[:, None, None] * abs(at[:, None] - at))


def test_what_is_wrong_is_recognised_under_the_fault() -> None:
    of = run(mask=Causal())
    faulty = run()
    found = sight(faulty.weights, of, faulty)
    assert found is not None
    assert (found.name, found.stage) == ("attn_weights", Stage.SOFTMAX)


def test_what_is_made_ahead_for_more_tokens_is_known_by_its_first_rows() -> None:
    of = run(rope=Rope())
    angles = np.arange(4 * TOKENS)[:, None] * 10000.0 ** -(np.arange(0, DIM, 2) / DIM)
    table = sight(np.cos(angles), of)
    assert table is not None
    assert (table.name, table.right) == ("cos of rope", True)
    other = sight(np.cos(angles / 2), of)
    assert other is None or not other.right


def test_a_row_s_sum_with_its_sink_is_told_from_the_one_without() -> None:
    rng = np.random.default_rng(1)
    of = run(sinks=True)
    of = run_stages(of.spec, of.inputs.but(sinks=rng.normal(size=HEADS)))
    scores = of.before[Stage.SOFTMAX].scores
    top = np.maximum(scores.max(axis=-1), of.inputs.sinks[:, None])
    without = np.exp(scores - top[..., None]).sum(axis=-1)
    named = [sight(one, of) for one in (without, without + np.exp(of.inputs.sinks[:, None] - top))]
    assert [one.name for one in named if one is not None] == ["row's sum, without its sink", "row's sum"]
