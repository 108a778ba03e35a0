"""Runs the examples that stand on their own, and holds them to what they say they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def recalled() -> str:
    """What examples/recall.py prints, run as a reader would."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "recall.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loss_of_recall_falls_from_a_guess_to_near_zero(recalled: str) -> None:
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)$", recalled, re.MULTILINE)]
    assert len(losses) == 11
    assert losses[0] > 2.0, "ln 10 = 2.3 is what a guess costs"
    assert losses[-1] < 0.02


def test_the_weights_of_recall_found_the_token(recalled: str) -> None:
    last = re.search(r"^on 500 new sequences: loss (\S+), weight on the token to recall (\S+)$", recalled, re.MULTILINE)
    assert last is not None
    assert float(last[1]) < 0.02
    assert float(last[2]) > 0.9


def test_the_picture_of_recall_points_at_the_same_digit_the_letter_stood_before(recalled: str) -> None:
    asked = re.search(r"^after the '(.)' of token 12", recalled, re.MULTILINE)
    rows = re.findall(r"^  (\S)  (\d\.\d\d)(.*)$", recalled, re.MULTILINE)
    assert asked is not None
    assert len(rows) == 13
    marked = [place for place, (_, _, rest) in enumerate(rows) if rest.endswith("<- the answer")]
    assert marked == [[token for token, _, _ in rows].index(asked[1]) + 1]
    assert max(range(13), key=lambda place: float(rows[place][1])) == marked[0]
