"""Masks as they are written in code: what they say, what they compare to, and what is said of wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qkv
from qkv.errors import ShapeError, SpecError
from qkv.masks import (
    Causal,
    Mask,
    Prefix,
    SlidingWindow,
    dilated,
    everything,
    global_tokens,
    parse_mask,
    per_head,
    rule,
)


def test_the_front_door_makes_the_masks_that_their_text_says() -> None:
    mask = qkv.causal() & qkv.window(256) | qkv.prefix(32)
    assert mask == Causal() & SlidingWindow(256) | Prefix(32)
    for made in (
        mask,
        ~mask,
        qkv.documents(),
        qkv.padding(),
        dilated(2),
        global_tokens(3),
        everything(),
        qkv.causal(1),
    ):
        assert parse_mask(str(made)) == made


def test_numbers_may_be_lists_arrays_or_tensors() -> None:
    import torch

    ids = [[0, 0, 1], [0, 1, 1]]
    for given in (ids, tuple(ids), np.array(ids), np.array(ids, np.uint8), torch.tensor(ids)):
        assert qkv.documents(given) == qkv.documents(ids)
        assert hash(qkv.documents(given)) == hash(qkv.documents(ids))
    assert qkv.padding(torch.tensor([2, 3])) == qkv.padding([2, 3])
    assert qkv.window(np.int32(3)) == qkv.window(3)


def test_masks_with_other_numbers_are_others() -> None:
    masks = [
        qkv.documents(),
        qkv.documents([0, 1]),
        qkv.documents([1, 0]),
        qkv.documents([[0, 1]]),
        qkv.padding([0, 1]),
    ]
    assert len(set(masks)) == len(masks)
    assert qkv.documents([0, 0, 1]) == qkv.documents(cu_seqlens=[0, 2, 3])
    assert qkv.documents([0, 0, 2]) == qkv.documents(cu_seqlens=[0, 2, 2, 3])


def test_numbers_stay_what_they_were() -> None:
    ids = np.array([0, 0, 1])
    mask = qkv.documents(ids)
    ids[:] = 7
    assert mask == qkv.documents([0, 0, 1])


def test_many_numbers_are_shortened_in_the_text() -> None:
    assert str(qkv.documents([0, 0, 1]) & qkv.padding([3])) == "documents([0, 0, 1]) & padding([3])"
    assert len(str(qkv.documents(np.arange(4000).reshape(2, 2000)))) < 80
    with pytest.raises(SpecError, match="should be a whole number"):
        parse_mask(str(qkv.documents([0, 0, 1])))


def test_a_mask_of_one_sequence_and_head() -> None:
    ids, lengths = [[0, 0, 1], [0, 1, 1]], [2, 3]
    mask = per_head([qkv.causal(), qkv.causal() & qkv.window(2) & qkv.documents(ids)]) & qkv.padding(lengths)
    assert mask.varies == (True, True)
    assert mask.alone(0, 0) == qkv.causal() & qkv.padding([2])
    assert mask.alone(1, 1) == qkv.causal() & qkv.window(2) & qkv.documents([0, 1, 1]) & qkv.padding([3])
    assert mask.alone(1, 1).varies == (False, False)
    plain = qkv.causal() & qkv.documents([0, 1, 1]) | qkv.prefix(3)
    assert plain.alone(4, 7) is plain
    assert (~qkv.padding(lengths)).shifted(1).alone(1, 0) == (~qkv.padding([3])).shifted(1)


def test_a_mask_is_joined_with_masks_only() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        qkv.causal() & 3  # type: ignore[operator]


BEHIND_THE_END = "falls from 4 to 2 at entry 2: it says where each document begins"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: qkv.window(0), "window is 0, and must be at least 1"),
        (lambda: qkv.window(2.5), "window is 2.5, and must be one whole number, for instance window\\(4\\)"),
        (lambda: qkv.prefix(True), "prefix is True, and must be one whole number"),
        (lambda: qkv.documents([0, 1], cu_seqlens=[0, 2]), "given ids and cu_seqlens"),
        (lambda: qkv.documents(cu_seqlens=[1, 2]), "cu_seqlens starts at 1, and must start at 0"),
        (lambda: qkv.documents(cu_seqlens=[0, 4, 2]), BEHIND_THE_END),
        (lambda: qkv.documents(cu_seqlens=[0]), "says of no token"),
        (lambda: qkv.documents(cu_seqlens=[[0, 2]]), "cu_seqlens has shape \\(1, 2\\)"),
        (lambda: qkv.documents([0.5, 1]), "documents ids has dtype float64, and must be whole numbers"),
        (lambda: qkv.documents([[0], [1, 2]]), "documents ids can't be read as whole numbers, \\(batch, token\\)"),
        (lambda: qkv.documents([]), "documents ids has shape \\(0,\\)"),
        (lambda: qkv.padding([3, -1]), "holds -1 for sequence 1, and must be 0 or more"),
        (lambda: qkv.padding(queries=True), "padding of queries needs lengths"),
        (lambda: qkv.padding(3), "padding lengths has shape \\(\\)"),
        (lambda: qkv.causal().dense(2, 2, query_offset="left"), "query_offset is 'left'; write 'bottom_right'"),
        (lambda: qkv.causal().dense(-2, 2), "query_len is -2, and must be 0 or more"),
        (lambda: per_head([]), "given no masks"),
        (lambda: per_head([qkv.causal(), 3]), "given 3 for head 1, and needs a mask"),
        (lambda: rule(3), "rule was given 3, and needs a function"),
        (lambda: rule(lambda query, key: query - key).dense(2, 2), "gave int64, and must give booleans"),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], says: str, unchecked: None) -> None:
    with pytest.raises(SpecError, match=says):
        make()


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        (qkv.documents([0, 1, 1]), "ids for 3 tokens, and there are 4 keys: axis token of ids \\(3,\\) must be 4 long"),
        (qkv.documents([[0] * 4] * 3), "ids for 3 sequences, and there are 2: axis batch of ids \\(3, 4\\)"),
        (qkv.padding([2, 5]), "sequence 1 has 5 tokens, and there are 4 keys"),
        (~qkv.padding([2, 4, 3]), "lengths of 3 sequences, and there are 2: axis batch of lengths \\(3,\\)"),
        (per_head([qkv.causal()] * 3) | qkv.prefix(1), "masks of 3 query heads, and there are 2: one for each"),
    ],
)
def test_numbers_of_another_size(mask: Mask, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        mask.must_fit(4, batch=2, num_heads=2)


def test_numbers_of_the_right_size() -> None:
    for mask in (qkv.documents([0, 1, 1, 2]), qkv.documents([[0] * 4]), qkv.padding([4]), qkv.padding([4, 0])):
        mask.must_fit(4, batch=2, num_heads=2)


def test_a_sequence_or_a_head_that_is_not_there() -> None:
    for mask in (qkv.documents([[0], [1]]), qkv.padding([1, 1]), per_head([qkv.causal(), qkv.window(1)])):
        with pytest.raises(ShapeError, match=r"and none for (sequence|head) 2"):
            mask.alone(2, 2)
