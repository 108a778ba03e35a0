from __future__ import annotations

import numpy as np
import pytest

from qkv.model import induction, previous_token

TOKENS = [7, 3, 5, 7, 3, 9]
"""What came after the earlier 7 is at place 1, after the earlier 3 at place 2."""


def looking_at(*keys: int) -> np.ndarray:
    """Weights of a head whose query i gives everything to key `keys[i]`."""
    return np.eye(len(keys))[list(keys)]


def test_a_head_that_looks_one_back_has_a_previous_token_score_of_one() -> None:
    assert previous_token(looking_at(0, 0, 1, 2, 3, 4)) == 1.0
    assert previous_token(looking_at(0, 1, 2, 3, 4, 5)) == 0.0


def test_only_a_look_at_what_came_after_the_same_token_counts_as_induction() -> None:
    assert induction(looking_at(0, 0, 0, 1, 2, 0), TOKENS) == 1.0
    assert induction(looking_at(0, 0, 0, 1, 1, 0), TOKENS) == 0.5
    assert induction(looking_at(0, 0, 0, 0, 1, 0), TOKENS) == 0.0, "the same token itself, and not what came after it"


def test_all_that_came_after_any_earlier_same_token_counts() -> None:
    weights = np.zeros((5, 5))
    weights[2, 1], weights[4] = 1.0, [0.1, 0.3, 0.1, 0.4, 0.1]
    assert induction(weights, [4, 6, 4, 8, 4]) == pytest.approx((1.0 + 0.3 + 0.4) / 2)


def test_the_score_of_a_token_right_behind_its_like_is_its_look_at_itself() -> None:
    assert induction(looking_at(0, 1), [4, 4]) == 1.0


def test_each_head_has_a_number_of_its_own() -> None:
    heads = np.stack([[looking_at(0, 0, 1), looking_at(0, 1, 2)]] * 3)
    assert previous_token(heads).tolist() == [[1.0, 0.0]] * 3
    assert np.isnan(induction(heads, [1, 2, 3])).all(), "no token came twice"
