"""Plain scripts: right ones in many ways of writing, and the slips that learners make, each on its line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from qkv.adapters.opening import Conventions
from qkv.adapters.process import HostProcess
from qkv.adapters.texts import script_of, text_of
from qkv.debugger import judge_script
from qkv.repair import explained_and_mended
from qkv.report import Report, Verdict
from qkv.report.terminal import as_text
from qkv.request import Request
from qkv.scripts import explained
from qkv.scripts.slips import slip_of
from qkv.shaper import sheet_of
from qkv.viewer import Wanted, captured
from thinned import thinned

HERE = Path(__file__).parent
RIGHT = sorted((HERE / "right").glob("*.py"))
WRONG = sorted((HERE / "wrong").glob("*.py"))


def report_on(path: Path, host: HostProcess) -> Report:
    return explained(text_of(path.name), host, "").report


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_script_is_right(path: Path, host: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    report = report_on(path, host)
    assert (report.verdict, [fault.id for fault in report.faults]) == (Verdict.RIGHT, [])
    assert script_of(path.name) is not None


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_slip_is_named_on_its_line(
    path: Path, host: HostProcess, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.chdir(path.parent)
    said = re.match(r"# (\S+) in line (\d+)", path.read_text(encoding="utf-8"))
    assert said is not None
    report = report_on(path, host)
    assert report.line is not None
    assert ([fault.id for fault in report.faults], report.line.line) == ([said[1]], int(said[2]))
    assert report.verdict is Verdict.WRONG
    assert as_text(replace(report, printed="")) == snapshot  # warnings name the file by where it lies


@pytest.mark.parametrize(
    ("given", "said", "idle"),
    [
        ({}, {}, ""),
        ({"num_heads": 4}, {}, "--heads has no effect: this is a script"),
        ({"num_kv_heads": 2, "causal": True}, {"layout": "BTE"}, "--kv-heads, --causal, --layout have no effect"),
    ],
)
def test_what_is_said_of_a_script_to_no_effect_is_named(
    given: dict[str, Any], said: dict[str, Any], idle: str, host: HostProcess
) -> None:
    request = Request(str(RIGHT[0]), given, conventions=Conventions(**said))
    assumptions = judge_script(text_of(str(RIGHT[0])), request, host, "check").report.assumptions
    assert [one for one in assumptions if "no effect" in one] == [one for one in assumptions[:1] if idle]
    assert assumptions[0].startswith(idle)


@pytest.mark.slow
def test_what_has_no_effect_is_named_by_other_commands_too() -> None:
    script = str(HERE / "right" / "one_token.py")
    request = Request(script, {"causal": True})
    idle = "have no effect: this is a script"
    assert f"--causal, --length {idle}" in " ".join(captured(request, Wanted(length=9)).notes)
    assert f"--causal, --query-len {idle}" in " ".join(sheet_of(request, {"tokens": 5}).warnings)
    assert not any(idle in note for note in captured(Request(script), Wanted()).notes)


NOT_MENDED = {"stale_weights", "fused_view_of_tokens"}
"""One is wrong in its scale too once its weights follow, one moves axes twice."""


@pytest.mark.parametrize("path", thinned(WRONG, ids=lambda path: path.stem))
def test_a_slip_is_mended_by_a_patch(path: Path, host: HostProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    seconds = 1.0 if path.stem in NOT_MENDED else 10.0
    patch = explained_and_mended(text_of(path.name), host, "", seconds).report.patch
    if path.stem in NOT_MENDED:
        assert patch is None
        return
    assert patch is not None
    assert patch.original == path.read_bytes()
    again = explained(text_of(path.name, patch.edited), host, "").report
    assert (again.verdict, [fault.id for fault in again.faults]) == (Verdict.RIGHT, [])
    before, after = patch.original.splitlines(), patch.edited.splitlines()
    assert len([line for line in before if line not in after]) <= 1, patch.diff
    assert path.stem not in EXACTLY or patch.after.strip() == EXACTLY[path.stem]


EXACTLY = {
    "causal_by_name": "mask = torch.triu(torch.ones_like(attn_scores / keys.shape[-1] ** 0.5), diagonal=1).bool()\n"
    "attn_weights = torch.softmax((attn_scores / keys.shape[-1] ** 0.5).masked_fill(mask, -torch.inf), dim=-1)",
    "diagonal_0": "mask = torch.triu(torch.ones(6, 6), diagonal=1)",
    "dropout_on": "dropout.eval()",
    "inputs_changed": "changed_inputs = inputs / (inputs.norm(dim=-1, keepdim=True).max())",
    "karpathy_dim1": "wei = F.softmax(wei, dim=-1)",
    "loop_variable_left": "attn_scores_2 = inputs @ x_2",
    "mask_times": "masked = attn_scores.masked_fill(mask.bool(), -torch.inf)",
    "no_softmax_at_all": "attn_weights = torch.softmax(attn_scores, dim=-1)\nall_context_vecs = attn_weights @ inputs",
    "numpy_axis_0": "A = softmax(S, axis=-1)",
    "sides_swapped_at_the_call": "s = scores_of(q, k) / 5 ** 0.5",
    "softmax_twice_by_a_helper": "p = softmax(att)",
    "rows_hidden_the_wrong_way": "scores[i + 1 :] = -np.inf",
    "stale_loop": "scores = inputs @ inputs[i]",
    "values_from_keys": "values = inputs @ W_value",
    "values_of_another_head": "outs.append(prob @ V[h])",
}
"""What stands there afterwards, of some."""


def test_each_slip_has_words_of_its_own() -> None:
    for path in WRONG:
        said = re.match(r"# (\S+) in line", path.read_text(encoding="utf-8"))
        assert said is not None
        slip = slip_of(said[1])
        assert slip.title
        assert slip.explanation
        assert slip.stage
