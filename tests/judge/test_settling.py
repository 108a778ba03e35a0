"""Settling: of all ways to read a candidate the one that is meant is found, right or wrong as the candidate may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from injected import function
from qkv.adapters.abilities import Abilities, NotApplicable
from qkv.adapters.calling import Outcome
from qkv.adapters.doubts import Doubt
from qkv.adapters.messages import Facts
from qkv.debugger import check
from qkv.errors import CandidateError
from qkv.inference import Intention
from qkv.masks import Causal
from qkv.oracle import Inputs, run_stages
from qkv.report import Report
from qkv.settling import Trial, settle
from qkv.spec import AttentionSpec

Array = Any


def attend(query: Array, key: Array, value: Array, seen: Array = None, scale: float | None = None) -> Array:
    scores = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if seen is not None:
        scores = np.where(seen, scores, -np.inf) if seen.dtype == bool else scores + seen
    with np.errstate(invalid="ignore"):
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ value


@pytest.mark.parametrize(("given", "said"), [({"head_dim": 16}, True), ({}, False)])
def test_a_width_that_was_stated_is_the_only_one_that_is_vouched_for(given: dict[str, int], said: bool) -> None:
    def attention(query: Array, key: Array, value: Array) -> Array:
        return attend(query, key, value)

    report = check(attention, {"num_heads": 3, **given}, sweep=True)
    assert report.verdict == "right"
    assert any("says nothing of other widths" in one for one in report.assumptions) == said


# --- the order of the axes --------------------------------------------------------------------------------------------


def turned(x: Array) -> Array:
    return x.swapaxes(-3, -2)


def bhtd(query: Array, key: Array, value: Array, scale: float | None = None) -> Array:
    assert query.ndim == 4
    return attend(query, key, value, None, scale)


def bthd(query: Array, key: Array, value: Array, scale: float | None = None) -> Array:
    assert query.ndim == 4
    return turned(attend(turned(query), turned(key), turned(value), None, scale))


def htd(query: Array, key: Array, value: Array, scale: float | None = None) -> Array:
    assert query.ndim == 3
    return attend(query, key, value, None, scale)


def thd(query: Array, key: Array, value: Array, scale: float | None = None) -> Array:
    assert query.ndim == 3
    return turned(attend(turned(query), turned(key), turned(value), None, scale))


def td(query: Array, key: Array, value: Array, scale: float | None = None) -> Array:
    assert query.ndim == 2
    return attend(query, key, value, None, scale)


def arrays_are(report: Report) -> str:
    """The layout that the report says the candidate was read in."""
    (said,) = [one for one in report.assumptions if one.startswith("arrays are ")]
    return said.split()[2]


LAYOUTS = [(bhtd, "BHTD"), (bthd, "BTHD"), (htd, "HTD"), (thd, "THD"), (td, "TD")]


def numpy_function(candidate: Callable[..., Array], **fixed: Any) -> Callable[..., Array]:
    """The candidate as a function of query, key and value alone, with its other arguments fixed."""

    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        return candidate(query, key, value, **fixed)

    return attention


@pytest.mark.parametrize(("candidate", "layout"), LAYOUTS, ids=[layout for _, layout in LAYOUTS])
def test_the_layout_of_a_right_function_is_found(candidate: Callable[..., Array], layout: str) -> None:
    report = check(numpy_function(candidate))
    assert report.verdict == "right"
    assert arrays_are(report) == layout


@pytest.mark.parametrize(("candidate", "layout"), LAYOUTS, ids=[layout for _, layout in LAYOUTS])
def test_the_layout_of_a_wrong_function_is_found_with_its_fault(candidate: Callable[..., Array], layout: str) -> None:
    report = check(numpy_function(candidate, scale=1.0), {"causal": False})
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert arrays_are(report) == layout


def test_a_layout_that_the_documentation_states_comes_first() -> None:
    def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Arrays are (batch, seq_len, heads, dim)."""
        return query  # wrong under every layout

    report = check(attention, {"causal": False})
    assert report.verdict == "wrong"
    assert arrays_are(report) == "BTHD"


# --- what a mask means ------------------------------------------------------------------------------------------------


def boolean(mask: Any) -> Any:
    assert mask.dtype == bool, "numbers are not taken"
    return mask


