"""What documentation says that True means in a mask."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.adapters.messages import Facts
from qkv.adapters.polarity import polarity_said
from qkv.debugger import check
from qkv.report import Verdict

SAID = [
    ("m: (B, S), True where the memory is padding.", "hide"),
    ("m (B, 1, T, S): True = masked", "hide"),
    ("m: boolean, True means the key may not be attended to", "hide"),
    ("m: True may attend", "keep"),
    ("m: 1 for real tokens, 0 for padding", "keep"),
    ("m: False where padded", "keep"),
    ("m: True where not padding", "keep"),
    ("m: (1, T)", None),
    ("m is 0 or -inf (padding)", None),
    ("True where padded, in another argument than m", None),
]


@pytest.mark.parametrize(("doc", "meaning"), SAID, ids=[doc for doc, _ in SAID])
def test_the_sentence_that_names_a_mask_says_what_true_means(doc: str, meaning: str | None) -> None:
    facts = Facts("attention", "function", "numpy", is_module=False, class_name="", doc=doc)
    assert polarity_said(facts, "m") == meaning


TEXT = '''import numpy as np


def attention(q, k, v, key_pad_mask=None, extra_mask=None):
    """key_pad_mask: (B, S), True where padded. Arrays are (B, H, T, D)."""
    scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if key_pad_mask is not None:
        scores = np.where({keep}key_pad_mask[:, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
'''


@pytest.mark.parametrize(("keep", "verdict"), [("~", Verdict.RIGHT), ("", Verdict.WRONG)])
def test_a_documented_polarity_is_held_to(tmp_path: Path, keep: str, verdict: Verdict) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(TEXT.format(keep=keep))
    report = check(str(file))
    assert report.verdict is verdict
    assert "in its padding argument 'key_pad_mask', True is hidden" in report.assumptions
    never = "its argument 'extra_mask' was never given: nothing says what it is (--call gives it)"
    assert never in report.assumptions


def test_the_meaning_of_a_mask_that_there_is_none_of_is_refused() -> None:
    def attention(q, k, v):  # type: ignore[no-untyped-def]
        return q

    assert "--mask-argument" in check(attention, mask_argument="keep").why
