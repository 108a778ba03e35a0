"""Weights in plain scripts, found in their variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.captures.black_box import dense
from qkv.errors import CandidateError

SCRIPT = """\
import numpy as np

inputs = np.random.default_rng(0).normal(size=(5, 3))
attn_scores = inputs @ inputs.T
attn_scores = np.where(np.tril(np.ones((5, 5))), attn_scores, -np.inf)
attn_weights = np.exp(attn_scores) / np.exp(attn_scores).sum(-1, keepdims=True)
context = attn_weights @ inputs
"""


def test_the_weights_of_a_script_are_shown_under_their_name(tmp_path: Path) -> None:
    (tmp_path / "article.py").write_text(SCRIPT)
    view = qkv.show(tmp_path / "article.py", tokens=list("abcde"))
    inputs = np.random.default_rng(0).normal(size=(5, 3))
    for query in range(5):
        shares = np.exp(inputs[query] @ inputs[: query + 1].T)
        np.testing.assert_allclose(dense(view.heads)[0, query, : query + 1], shares / shares.sum())
    assert [layer.name for layer in view.layers] == ["attn_weights"]
    assert view.title == "attention weights in article.py"
    assert not view.heads[0].rows(slice(0, 5)).may_attend[np.triu_indices(5, 1)].any()


def test_weights_that_are_normalised_the_wrong_way_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "article.py").write_text(SCRIPT.replace("sum(-1,", "sum(0,"))
    np.testing.assert_allclose(dense(qkv.show(tmp_path / "article.py").heads)[0].sum(0), 1)


def test_a_script_without_attention_is_pointed_to_what_explains_it(tmp_path: Path) -> None:
    (tmp_path / "article.py").write_text(SCRIPT.replace("context = attn_weights @ inputs", "1 / 0"))
    with pytest.raises(CandidateError, match="before it stopped at line 7: ZeroDivisionError") as caught:
        qkv.show(tmp_path / "article.py")
    assert "qkv explain" in caught.value.hint
