"""Boxes written by hand, as kernel authors write: what each of them computes, or that it is no softmax attention.

The files stand in ``boxes/``, each with one function of query, key and value; the answers stand here as data.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from benchmarks.black_boxes import Drawn, by_rows
from benchmarks.black_boxes.drawn import LONGEST, Rotation, Visible
from benchmarks.black_boxes.truths import answers

import qkv

BOXES = Path(__file__).parent / "boxes"
LENGTHS = [(6, 6), (13, 13), (4, 9), (9, 4)]
SQUARE = LENGTHS[:2]

FULL = Drawn(0, "BHTD", 6, 6, 8, 8, 8**-0.5)
GROUPED = replace(FULL, num_kv_heads=2)
CAUSAL = Visible(causal=True)
ROW, COLUMN = np.indices((LONGEST, LONGEST))
SLOPES = (1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8)


def t5_biases() -> Any:
    """``(head, distance)`` for distances up to 63, from the box's own table."""
    box = runpy.run_path(str(BOXES / "t5_buckets.py"))
    distances = torch.arange(-LONGEST + 1, LONGEST)
    return box["TABLE"][box["bucket"](distances)].T.numpy()


def slot_priors() -> Any:
    prior = runpy.run_path(str(BOXES / "key_bias.py"))["SLOT_PRIOR"]
    return np.broadcast_to(prior[:, None, :], (6, LONGEST, LONGEST))


@dataclass(frozen=True)
class Box:
    """A file of ``boxes/``.

    Attributes:
        name: file and function.
        expected: what it computes; None where that is no softmax over scores of one query and key.
        framework: whose arrays it takes.
        layout: order of its axes, where it has no batch.
        lengths: lengths of queries and keys that it takes.
        given: sizes of a box that computes something else.
    """

    name: str
    expected: Drawn | None
    framework: str = "torch"
    layout: str = ""
    lengths: Any = tuple(LENGTHS)
    like: Drawn = FULL

    @property
    def function(self) -> Callable[..., Any]:
        file, _, function = self.name.partition(":")
        return runpy.run_path(str(BOXES / file))[function]

    @property
    def sizes(self) -> Drawn:
        """A description with its sizes and its order of axes."""
        return self.expected or self.like


LONGFORMER = (abs(ROW - COLUMN) <= 2) | (ROW < 2) | (COLUMN < 2)
STRIDED = (COLUMN <= ROW) & ((ROW - COLUMN < 4) | ((ROW - COLUMN) % 4 == 0))
LAST = {"offset": "bottom_right"}

READABLE = [
    Box("flash_forward.py:flash_fwd", replace(GROUPED, visible=CAUSAL), "numpy"),
    Box("key_major_scores.py:attend", replace(GROUPED, layout="BTHD", visible=CAUSAL)),
    Box("longformer_window.py:local_global_attention", replace(FULL, visible=Visible(pairs=LONGFORMER))),
    Box("head_bias.py:mha", FULL, "numpy"),
    Box("key_bias.py:attention_with_prior", replace(FULL, place_bias=slot_priors()), "numpy"),
    Box("softmax_one.py:quiet_attention", replace(FULL, visible=CAUSAL, sinks=(0.0,) * 6)),
    Box("t5_buckets.py:t5_attention", replace(FULL, scale=1.0, distance_bias=t5_biases())),
    Box(
        "bloom_alibi.py:bloom_attention",
        replace(FULL, visible=CAUSAL, slopes=SLOPES, slopes_name="paper", empty_row="uniform", **LAST),
    ),
    Box(
        "mistral_grouped.py:grouped_sliding_window",
        replace(GROUPED, layout="BTHD", visible=Visible(causal=True, window=4), **LAST),
    ),
    Box(
        "gptj_rotary.py:rotary_attention",
        replace(
            FULL, layout="BTHD", rope=Rotation("adjacent", 10000.0, 4), visible=CAUSAL, empty_row="uniform", **LAST
        ),
        "numpy",
    ),
    Box("gemma_capped.py:capped", replace(GROUPED, visible=CAUSAL, scale=24**-0.5, softcap=50.0)),
    Box("packed_documents.py:varlen_attention", replace(FULL, visible=Visible(causal=True, starts=(4, 9))), "numpy"),
    Box("half_scores.py:low_memory_attention", replace(FULL, half_inside=True)),
    Box("square_causal.py:causal_self_attention", replace(FULL, visible=CAUSAL), lengths=SQUARE),
    Box("strided_sparse.py:strided_attention", replace(FULL, visible=Visible(pairs=STRIDED)), "numpy"),
    Box("image_prefix.py:prefix_lm_attention", replace(GROUPED, visible=Visible(causal=True, prefix=4))),
    Box("dropout_on.py:attention", replace(FULL, dropout_p=0.1)),
    Box("kv_concatenated.py:gqa", replace(GROUPED, tiled=True)),
    Box("packed_tokens.py:ragged_attention", replace(GROUPED, layout="BTHD", scale=128**-0.5), layout="THD"),
]

