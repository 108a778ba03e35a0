"""Shape errors of learners' code, and the words they are explained in."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from qkv.adapters.tracebacks import raised
from qkv.errors import CandidateError
from qkv.shapes.axes import Axes

SIZES = {"batch": 11, "tokens": 7, "heads": 5, "head_dim": 34, "embed_dim": 46, "context_length": 29}


def failure(code: str, axes: Mapping[str, int] = SIZES, **values: Any) -> CandidateError:
    """What is said when this code raises, in a file of its own."""
    name = "/learner/attention.py"
    source = f"def attend({', '.join(values)}):\n    # line 2\n    {code}\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"torch": torch, "np": np, "F": torch.nn.functional}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - our own text
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the framework raises
        space["attend"](**values)
    return raised("calling attend", caught.value, name, axes)


def array(kind: str, *sizes: int) -> Any:
    return torch.zeros(sizes) if kind == "torch" else np.zeros(sizes)


HEADS, SCORES, FLAT = (11, 5, 7, 34), (11, 5, 7, 7), (11, 7, 170)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize(
    ("code", "shapes", "says"),
    [
        (
            "attn_scores = queries @ keys",
            {"queries": HEADS, "keys": HEADS},
            ["attention.py:3: queries @ keys", "queries (batch heads tokens head_dim) = (11 x 5 x 7 x 34)",
             "the last axis of the first, head_dim = 34, must be as long as the second-last axis of the second, "
             "tokens = 7", "Did you forget keys.transpose(-2, -1)?"],
        ),
        (
            "context = weights @ values",
            {"weights": SCORES, "values": (11, 7, 5, 34)},
            ["tokens = 7", "heads = 5", "Did you forget values.transpose(1, 2)?"],
        ),
        (
            "context = weights @ values",
            {"weights": SCORES, "values": (11, 5, 34, 7)},
            ["head_dim = 34", "Did you forget values.transpose(-2, -1)?"],
        ),
        (
            "context = weights @ values",
            {"weights": SCORES, "values": FLAT},
            ["all axes before the last two must be the same", "Is values still to be split into heads"],
        ),
        (
            "scores = scores + mask",
            {"scores": SCORES, "mask": (29, 29)},
            ["tokens = 7 in the first and context_length = 29 in the second", "Cut it: mask[:tokens, :tokens]"],
        ),
        (
            "scores += mask",
            {"scores": SCORES, "mask": (29, 29)},
            ["scores += mask", "Cut it: mask[:tokens, :tokens]"],
        ),
        (
            "scores = (queries @ keys.swapaxes(-2, -1)) * mask",
            {"queries": HEADS, "keys": HEADS, "mask": (7, 34)},
            ["queries @ keys.swapaxes(-2, -1) (batch heads tokens tokens)", "the last axis is tokens = 7"],
        ),
        (
            "keys = keys.reshape(11, 7, 5, 33)",
            {"keys": FLAT},
            ["keys (batch tokens heads*head_dim) = (11 x 7 x 170) has 13090 numbers", "takes 12705",
             "5 of 170 channels are left over"],
        ),
        (
            "keys = keys.reshape(11, 7, -1, 33)",
            {"keys": FLAT},
            ["can't be shared out as (batch tokens ... ", "13090 is no multiple of 2541"],
        ),
        (
            "b, t, c = x.shape",
            {"x": (7, 46)},
            ["x (tokens embed_dim) = (7 x 46) has 2 axes, and 'b, t, c' takes 3"],
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_in_either_framework(kind: str, code: str, shapes: dict[str, Any], says: list[str]) -> None:
    error = failure(code, **{name: array(kind, *sizes) for name, sizes in shapes.items()})
    for part in says:
        assert part in error.hint


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("keys = keys.transpose(2, 3)", ["has 3 axes, 0 to 2, so there is no axis 3", "still to be split into heads"]),
        ("keys = keys.permute(0, 2, 1, 3)", ["there is no axis 3"]),
        ("keys = keys.transpose(0, 1).view(7, 11 * 170)", ["doesn't lie in memory", "Write .reshape"]),
        ("keys = project(x)", ["x (batch tokens heads*head_dim)", "and project takes embed_dim = 46 channels"]),
        ("scores.masked_fill_(mask, -torch.inf)", ["Cut it: mask[:tokens, :tokens]"]),
        ("scores = scores.masked_fill(mask, -torch.inf)", ["Cut it: mask[:tokens, :tokens]"]),
        ("scores = torch.where(mask, scores, -torch.inf)", ["context_length = 29 in the first and tokens = 7 in"]),
        ("scores = torch.matmul(heads, heads)", ["Did you forget heads.transpose(-2, -1)?"]),
        (
            "scores = torch.einsum('bhid,bhjd->bhij', keys, heads)",
            ["keys (batch tokens heads*head_dim)", "heads (batch"],
        ),
    ],
)
def test_what_torch_alone_has(code: str, says: list[str]) -> None:
    values = {
        "keys": torch.zeros(FLAT), "x": torch.zeros(FLAT), "project": torch.nn.Linear(46, 170),
        "scores": torch.zeros(SCORES), "mask": torch.zeros(29, 29, dtype=torch.bool), "heads": torch.zeros(HEADS),
    }  # fmt: skip
    error = failure(code, **values)
    for part in says:
        assert part in error.hint


def test_without_names_the_numbers_stand_alone() -> None:
    error = failure("scores = q @ k", {}, q=np.zeros((2, 7, 8)), k=np.zeros((2, 7, 8)))
    assert "q (2 x 7 x 8) @ k (2 x 7 x 8)" in error.hint
    assert "the last axis of the first, 8, must be as long as the second-last axis of the second, 7" in error.hint


def test_an_operand_that_would_have_to_be_made_again_is_left_out() -> None:
    calls: list[int] = []

    def project(x: Any) -> Any:
        calls.append(1)
        return x

    failure("scores = project(x) @ x", x=np.zeros((7, 46)), project=project)
    assert len(calls) == 1


@pytest.mark.parametrize("code", ["raise ValueError('7 is odd')", "scores = q.missing", "scores = {}['q']", "1 / 0"])
def test_other_errors_are_not_taken_for_shapes(code: str) -> None:
    assert failure(code, q=np.zeros(3)).hint == ""


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((11, 7, 46), "(batch tokens embed_dim)"),
        ((11, 7, 510), "(batch tokens heads*head_dim)"),
        ((11, 15, 7, 7), "(batch heads tokens tokens)"),
        ((165, 7, 34), "(batch*heads tokens head_dim)"),
        ((11, 7, 850), "(batch tokens (heads+2*kv_heads)*head_dim)"),
        ((1530, 46), "(3*heads*head_dim embed_dim)"),
        ((11, 5, 3, 7, 17), "(batch kv_heads heads/kv_heads tokens head_dim/2)"),
        ((1, 1, 7, 97), "(1 1 tokens 97)"),
    ],
)
def test_a_number_is_factored_back_into_names(sizes: tuple[int, ...], names: str) -> None:
    axes = Axes({**SIZES, "heads": 15, "kv_heads": 5})
    assert axes.shape(sizes).names == names


def test_two_axes_of_one_size_are_said_to_be_equal() -> None:
    assert Axes({"heads": 4, "tokens": 4, "head_dim": 8}).equal == {"tokens": "heads"}
