"""The figure of a fault: the oracle on a tiny attention, right and faulty, and the first tensor that differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qkv.faults import CATALOGUE, GRADIENT_FAULTS, LENGTH_FAULTS, Fault
from qkv.masks import Causal
from qkv.report import CandidateWords, NamedFault, Report, Verdict, to_mapping
from qkv.report.figures import figure_of
from qkv.report.tiny import tiny_runs
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

NO_TENSOR = {"inputs-changed", "mask-mutated", "index-overflow"}
"""Faults that change no tensor of a tiny run: what is handed over comes back changed, or an index runs past 2^31."""


def named(fault: Fault, note: str = "") -> NamedFault:
    return NamedFault(fault.id, str(fault.stage), fault.title, fault.explanation, fault.repair, note, 0.0)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_fault_has_a_figure(name: str) -> None:
    fault = CATALOGUE[name]
    figure = figure_of(named(fault))
    assert (figure.matrices is None) == (name in NO_TENSOR)
    if figure.matrices is None:
        assert figure.replaced == {fault.stage}
        return
    matrices = figure.matrices
    assert matrices.first is not None
    assert matrices.expected.shape == matrices.got.shape == matrices.wrong.shape
    assert max(matrices.expected.shape) <= 8
    assert figure.replaced <= set(Stage)
    # Where a fault changes shapes, as a cache with more tokens does, the first tensor of the right shape is shown.
    shown = Stage(matrices.title.partition(" after the stage ")[2].split()[0].rstrip(","))
    assert shown in figure.replaced or name == "cache-other-sequence"
    assert figure.on


@pytest.mark.parametrize("fault", [*GRADIENT_FAULTS.values(), *LENGTH_FAULTS.values()])
def test_what_a_tiny_forward_pass_can_not_show_is_marked_in_the_row_of_stages(fault: Fault) -> None:
    figure = figure_of(named(fault))
    assert figure.matrices is None
    assert figure.replaced == {str(fault.stage)}


def test_a_fault_is_shown_in_the_way_that_was_found() -> None:
    fault = CATALOGUE["softmax-base"]
    notes = {variant.note for variant in fault.variants(tiny_runs()[0].spec)}
    figures = [figure_of(named(fault, note)).matrices for note in notes]
    assert len(notes) > 1
    assert len({one.got.tobytes() for one in figures if one is not None}) == len(notes)


def test_the_number_that_was_estimated_is_the_one_in_the_figure() -> None:
    fault, spec = CATALOGUE["scale-other-constant"], AttentionSpec(num_heads=6, head_dim=8, mask=Causal())
    estimated = replace(named(fault, "the scale is 0.4242"), own=fault.families[0].replacements(0.4242))
    figure = figure_of(estimated, spec)
    assert figure.on == "1 head of 2 channels, scores times 1/sqrt(2), causal"
    assert figure.matrices is not None
    seen = np.isfinite(figure.matrices.expected)
    np.testing.assert_allclose(figure.matrices.got[seen], figure.matrices.expected[seen] * 0.4242 * 2**0.5)
    assert "own" not in to_mapping(Report(Verdict.WRONG, CandidateWords("f"), faults=[estimated]))["faults"][0]


def test_an_example_with_a_number_of_its_own_says_so() -> None:
    assert figure_of(named(CATALOGUE["scale-other-constant"])).on.endswith(
        ", no mask; there the scale is 1/sqrt(key_len)"
    )


@pytest.mark.parametrize("name", ["scale-missing", "kv-heads-tiled", "heads-merged-by-view", "softmax-twice"])
def test_a_fault_of_a_causal_attention_is_shown_on_a_causal_one(name: str) -> None:
    on = figure_of(named(CATALOGUE[name]), AttentionSpec(num_heads=6, num_kv_heads=2, mask=Causal())).on
    assert "causal" in on


def test_a_hidden_cell_is_hidden_and_what_a_fault_shows_is_not() -> None:
    matrices = figure_of(named(CATALOGUE["causal-one-ahead"])).matrices
    assert matrices is not None
    assert matrices.hidden is not None
    expected, got = matrices.hidden
    assert np.array_equal(expected, np.triu(np.ones((3, 3), bool), 1))
    assert np.array_equal(got, np.triu(np.ones((3, 3), bool), 2))
    assert np.array_equal(matrices.wrong, expected & ~got)
    assert matrices.first == (0, 1)