UNREADABLE = [
    Box("keys_transposed.py:decode_attention", None, "numpy", lengths=()),
    Box("sigmoid_attention.py:sigmoid_attention", None),
    Box("linear_attention.py:linear_attention", None, lengths=SQUARE),
    Box("no_softmax.py:attn", None, "numpy", like=replace(FULL, layout="BTHD")),
    Box("relu_attention.py:relu_attention", None),
    Box("topk_sparse.py:topk_attention", None),
    Box("differential.py:differential_attention", None),
    Box("log_n_scale.py:logn_attention", None, "numpy"),
]

COSINE = Box("cosine_attention.py:cosine_attention", None)
"""Scores of normalised queries and keys: a spec says it, a description of drawn boxes doesn't."""


def called(box: Box, query_len: int, key_len: int) -> tuple[Any, list[Any]]:
    """What a box gives on inputs that are drawn here, and these inputs."""
    drawn, rng = box.sizes, np.random.default_rng(0)
    shapes = [
        (1, drawn.num_heads, query_len, drawn.head_dim),
        (1, drawn.num_kv_heads, key_len, drawn.head_dim),
        (1, drawn.num_kv_heads, key_len, drawn.value_dim),
    ]
    arrays = [rng.normal(size=shape) for shape in shapes]
    arrays = [array.swapaxes(1, 2) for array in arrays] if drawn.layout == "BTHD" else arrays
    handed = [array[0] for array in arrays] if box.layout == "THD" else arrays
    tensors = box.framework == "torch"
    output = np.asarray(box.function(*(map(torch.from_numpy, handed) if tensors else handed)))
    return output[None] if box.layout == "THD" else output, arrays


@pytest.mark.parametrize("box", READABLE, ids=lambda box: box.name)
def test_the_answer_gives_the_numbers_of_the_box(box: Box) -> None:
    assert box.expected is not None
    for query_len, key_len in box.lengths:
        output, arrays = called(box, query_len, key_len)
        expected = by_rows(box.expected, *arrays)
        assert output.shape == expected.shape
        # The scale of one kernel is written with nine digits.
        bar = 1e-2 if box.expected.half_inside else 1e-7
        if not box.expected.dropout_p:
            assert np.allclose(output, expected, atol=bar, equal_nan=True)


@pytest.mark.parametrize("box", UNREADABLE, ids=lambda box: box.name)
def test_a_box_without_an_answer_is_no_plain_attention(box: Box) -> None:
    calls = [called(box, *lengths) for lengths in box.lengths]
    for visible in (Visible(), CAUSAL):
        plain = replace(box.sizes, visible=visible)
        same = [np.allclose(output, by_rows(plain, *arrays), atol=1e-3) for output, arrays in calls]
        assert not same or not all(same)


def test_every_box_has_an_answer() -> None:
    assert sorted(box.name.partition(":")[0] for box in [*READABLE, *UNREADABLE, COSINE]) == sorted(
        path.name for path in BOXES.glob("*.py")
    )


SLOW = ("flash_forward.py:flash_fwd",)
"""Boxes that loop over single rows or blocks in Python."""


def readable_cases() -> list[Any]:
    return [pytest.param(box, marks=[pytest.mark.slow] * (box.name in SLOW), id=box.name) for box in READABLE]


@pytest.mark.parametrize("box", readable_cases())
def test_it_is_identified(box: Box) -> None:
    assert box.expected is not None
    identity = qkv.identify(box.function, box.expected.given, layout=box.layout or box.expected.layout)
    # Which corner a mask stands in can't be told by a box that takes equal lengths only.
    fine = {"right", "undecided"} if box.lengths == SQUARE else {"right"}
    assert [answer for answer in answers(box.expected, identity) if answer.verdict not in fine] == []


@pytest.mark.parametrize("box", UNREADABLE, ids=lambda box: box.name)
def test_what_is_no_plain_attention_is_not_taken_for_one(box: Box) -> None:
    identity = qkv.identify(box.function, box.sizes.given, layout=box.sizes.layout)
    assert not identity.known
    assert identity.why or identity.undecided


def test_the_cosine_over_a_temperature_is_a_norm_of_query_and_key() -> None:
    identity = qkv.identify(COSINE.function, COSINE.sizes.given, layout="BHTD")
    assert identity.known
    assert identity.spec is not None
    assert identity.spec.qk_norm == "head"
    # Each norm is sqrt(8) times that of a direction, so one over the temperature of 0.1 is 10 / 8 of their product.
    assert identity.spec.scale == pytest.approx(10 / 8, rel=1e-4)