def keeps(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: Any = None, scale: float | None = None) -> Any:
    return attend(query, key, value, None if mask is None else boolean(mask), scale)


def hides(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: Any = None, scale: float | None = None) -> Any:
    return attend(query, key, value, None if mask is None else ~boolean(mask), scale)


def adds(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: Any = None, scale: float | None = None) -> Any:
    return attend(query, key, value, None if mask is None else mask.astype(float), scale)


def pads_hide(query: np.ndarray, key: np.ndarray, value: np.ndarray, key_padding_mask: Any = None) -> Any:
    return attend(query, key, value, None if key_padding_mask is None else ~key_padding_mask[:, None, None, :])


def pads_keep(query: np.ndarray, key: np.ndarray, value: np.ndarray, padding_mask: Any = None) -> Any:
    return attend(query, key, value, None if padding_mask is None else padding_mask[:, None, None, :])


def tokens_keep(query: np.ndarray, key: np.ndarray, value: np.ndarray, is_token: Any = None) -> Any:
    return attend(query, key, value, None if is_token is None else is_token[:, None, None, :])


MEANINGS = [
    (keeps, "in its mask argument 'mask', True may attend"),
    (hides, "in its mask argument 'mask', True is hidden"),
    (adds, "in its mask argument 'mask', a number added to the scores"),
    (pads_hide, "in its padding argument 'key_padding_mask', True is hidden"),
    (pads_keep, "in its padding argument 'padding_mask', True may attend"),
    (tokens_keep, "in its padding argument 'is_token', True may attend"),
]


@pytest.mark.parametrize(("candidate", "words"), MEANINGS, ids=[one.__name__ for one, _ in MEANINGS])
def test_what_a_mask_means_is_found(candidate: Callable[..., Array], words: str) -> None:
    report = check(candidate)
    assert report.verdict == "right"
    assert words in report.assumptions
    run = {probe.name for probe in report.probes if probe.agrees}
    assert {"padding on the right", "padding on the left"} <= run
    assert ("handed-mask" in run) == ("mask argument" in words)


@pytest.mark.parametrize(("candidate", "words"), MEANINGS[:3], ids=["keeps", "hides", "adds"])
def test_what_a_mask_means_is_found_beside_a_fault(candidate: Callable[..., Array], words: str) -> None:
    def unscaled(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: Any = None) -> np.ndarray:
        return candidate(query, key, value, mask, 1.0)

    report = check(unscaled, {"causal": False})
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert words in report.assumptions


def test_a_meaning_that_the_user_gave_is_held_to() -> None:
    report = check(hides, {"causal": False}, mask_argument="keep")
    assert (report.verdict, [fault.id for fault in report.faults]) == ("wrong", ["mask-inverted"])
    assert check(hides, {"causal": False}, mask_argument="hide").verdict == "right"


# --- lengths ----------------------------------------------------------------------------------------------------------


def with_lengths(query: np.ndarray, key: np.ndarray, value: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return attend(query, key, value, (np.arange(key.shape[2]) < lengths[:, None])[:, None, None, :])


def with_lengths_off_by_one(query: np.ndarray, key: np.ndarray, value: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return with_lengths(query, key, value, lengths + 1)


def test_lengths_say_padding_on_the_right_and_nothing_else() -> None:
    report = check(with_lengths)
    assert report.verdict == "right"
    named = {probe.name for probe in report.probes}
    assert "padding on the right" in named
    assert "padding on the left" not in named
    assert report.strength is not None
    assert not any(line.startswith("padding-off-by-one") for line in report.strength.blind_to)


def test_a_length_that_is_one_too_long_is_named() -> None:
    report = check(with_lengths_off_by_one, {"causal": False})
    assert [fault.id for fault in report.faults] == ["padding-off-by-one"]
    assert report.first_disagreement is not None
    assert report.first_disagreement.probe == "padding on the right"


# --- modules ----------------------------------------------------------------------------------------------------------


class Bidirectional(nn.Module):
    """Attention of every token to every other one."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def attend(self, x: torch.Tensor, scale: float | None = None) -> torch.Tensor:
        query, key, value = (
            proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)
        return self.out_proj(context.transpose(1, 2).flatten(2))


class BatchFirst(Bidirectional):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x)


class TimeFirst(Bidirectional):
    """Tokens are (seq_len, batch, channels)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x.transpose(0, 1)).transpose(0, 1)


class SaysTimeFirst(Bidirectional):
    batch_first = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x.permute(1, 0, 2)).permute(1, 0, 2)


