"""Writes reports as pages, for the browser tests to open, into a folder: ``python reports.py FOLDER NAME...``."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from qkv.debugger import judge
from qkv.explainer import explain
from qkv.identifier import name_it
from qkv.report import Report
from qkv.report.html import anatomy_to_html, identity_to_html, to_html
from qkv.request import Request

RIGHT = """\
import numpy as np


def causal_attention(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    queries, keys = scores.shape[-2:]
    hidden = np.triu(np.ones((queries, keys), bool), 1 + keys - queries)
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""
SCRIPT = """\
import numpy as np

inputs = np.array([[0.43, 0.15], [0.55, 0.87], [0.57, 0.85]])
attn_scores = inputs @ inputs.T
attn_weights = np.exp(attn_scores) / np.exp(attn_scores).sum(axis=0)
context = attn_weights @ inputs
"""
FILES = {
    "right.py": RIGHT,
    "wrong.py": RIGHT.replace("1 + keys", "2 + keys"),
    "undecided.py": "def f(q, k, v):\n    return 1.3 * v[..., :1] * q.sum() + 0 * k.sum()\n",
    "failed.py": "def attention(query, key, value):\n"
    "    raise ValueError('<script>alert(1)</script> \u202e \\x1b[2J')\n",
    "script.py": SCRIPT,
    "box.py": RIGHT.replace("np.sqrt(query.shape[-1])", "7").replace("1 + keys - queries", "1"),
}


def judged(*files: str) -> str:
    return to_html([report_on(file) for file in files])


def report_on(file: str) -> Report:
    return judge(Request(file, repeat=f"qkv check {file}", patch_seconds=5))


PAGES: dict[str, Callable[[], str]] = {
    "right": lambda: judged("right.py"),
    "wrong": lambda: judged("wrong.py"),
    "undecided": lambda: judged("undecided.py"),
    "failed": lambda: judged("failed.py"),
    "several": lambda: judged("wrong.py", "right.py", "failed.py"),
    "explain": lambda: anatomy_to_html(explain(Request("script.py", repeat="qkv explain script.py"))),
    "identify": lambda: identity_to_html(name_it(Request("box.py:causal_attention", repeat="qkv identify box.py"))),
}

if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    os.chdir(folder)
    for file, code in FILES.items():
        Path(file).write_text(code, encoding="utf-8")
    for name in names:
        Path(f"{name}.html").write_text(PAGES[name](), encoding="utf-8")
