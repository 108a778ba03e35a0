"""Arguments for a mask that do nothing, in candidates that have a mask of their own."""

from pathlib import Path

import pytest

import qkv

CANDIDATE = '''import torch


def half_attention(q, k, v, {argument}=None):
    """Causal attention, (B, H, T, D)."""
    s = q @ k.transpose(2, 3) / q.size(3) ** 0.5
    hide = torch.ones(q.size(2), q.size(2), dtype=torch.bool).triu(1)
    s = {masked}
    return torch.softmax(s, -1) @ v
'''
ZEROED, HIDDEN = "s * (~hide)", 's.masked_fill(hide, float("-inf"))'


def judged(folder: Path, argument: str, masked: str) -> qkv.Report:
    """The report on the candidate with this argument and this line."""
    file = folder / "half.py"
    file.write_text(CANDIDATE.format(argument=argument, masked=masked))
    return qkv.check(str(file))


@pytest.mark.parametrize("argument", ["mask", "causal_mask"])
def test_an_idle_mask_argument_hides_no_fault_of_the_own_mask(tmp_path: Path, argument: str) -> None:
    report = judged(tmp_path, argument, ZEROED)
    assert report.verdict is qkv.Verdict.WRONG
    assert [fault.id for fault in report.faults] == ["masked-scores-zeroed"]
    assert f"its argument {argument!r} changes nothing, and was left out" in report.assumptions


def test_right_with_an_idle_mask_argument_is_said(tmp_path: Path) -> None:
    report = judged(tmp_path, "mask", HIDDEN)
    assert report.verdict is qkv.Verdict.RIGHT
    assert "its argument 'mask' changes nothing, and was left out" in report.assumptions


def test_an_argument_that_is_used_is_not_idle(tmp_path: Path) -> None:
    report = judged(tmp_path, "mask", HIDDEN + ' if mask is None else s.masked_fill(~mask, float("-inf"))')
    assert report.verdict is qkv.Verdict.RIGHT
    assert "in its mask argument 'mask', True may attend" in report.assumptions


def test_a_mask_that_can_only_be_given_and_is_ignored_is_a_fault() -> None:
    def attention(q, k, v, mask=None):  # type: ignore[no-untyped-def]
        return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v

    assert qkv.check(attention).verdict is qkv.Verdict.WRONG
