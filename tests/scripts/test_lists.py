"""Scripts of Python's own numbers and lists: judged by what they end with, and what is not followed is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.adapters.process import HostProcess
from qkv.adapters.texts import text_of
from qkv.report import Report, Verdict
from qkv.scripts import explained

ROWS = "inputs = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33]]\n"

ONE = f"""import math
{ROWS}query = inputs[1]
attn_scores = [sum(a * b for a, b in zip(row, query)) for row in inputs]
raised = [math.exp(score) for score in attn_scores]
attn_weights = [one / sum(raised) for one in raised]
context_vec = [0.0, 0.0, 0.0]
for weight, row in zip(attn_weights, inputs):
    for channel in range(3):
        context_vec[channel] += weight * row[channel]
"""

ALL = f"""import math
{ROWS}W_query = [[0.3, -1.2], [0.8, 0.1], [-0.4, 0.9]]
W_key = [[-0.7, 0.2], [0.5, 1.1], [0.6, -0.3]]
W_value = [[0.1, 0.4], [1.2, -0.5], [0.7, 0.8]]

def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]

def softmax(row):
    raised = [math.exp(one - max(row)) for one in row]
    return [one / sum(raised) for one in raised]

queries, keys, values = product(inputs, W_query), product(inputs, W_key), product(inputs, W_value)
attn_scores = product(queries, list(zip(*keys)))
attn_weights = [softmax([one / math.sqrt(2) for one in row]) for row in attn_scores]
context = product(attn_weights, values)
"""


def report_on(text: str, host: HostProcess, folder: Path) -> Report:
    (file := folder / "script.py").write_text(text)
    return explained(text_of(str(file)), host, "").report


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE, "context_vec was held against what an attention makes of inputs for token 1: it is equal"),
        (ALL, "context was held against what an attention makes of inputs, W_query, W_key, W_value: it is equal"),
        (f"import torch\n{ROWS.replace('= ', '= torch.tensor(')[:-1]})\n" + ONE.partition(ROWS)[2].replace(
            "math", "torch").replace("import torch\n", ""), "of inputs for token 1: it is equal"),
    ],
)  # fmt: skip
def test_what_lists_end_in_is_judged(text: str, said: str, host: HostProcess, tmp_path: Path) -> None:
    report = report_on(text, host, tmp_path)
    assert (report.verdict, report.assumptions[0].endswith(said)) == (Verdict.RIGHT, True)
    assert "attn_weights" in report.assumptions[1]
    assert "which are not followed step by step" in report.assumptions[1]


WRONG = [
    (ONE.replace("one / sum(raised)", "one"), "softmax-missing"),
    (ALL.replace("one / math.sqrt(2)", "one"), "scale-missing"),
    (ALL.replace("softmax([one / math.sqrt(2) for one in row]) for row in attn_scores", "one for one in zip(*[softmax("
     "[one / math.sqrt(2) for one in row]) for row in zip(*attn_scores)])"), "softmax-over-queries"),
    (ALL.replace("product(attn_weights, values)", "product(attn_weights, keys)"), "value-is-key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), WRONG, ids=[fault for _, fault in WRONG])
def test_a_slip_in_lists_is_named_without_a_line(text: str, fault: str, host: HostProcess, tmp_path: Path) -> None:
    report = report_on(text, host, tmp_path)
    assert (report.verdict, [one.id for one in report.faults], report.line) == (Verdict.WRONG, [fault], None)
    assert report.line_why == "only the numbers at the end were compared"


def test_what_is_no_attention_names_the_lists_that_were_not_followed(host: HostProcess, tmp_path: Path) -> None:
    report = report_on(ONE.replace("weight * row", "weight * 7 + row"), host, tmp_path)
    assert report.verdict is Verdict.UNDECIDED
    assert "numbers and lists (attn_scores, attn_weights, context_vec), which are not followed" in report.why
