"""Advice in the words of a framework: the NumPy that is told computes what the torch does."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
import torch

from qkv.debugger import check
from qkv.faults import CATALOGUE
from qkv.faults.spelling import spelled

RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    **{name: RNG.normal(size=(2, 4, 5, 8)) for name in ("query", "key", "value")},
    "attn_scores": RNG.normal(size=(2, 4, 5, 5)), "attn_weights": RNG.random(size=(2, 4, 5, 5)),
    "bias": RNG.normal(size=(4, 5, 5)), "sinks": RNG.normal(size=4), "may_attend": np.tri(5, dtype=bool),
    "hidden": ~np.tri(5, dtype=bool), "slopes": RNG.random(size=4), "query_pos": np.arange(5)[:, None],
    "key_pos": np.arange(5)[None], "is_token": np.arange(5) < np.array([[3], [5]]), "lengths": np.array([3, 5]),
    "i": np.arange(5)[:, None], "j": np.arange(5)[None],
}  # fmt: skip
NUMBERS = {
    "head_dim": 8, "num_heads": 4, "num_kv_heads": 2, "key_len": 5, "query_len": 5, "length": 5, "scale": 0.3,
    "softcap": 2.0, "window": 3, "batch": 2, "causal": True, "prefix_len": 2, "cached_len": 3,
}  # fmt: skip


def softmax(scores: Any, axis: int) -> Any:
    shares = np.exp(scores - scores.max(axis, keepdims=True))
    return shares / shares.sum(axis, keepdims=True)


def done(advice: str, **library: Any) -> dict[str, Any]:
    space = {**NUMBERS, **library}
    exec(advice, space)  # noqa: S102 - the catalogue's own lines
    return {name: np.asarray(space[name]) for name in ("attn_scores", "attn_weights", "may_attend", "hidden", "key")}


RUN = [
    "causal-missing", "causal-strict", "causal-corner", "scale-missing", "softcap-missing", "softcap-after-mask",
    "alibi-sign", "bias-scaled", "bias-after-softmax", "padding-missing", "sink-missing", "kv-heads-tiled",
    "mask-after-softmax", "empty-row", "window-direction", "padding-off-by-one",
]  # fmt: skip


@pytest.mark.parametrize("name", RUN)
def test_what_is_told_to_numpy_is_what_is_told_to_torch(name: str) -> None:
    advice = CATALOGUE[name].repair
    theirs = done(advice, torch=torch, **{key: torch.from_numpy(array) for key, array in ARRAYS.items()})
    own = spelled(advice, "numpy")
    assert "torch" not in own
    for array, told in done(own, np=np, softmax=softmax, **ARRAYS).items():
        np.testing.assert_allclose(told, theirs[array], rtol=1e-6, err_msg=array)


def test_products_of_heads_that_stand_behind_tokens_are_sums_over_channels() -> None:
    told = spelled(CATALOGUE["scale-missing"].repair, "numpy", "BTHD")
    turned = {**ARRAYS, "query": ARRAYS["query"].swapaxes(1, 2), "key": ARRAYS["key"].swapaxes(1, 2)}
    right = ARRAYS["query"] @ ARRAYS["key"].swapaxes(-2, -1) / 8**0.5
    np.testing.assert_allclose(done(told, np=np, **turned)["attn_scores"], right)
    assert "axis=2" in spelled(CATALOGUE["kv-heads-tiled"].repair, "numpy", "BTHD")
    assert "dim=1" in spelled(CATALOGUE["kv-heads-tiled"].repair, "torch", "THD")


def test_torch_in_the_catalogues_order_stays_as_it_is() -> None:
    assert all(spelled(fault.repair, "torch", "BHTD") == fault.repair for fault in CATALOGUE.values())


def test_all_that_is_told_to_numpy_is_python_wherever_the_advice_is() -> None:
    for fault in CATALOGUE.values():
        try:
            ast.parse(fault.repair)
        except SyntaxError:
            continue
        ast.parse(spelled(fault.repair, "numpy", "BTHD"))


def test_a_report_tells_it_in_the_candidates_own_words() -> None:
    def unscaled(q: Any, k: Any, v: Any) -> Any:
        """Arrays are (batch, token, head, dim)."""
        weights = softmax(np.einsum("bthd,bshd->bhts", q, k), axis=-1)
        return np.einsum("bhts,bshd->bthd", weights, v)

    (fault,) = check(unscaled, {"causal": False}).faults
    assert fault.id == "scale-missing"
    assert fault.repair == "attn_scores = np.einsum('bthd,bshd->bhts', query, key) / head_dim ** 0.5"
