"""One line changed in the attention of a model family: the line that is blamed is that one.

The change is made in a copy of the family's own module. Where something is left out, a report names two lines, and the
changed one lies between them.
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

OPEN: dict[str, str] = {
    "llama-value-is-key-LlamaAttention-15": "an array handed over for another is blamed where it was made",
    "roberta-key-is-query-RobertaSelfAttention-4": "an array handed over for another is blamed where it is used",
    "gemma2-softcap-missing-eager_attention_forward-3": "steps before and behind it cancel, and the gap begins late",
    "gemma2-softcap-other-constant-Gemma2Attention-4": "the number of a softcap is not followed to where it is set",
    "gpt2-scale-by-model-width-GPT2Attention-3": "a number that is set on several lines is not followed",
    "gpt2-output-projection-missing-GPT2Attention-5": "the gap begins behind the dropout that follows it",
    "gpt_neox-rope-partial-ignored-GPTNeoXRotaryEmbedding-4": "the number of channels that are turned is not followed",
    "gpt_oss-yarn-scale-GptOssRotaryEmbedding-5": "only cos lacks the factor, which no fault of the catalogue does",
    "phi3-rope-one-sided-apply_rotary_pos_emb-3": "the gap ends where the key is handed on, before it",
    "gptj-rope-one-sided-GPTJAttention-3": "the gap begins where the parts are joined",
    "opt-scale-missing-OPTAttention-2": "the scale may be put elsewhere: the last place for it is named",
    "whisper-scale-missing-WhisperAttention-1": "the scale may be put elsewhere: the last place for it is named",
    "opt-scale-twice-OPTAttention-4": "of two factors the one that is handed over is blamed where it is used",
    "bloom-alibi-sign-build_alibi_tensor-2": "a sign inside of the bias is blamed where the bias is added",
    "mpt-alibi-slopes-build_mpt_alibi_tensor-2": "slopes in another order are not recognised",
}
"""What qkv does not do yet, and why. A case that starts to pass fails here, and its line goes."""


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
            if case in OPEN:
                marks.append(pytest.mark.xfail(reason=OPEN[case]))
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
    first, last = sorted((judgement.line, judgement.until))
    assert first <= changed <= last, (changed, judgement)