class UnscaledTimeFirst(Bidirectional):
    """Tokens are (seq_len, batch, channels)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x.transpose(0, 1), 1.0).transpose(0, 1)


TIME_FIRST = "x is time first, (token, batch, embed)"


def test_tokens_on_the_first_axis_are_found() -> None:
    for candidate, said in ((BatchFirst, False), (TimeFirst, True)):
        report = check(candidate)
        assert report.verdict == "right"
        assert (TIME_FIRST in report.assumptions) == said


def test_tokens_on_the_first_axis_are_found_beside_a_fault() -> None:
    report = check(UnscaledTimeFirst, {"causal": False})
    assert [fault.id for fault in report.faults] == ["scale-missing"]
    assert TIME_FIRST in report.assumptions


def test_a_class_that_says_it_is_not_batch_first_is_believed() -> None:
    report = check(SaysTimeFirst)
    assert report.verdict == "right"
    assert TIME_FIRST in report.assumptions


def test_torchs_own_layer_is_read_as_it_was_built() -> None:
    torch.manual_seed(0)
    for batch_first in (False, True):
        report = check(nn.MultiheadAttention(24, 3, batch_first=batch_first))
        assert report.verdict == "right"
        assert (TIME_FIRST in report.assumptions) == (not batch_first)


# --- settle, by readings made up for it -------------------------------------------------------------------------------

CASE = function(causal=True, num_heads=2, num_kv_heads=2, value_dim=8, takes=frozenset(), max_tokens=12)


@dataclass
class Made:
    """A reading that answers with the right output times a factor, and refuses probes by name."""

    factor: float = 1.0
    refuses: tuple[str, ...] = ()
    leaves_out: tuple[str, ...] = ()
    fatal: bool = False
    assumptions: list[str] = field(default_factory=list)
    spec: AttentionSpec = CASE.spec
    facts: Facts = None  # type: ignore[assignment]  # nobody asks for it here
    doubts: Sequence[Doubt] = ()
    abilities: Abilities = CASE.abilities
    calls: int = 0

    def observe(self, inputs: Inputs, *, seed: int = 0) -> Outcome:
        self.calls += 1
        queries, keys = inputs.lengths
        name = "fewer-queries" if queries != keys else "every"
        if name in self.leaves_out:
            raise NotApplicable
        if name in self.refuses or "every" in self.refuses:
            raise CandidateError(f"refused by {self.factor}", fatal=self.fatal)
        return Outcome(self.factor * run_stages(self.spec, inputs).output, "float64")


def trial(reading: Made) -> Trial:
    return Trial(reading, Intention(reading.spec), 0, judge_empty_rows=False)


def settled(*readings: Made) -> list[float]:
    return [one.reading.factor for one in settle(trial(reading) for reading in readings)]  # type: ignore[attr-defined]


def test_a_reading_that_is_right_is_taken_alone_and_no_further_one_is_tried() -> None:
    wrong, right, unseen = Made(2.0), Made(1.0), Made(3.0)
    assert settled(wrong, right, unseen) == [1.0]
    assert unseen.calls == 0


def test_where_none_is_right_all_that_differ_are_kept() -> None:
    assert settled(Made(2.0), Made(3.0), Made(2.0)) == [2.0, 3.0]


def test_readings_that_can_be_called_with_most_come_before_all_others() -> None:
    assert settled(Made(2.0, refuses=("fewer-queries",)), Made(3.0)) == [3.0]
    assert settled(Made(1.0, refuses=("fewer-queries",)), Made(3.0)) == [3.0]
    assert settled(Made(2.0, leaves_out=("fewer-queries",)), Made(3.0)) == [3.0]


def test_a_right_reading_that_leaves_something_out_waits_for_the_others() -> None:
    assert settled(Made(1.0, leaves_out=("fewer-queries",)), Made(1.0)) == [1.0]
    first = Made(1.0, leaves_out=("fewer-queries",))
    (kept,) = settle([trial(first), trial(Made(1.0))])
    assert kept.unsaid == 0


def test_where_nothing_can_be_called_the_first_error_is_told() -> None:
    with pytest.raises(CandidateError, match=r"refused by 2\.0"):
        settle([trial(Made(2.0, refuses=("every",))), trial(Made(3.0, refuses=("every",)))])


def test_a_candidate_that_is_gone_is_not_called_again() -> None:
    after = Made(3.0)
    with pytest.raises(CandidateError, match=r"refused by 2\.0"):
        settle([trial(Made(2.0, refuses=("every",), fatal=True)), trial(after)])
    assert after.calls == 0


def test_a_kind_of_probe_that_was_refused_is_not_tried_again() -> None:
    refusing = trial(Made(1.0, refuses=("fewer-queries",)))
    refusing.run(quick=False)
    assert [probe.name for probe, _ in refusing.refused] == ["fewer-queries 3 of 9"]
    assert refusing.broken is None, "nobody has to take other numbers of queries than of keys"
    assert refusing.right


def test_the_quick_probes_are_not_run_twice() -> None:
    one = trial(Made(1.0))
    one.run(quick=True)
    quick = [observation.probe.name for observation in one.observations]
    one.run(quick=False)
    names = [observation.probe.name for observation in one.observations]
    assert names[: len(quick)] == quick
    assert len(set(names)) == len(names) > len(quick)
    assert {"ordinary", "again", "long", "one-token"} <= set(names)


@pytest.mark.slow
def test_only_what_names_its_arguments_so_is_called_a_function_of_query_key_and_value() -> None:
    def area(width: Array, height: Array, depth: Array) -> Array:
        return width * height + depth

    def mixed(a: Array, b: Array, c: Array) -> Array:
        return attend(a, b, c)

    taken = "{} are query, key and value, by their places"
    reports = {asked: check(asked) for asked in (area, mixed, attend)}
    for asked, kind, said in (
        (area, "function", taken.format("width, height and depth")),
        (mixed, "function", taken.format("a, b and c")),
        (attend, "function of query, key and value", None),
    ):
        report = reports[asked]
        assert report.candidate.kind == kind
        assert [one for one in report.assumptions if "by their places" in one] == [said] * (said is not None)
    assert reports[mixed].verdict == "right"


def test_a_mask_over_the_keys_beside_a_causal_mask_of_its_own_says_what_is_padding() -> None:
    def causal_attention(query: Array, key: Array, value: Array, mask: Array = None) -> Array:
        seen = np.tri(query.shape[-2], key.shape[-2], key.shape[-2] - query.shape[-2], dtype=bool)
        return attend(query, key, value, seen if mask is None else seen & mask[:, None, None, :])

    def one_ahead(query: Array, key: Array, value: Array, mask: Array = None) -> Array:
        seen = np.tri(query.shape[-2], key.shape[-2], key.shape[-2] - query.shape[-2] + 1, dtype=bool)
        return attend(query, key, value, seen if mask is None else seen & mask[:, None, None, :])

    spec = AttentionSpec(num_heads=2, mask=Causal())
    right, wrong = check(causal_attention, spec), check(one_ahead, spec)
    assert right.verdict == "right", right
    assert any(probe.agrees and probe.name.startswith("padding") for probe in right.probes)
    assert (wrong.verdict, [fault.id for fault in wrong.faults]) == ("wrong", ["causal-one-ahead"])


def test_a_bias_without_an_axis_of_sequences_is_handed_over_so() -> None:
    def windowed(query: Array, key: Array, value: Array, bias: Array = None) -> Array:
        return attend(query, key, value, None if bias is None else bias.transpose(0, 1, 2)[None])

    def turned(query: Array, key: Array, value: Array, bias: Array = None) -> Array:
        return attend(query, key, value, None if bias is None else bias.transpose(0, 2, 1)[None])

    right, wrong = check(windowed), check(turned)
    assert right.verdict == "right"
    assert any(probe.agrees and probe.name.startswith("handed-bias") for probe in right.probes)
    assert "its bias argument 'bias' is (heads, query, key)" in right.assumptions
    assert (wrong.verdict, [fault.id for fault in wrong.faults]) == ("wrong", ["relative-bias-index"])
