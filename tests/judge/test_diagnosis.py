"""Diagnosis: code with a mistake in it, written here a second time, is named by its numbers alone; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import qkv
from injected import Case, function
from qkv.comparison import expectation, round_to
from qkv.diagnosis import Diagnosis, Explanation, Observation, diagnose, estimate
from qkv.diagnosis.search import NOT_A_NUMBER
from qkv.faults import CATALOGUE, Variant
from qkv.oracle import run_stages
from thinned import thinned

Array = np.ndarray


@dataclass(frozen=True)
class Written:
    """Attention as somebody would write it, each line with the mistakes that can be made in it.

    Attributes:
        scale: what the scores are multiplied by; None for the right number.
        rope: ``halves``, ``adjacent`` or nothing.
        base: of rope.
        backwards: whether rope turns the other way.
        cap: of the scores; 0 for none.
        ahead: how many keys after itself a query sees; None for all.
        corner: where the first query stands, ``bottom_right`` or ``top_left``.
        fill: the score of a hidden key.
        over: the axis of softmax.
        tiled: whether key/value heads are laid out one set after the other.
        by_view: whether the heads are merged by a view.
        short: the dtype that the scores are rounded to.
        add: what is put on top of the scores.
    """

    scale: float | None = None
    rope: str = ""
    base: float = 10000.0
    backwards: bool = False
    cap: float = 0.0
    ahead: int | None = 0
    corner: str = "bottom_right"
    fill: float = -np.inf
    over: int = -1
    tiled: bool = False
    by_view: bool = False
    short: str = ""
    add: Callable[[Array], Array] | None = None

    def but(self, **changes: Any) -> Written:
        return replace(self, **changes)

    def __call__(self, query: Array, key: Array, value: Array) -> Array:
        batch, heads, queries, dim = query.shape
        keys, group = key.shape[2], heads // key.shape[1]
        if self.tiled:
            key, value = np.tile(key, (1, group, 1, 1)), np.tile(value, (1, group, 1, 1))
        else:
            key, value = key.repeat(group, axis=1), value.repeat(group, axis=1)
        stands = keys - queries if self.corner == "bottom_right" else 0
        if self.rope:
            # Positions stay right where the corner of the mask does not.
            query = self.turned(query, np.arange(queries) + keys - queries)
            key = self.turned(key, np.arange(keys))
        scores = query @ key.swapaxes(-1, -2) * (dim**-0.5 if self.scale is None else self.scale)
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        if self.add:
            scores = scores + self.add(scores)
        if self.ahead is not None:
            scores = np.where(np.tri(queries, keys, stands + self.ahead, dtype=bool), scores, self.fill)
        scores = round_to(scores, self.short or "float64")
        shares = np.exp(scores - scores.max(self.over, keepdims=True))
        context = shares / shares.sum(self.over, keepdims=True) @ value
        if not self.by_view:
            context = context.swapaxes(1, 2)
        return np.ascontiguousarray(context).reshape(batch, queries, -1)

    def turned(self, x: Array, at: Array) -> Array:
        half = x.shape[-1] // 2
        angles = at[:, None] * self.base ** (-np.arange(half) / half) * (-1 if self.backwards else 1)
        first, second = (x[..., :half], x[..., half:]) if self.rope == "halves" else (x[..., ::2], x[..., 1::2])
        turned = first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)
        return np.concatenate(turned, -1) if self.rope == "halves" else np.stack(turned, -1).reshape(x.shape)


PLAIN = function(causal=True, takes=frozenset(), max_tokens=20)
ROPE = function(causal=True, rope={"pairing": "halves"}, takes=frozenset(), max_tokens=20)
CAPPED = function(causal=True, softcap=3.0, takes=frozenset(), max_tokens=20)
RIGHT = {PLAIN: Written(), ROPE: Written(rope="halves"), CAPPED: Written(cap=3.0)}


def observed(case: Case, candidate: Callable[..., Array]) -> list[Observation]:
    """What the judge sees of a candidate."""
    return [
        Observation(probe, right, candidate(probe.inputs.query, probe.inputs.key, probe.inputs.value))
        for probe, right in case.expected
    ]


def diagnosed(case: Case, **mistakes: Any) -> Diagnosis:
    with np.errstate(all="ignore"):
        return diagnose(observed(case, RIGHT[case].but(**mistakes)))


@pytest.mark.parametrize("case", RIGHT, ids=["plain", "rope", "softcap"])
def test_what_is_written_here_is_right_without_a_mistake(case: Case) -> None:
    assert all(observation.comparison.agrees for observation in observed(case, RIGHT[case]))
    assert diagnosed(case) == Diagnosis()


# --- one fault --------------------------------------------------------------------------------------------------------

SINGLE = [
    (PLAIN, {"scale": 1.0}, "scale-missing", ""),
    (PLAIN, {"scale": 48**-0.5}, "scale-by-model-width", "the scale is 1/sqrt(num_heads * head_dim)"),
    (PLAIN, {"ahead": 1}, "causal-one-ahead", ""),
    (PLAIN, {"ahead": None}, "causal-missing", ""),
    (PLAIN, {"ahead": -1}, "causal-strict", None),
    (PLAIN, {"corner": "top_left"}, "causal-corner", "drawn from the top left corner"),
    (PLAIN, {"tiled": True}, "kv-heads-tiled", None),
    (PLAIN, {"over": -2}, "softmax-over-queries", None),
    (PLAIN, {"by_view": True}, "heads-merged-by-view", None),
    (ROPE, {"rope": ""}, "rope-missing", None),
    (ROPE, {"rope": "adjacent"}, "rope-layout", None),
    (ROPE, {"backwards": True}, "rope-sign", None),
    (CAPPED, {"cap": 0.0}, "softcap-missing", ""),
]


@pytest.mark.parametrize(("case", "mistake", "name", "note"), SINGLE, ids=[name for _, _, name, _ in SINGLE])
def test_one_mistake_is_named(case: Case, mistake: dict[str, Any], name: str, note: str | None) -> None:
    best = diagnosed(case, **mistake).best
    assert best is not None
    assert best.ids == (name,)
    assert best.error <= 1.0
    assert note is None or best.variants[0].note == note


def test_the_particular_fault_comes_before_the_general_one_that_gives_the_same_numbers() -> None:
    diagnosis = diagnosed(PLAIN, ahead=None)
    assert diagnosis.best is not None
    assert diagnosis.best.ids == ("causal-missing",)
    assert diagnosis.alternatives[0].ids == ("mask-not-applied",)


def alone(*names: str) -> Explanation:
    return Explanation(tuple(Variant(CATALOGUE[name], {}) for name in names), 0.0)


def test_few_faults_come_first_then_particular_ones_then_common_ones() -> None:
    faults = CATALOGUE
    assert faults["mask-transposed"].general
    assert faults["mask-transposed"].commonness > faults["window-direction"].commonness
    assert faults["scale-missing"].commonness > faults["scale-twice"].commonness > faults["scale-zero"].commonness
    ordered = [
        alone("scale-missing"),
        alone("scale-twice"),
        alone("scale-zero"),
        alone("mask-transposed"),
        alone("scale-missing", "causal-missing"),
        alone("scale-missing", "scale-zero"),
    ]
    ranks = [explanation.rank for explanation in ordered]
    assert ranks == sorted(set(ranks))


# --- an estimated number ----------------------------------------------------------------------------------------------

NUMBERS = [
    (PLAIN, {"scale": 0.123}, "scale-other-constant", "the scale is 0.123"),
    (PLAIN, {"scale": -4.56}, "scale-other-constant", "the scale is -4.56"),
    (ROPE, {"base": 12345.0}, "rope-frequencies", "the base is 12345 in place of 10000"),
    (CAPPED, {"cap": 7.5}, "softcap-other-constant", "the softcap is 7.5"),
    (PLAIN, {"fill": -7.3}, "mask-fill-too-small", "hidden scores are -7.3"),
]


@pytest.mark.parametrize(("case", "mistake", "name", "note"), NUMBERS, ids=[note for *_, note in NUMBERS])
def test_a_number_is_estimated(case: Case, mistake: dict[str, Any], name: str, note: str) -> None:
    diagnosis = diagnosed(case, **mistake)
    assert diagnosis.best is not None
    assert diagnosis.best.ids == (name,)
    assert diagnosis.best.variants[0].note == note
    assert diagnosis.alternatives == ()


@pytest.mark.parametrize("value", [0.0317, 0.123, 2.2, -0.77])
def test_an_estimate_is_the_number_to_many_digits(value: float) -> None:
    (family, *_) = CATALOGUE["scale-other-constant"].families
    observation = observed(PLAIN, Written(scale=value))[0]
    assert estimate(family, observation) == pytest.approx(value, rel=1e-9)


def test_no_number_is_estimated_where_none_gives_the_output() -> None:
    (family, *_) = CATALOGUE["scale-other-constant"].families
    for mistake in (Written(ahead=1), Written(tiled=True, scale=0.3), Written(over=-2)):
        assert estimate(family, observed(PLAIN, mistake)[0]) is None


# --- pairs ------------------------------------------------------------------------------------------------------------

PAIRS = [
    (PLAIN, {"scale": 1.0, "ahead": 1}, {"scale-missing", "causal-one-ahead"}),
    (PLAIN, {"scale": 1.0, "ahead": None}, {"scale-missing", "causal-missing"}),
    (PLAIN, {"tiled": True, "ahead": 1}, {"kv-heads-tiled", "causal-one-ahead"}),
    (PLAIN, {"by_view": True, "scale": 1.0}, {"heads-merged-by-view", "scale-missing"}),
    (PLAIN, {"over": -2, "scale": 1.0}, {"softmax-over-queries", "scale-missing"}),
    # As many queries as keys have no corner: the second fault shows on probes with fewer queries only.
    (PLAIN, {"scale": 1.0, "corner": "top_left"}, {"scale-missing", "causal-corner"}),
    (ROPE, {"backwards": True, "tiled": True}, {"rope-sign", "kv-heads-tiled"}),
    (CAPPED, {"cap": 0.0, "ahead": 1}, {"softcap-missing", "causal-one-ahead"}),
]


@pytest.mark.parametrize(
    ("case", "mistakes", "names"), thinned(PAIRS, 4, ids=lambda one: " and ".join(sorted(one[-1])))
)
def test_two_mistakes_are_named(case: Case, mistakes: dict[str, Any], names: set[str]) -> None:
    best = diagnosed(case, **mistakes).best
    assert best is not None
    assert len(best.ids) == 2
    assert set(best.ids) == names
    assert best.error <= 1.0


def test_the_second_of_two_mistakes_may_be_invisible_on_the_ordinary_probe() -> None:
    both = observed(PLAIN, Written(scale=1.0, corner="top_left"))
    one = observed(PLAIN, Written(scale=1.0))
    same = {a.probe.name for a, b in zip(both, one, strict=True) if np.allclose(a.output, b.output)}
    assert "ordinary" in same
    assert {a.probe.kind for a in both if a.probe.name not in same} == {"fewer-queries"}


def test_rows_that_see_nothing_may_be_by_any_rule_where_they_are_mixed_with_others_and_not_judged() -> None:
    case = observed(PLAIN, Written())[0]
    run = case.expected.run
    few = run_stages(run.spec, replace(run.inputs, key=run.inputs.key[:, :, :3], value=run.inputs.value[:, :, :3]))
    by_view = Written(by_view=True, fill=-1e9)(few.inputs.query, few.inputs.key, few.inputs.value)  # the mean of all
    ways = list(CATALOGUE["heads-merged-by-view"].variants(few.spec))
    for judged in (False, True):
        seen = Observation(case.probe, expectation(few, "float64", judge_empty_rows=judged), by_view)
        assert any(seen.reproduced_under((way,)) is not None for way in ways) is not judged


def test_pairs_are_not_searched_unasked() -> None:
    observations = observed(PLAIN, Written(scale=1.0, ahead=1))
    assert diagnose(observations, pairs=False) == Diagnosis()


# --- no story ---------------------------------------------------------------------------------------------------------


def strange(scores: Array) -> Array:
    return np.sin(7 * scores) * np.arange(scores.shape[-1])


@pytest.mark.slow
def test_what_no_fault_gives_is_unexplained() -> None:
    assert diagnosed(PLAIN, add=strange) == Diagnosis()


@pytest.mark.slow
def test_a_fault_on_one_probe_alone_explains_nothing() -> None:
    wrong, right = observed(PLAIN, Written(scale=1.0)), observed(PLAIN, Written())
    for place, observation in enumerate(wrong):
        mixed = [*right[:place], observation, *right[place + 1 :]]
        assert diagnose(mixed, pairs=False).best is None or observation.comparison.agrees, observation.probe.name


def test_one_right_probe_among_wrong_ones_refutes_a_fault() -> None:
    wrong, right = observed(PLAIN, Written(scale=1.0)), observed(PLAIN, Written())
    names = [observation.probe.name for observation in wrong]
    place = names.index("strided")
    assert diagnose(wrong, pairs=False).best is not None
    assert diagnose([*wrong[:place], right[place], *wrong[place + 1 :]], pairs=False).best is None


def test_what_is_not_a_number_anywhere_is_called_that() -> None:
    diagnosis = diagnose(observed(PLAIN, lambda *qkv: np.full_like(Written()(*qkv), np.nan)))
    assert diagnosis == Diagnosis(untold=NOT_A_NUMBER)


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_infinity_everywhere_is_not_a_number_either(number: float) -> None:
    assert diagnose(observed(PLAIN, lambda *qkv: np.full_like(Written()(*qkv), number))).untold == NOT_A_NUMBER


def test_nan_in_some_rows_can_still_be_explained() -> None:
    # The first query sees no key at all, and softmax over nothing is 0/0.
    best = diagnosed(PLAIN, ahead=-1).best
    assert best is not None
    assert best.ids == ("causal-strict",)


# --- low precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_in_low_precision_are_named(dtype: str) -> None:
    best = diagnosed(PLAIN, short=dtype).best
    assert best is not None
    assert best.ids == ("softmax-low-precision",)
    assert best.variants[0].note == f"scores in {dtype}"


def test_low_precision_is_named_where_a_few_scores_fell_on_the_other_side() -> None:
    def candidate(query: Array, key: Array, value: Array) -> Array:
        # A little noise below float16 turns some of its roundings up in place of down: a whole step of it.
        return Written(short="float16")(query, np.round(key * 2**18) / 2**18, value)

    best = diagnose(observed(PLAIN, candidate), pairs=False).best
    assert best is not None
    assert best.ids == ("softmax-low-precision",)
    assert best.variants[0].note == "scores in float16"
    assert 0 < best.error < 0.5, "the share of its error that this leaves"


@pytest.mark.slow
def test_low_precision_that_no_step_explains_is_named_last_of_all() -> None:
    def candidate(query: Array, key: Array, value: Array) -> Array:
        return round_to(Written()(query, key, value), "float16")

    observations = observed(PLAIN, candidate)
    assert diagnose(observations, pairs=False).best is None
    best = diagnose(observations).best
    assert best is not None
    assert best.ids == ("softmax-low-precision",)
    assert best.variants[0].note == "right to the rounding of float16, somewhere inside, and not to that of float32"


def drifting(query: Array, key: Array, value: Array) -> Array:
    """Weights that grow by half a per cent from key to key, and are never made to sum to one again."""
    scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) * 1.005 ** np.arange(key.shape[-2]) @ value


def in_bfloat16(query: Array, key: Array, value: Array) -> Array:
    """Its output alone has bfloat16's digits."""
    scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return round_to(weights / weights.sum(axis=-1, keepdims=True) @ value, "bfloat16")


@pytest.mark.slow
def test_a_small_error_that_goes_one_way_is_no_rounding() -> None:
    named = [[fault.id for fault in qkv.check(function).faults] for function in (in_bfloat16, drifting)]
    assert named == [["softmax-low-precision"], []]


def test_low_precision_is_right_where_the_candidate_is_run_in_it() -> None:
    observations = [
        replace(observation, expected=expectation(observation.expected.run, "bfloat16"))
        for observation in observed(PLAIN, Written(short="bfloat16"))
    ]
    assert all(observation.comparison.agrees for observation in observations)
