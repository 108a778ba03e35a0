"""One line changed in the attention of a model family: the line that is blamed is that one.

The change is made in a copy of the family's own module. Where something is left out, a report names two lines, and the
changed one lies between them; where one of two lines is wrong, it is one of them.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

sys.path.append(str(Path(__file__).parent))

from calls import call
from families import FAMILIES, Family
from plants import Plant

Judge = Callable[..., Any]


@pytest.fixture(scope="module")
def judging() -> Iterator[Judge]:
    """Calls a function of judging.py in a process of its own, which is the same for all tests."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        yield lambda name, *args: process.submit(call, name, *args).result(timeout=120)


def planted() -> list[Any]:
    """Every plant in its family; the first of a family is tried in any run, the others where slow tests are."""
    cases = []
    for family in FAMILIES:
        for number, plant in enumerate(family.plants):
            case = f"{family.name}-{plant.fault}-{plant.where}-{number}"
            marks = [pytest.mark.slow] if number else []
            cases.append(pytest.param(family, plant, id=case, marks=marks))
    return cases


def judged(judging: Judge, family: Family, file: Path) -> Any:
    target = f"{file}:Candidate"
    return judging("by_fields", target, family.given) if family.given else judging("by_config", target)


def test_there_are_twenty_families_and_three_faults_in_each() -> None:
    assert len({family.name for family in FAMILIES}) >= 20
    assert min(len(family.plants) for family in FAMILIES) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param(family, id=family.name) for family in FAMILIES])
def test_a_family_as_it_is_is_right(family: Family, judging: Judge, tmp_path: Path) -> None:
    family.write(tmp_path / f"{family.name}.py", None)
    judgement = judged(judging, family, tmp_path / f"{family.name}.py")
    assert judgement.verdict == "right", judgement


@pytest.mark.parametrize(("family", "plant"), planted())
def test_the_changed_line_is_blamed(family: Family, plant: Plant, judging: Judge, tmp_path: Path) -> None:
    changed = family.write(tmp_path / f"{family.name}.py", plant)
    judgement = judged(judging, family, tmp_path / f"{family.name}.py")
    assert judgement.verdict == "wrong", judgement
    line, until = judgement.line, judgement.until  # between the two something is left out, or one of them is wrong
    assert line <= changed <= until or changed in (line, until), (changed, judgement)
