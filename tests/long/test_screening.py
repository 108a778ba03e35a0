"""Every row of a long sequence beside the streamed oracle: what stands out, and what an interruption leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from drawn import Call, drawn_specs
from qkv.long_sequence.answer import Answer
from qkv.long_sequence.screening import Screen, sample, screen
from qkv.masks import Causal
from qkv.oracle import Inputs, run_stages
from qkv.probes import Probe
from qkv.spec import AttentionSpec

LENGTH = 700


def answer(spec: AttentionSpec, inputs: Inputs, output: np.ndarray | None = None) -> Answer:
    given = run_stages(spec, inputs).output if output is None else output
    return Answer(spec, Probe("long", "length", inputs), given, "float32", None, judge_empty_rows=True)


def heads(spec: AttentionSpec, length: int = LENGTH) -> Inputs:
    return Call(batch=1, query_len=length, key_len=length).inputs(spec)


@settings(max_examples=40, deadline=None)
@given(drawn_specs(), st.sampled_from(["heads", "tokens"]))
def test_nothing_stands_far_out_in_the_oracles_own_output(spec: AttentionSpec, form: str) -> None:
    inputs = Call(form=form, batch=1, query_len=40, key_len=40).inputs(spec)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        found = screen(answer(spec, inputs), lambda share: None)
    empty = np.isnan(run_stages(spec, inputs).output).any()
    assert found.seen.all()
    # Screening rounds to float32 itself: a row that is sensitive may deserve a look for that.
    assert empty or found.off.max() < 2
    assert empty or found.suspicious.mean() < 0.05


def test_one_row_of_one_head_stands_out() -> None:
    spec = AttentionSpec(3, mask=Causal())
    inputs = heads(spec)
    output = run_stages(spec, inputs).output.copy()
    width = output.shape[-1] // 3
    output[0, 321, 2 * width + 1] += 1e-4
    suspicious = screen(answer(spec, inputs, output), lambda share: None).suspicious
    assert np.argwhere(suspicious).tolist() == [[321, 2]]


def test_of_each_part_the_row_furthest_off_deserves_the_closest_look() -> None:
    off = np.full((100, 2), 0.5)
    off[[3, 7, 40, 99], [0, 1, 1, 0]] = 2.0, 3.0, np.inf, 1.5
    assert Screen(off).furthest(4) == [7, 40, 99]
    assert Screen(off[:3]).furthest(4) == []


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_stands_out(number: float) -> None:
    spec = AttentionSpec(2, mask=Causal())
    inputs = heads(spec, 64)
    output = run_stages(spec, inputs).output.copy()
    output[0, 5, 0] = number
    suspicious = screen(answer(spec, inputs, output), lambda share: None).suspicious
    assert np.argwhere(suspicious).tolist() == [[5, 0]]


def test_the_shares_of_the_work_add_up_to_one() -> None:
    spec = AttentionSpec(3, mask=Causal())
    told: list[float] = []
    screen(answer(spec, heads(spec, 1100)), told.append)
    assert sum(told) == pytest.approx(1.0)
    assert len(told) == 3 * 3


def test_an_interruption_leaves_the_heads_seen_so_far() -> None:
    spec = AttentionSpec(3, mask=Causal())
    told: list[float] = []

    def interrupted(share: float) -> None:
        told.append(share)
        if len(told) == 2:
            raise KeyboardInterrupt

    seen = screen(answer(spec, heads(spec)), interrupted).seen
    assert seen[:, 0].all()
    assert not seen[:, 1:].any()


def test_rows_of_a_sample_are_early_ones_and_others_all_over() -> None:
    rows = sample(10_000, 12)
    assert rows[:3] == [1, 5, 20]
    assert rows[-1] == 9_999
    assert len(rows) == 11
    assert sample(4, 12) == [0, 1, 2, 3]
