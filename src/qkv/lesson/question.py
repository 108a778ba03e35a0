"""A question of the lesson: its answer, and the slips that lead to known wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from qkv.faults import CATALOGUE
from qkv.lesson.numbers import Attention
from qkv.oracle import Run

Answer = float | tuple[int, ...] | int


@dataclass(frozen=True)
class Slip:
    """A wrong answer, and what leads to it."""

    answer: Answer
    hint: str


@dataclass(frozen=True)
class Question:
    """What a step asks before it shows the answer.

    Attributes:
        kind: ``number`` and ``shape`` are typed; of ``choice`` the answer is a place among the choices.
        answer: a number, a shape, or the place of the right choice.
        slips: wrong answers that say what went wrong.
        otherwise: the hint for any other wrong answer.
        tolerance: how far off a number may be and still be right.
        choices: the sentences to choose from.
        at: what the question is about, for its wording: ``key``, ``channel``.
    """

    kind: Literal["number", "shape", "choice"]
    answer: Answer
    slips: Sequence[Slip]
    otherwise: str
    tolerance: float = 0.0
    choices: Sequence[str] = ()
    at: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What the page checks answers by; see ``WalkQuestion`` in ``viewer/src/payload.ts``."""
        return {
            "kind": self.kind,
            "answer": self.answer,
            "tolerance": self.tolerance,
            "slips": [asdict(slip) for slip in self.slips],
            "otherwise": self.otherwise,
        }


def number(answer: float, slips: Iterable[Slip], otherwise: str, **at: int) -> Question:
    """A question for a number. Two decimals are enough; slips that would pass for right are left out."""
    tolerance = max(0.0051, abs(answer) / 200)
    return Question("number", float(answer), _told(answer, tolerance, slips), otherwise, tolerance, at=at)


def _told(answer: float, tolerance: float, slips: Iterable[Slip]) -> list[Slip]:
    return [slip for slip in slips if isinstance(slip.answer, float) and abs(slip.answer - answer) > 2 * tolerance]


def shape(answer: tuple[int, ...], slips: Iterable[Slip], otherwise: str) -> Question:
    """A question for a shape; slips of equal shape are left out."""
    return Question("shape", answer, [slip for slip in slips if slip.answer != answer], otherwise)


def choice(answer: int, choices: Sequence[tuple[str, str]]) -> Question:
    """A question with a choice of sentences, each with the hint that it gets if it's wrong."""
    slips = [Slip(place, hint) for place, (_, hint) in enumerate(choices) if place != answer]
    return Question("choice", answer, slips, "", choices=[sentence for sentence, _ in choices])


def slips_of(attention: Attention, read: Callable[[Run], float], *faults: str) -> list[Slip]:
    """The answers that faults of the catalogue lead to: the oracle with the fault made, read in the same place."""
    titles: dict[float, list[str]] = {}
    for fault in faults:
        answer = round(float(read(attention.under(fault))), 9)
        titles.setdefault(answer, []).append(f"{CATALOGUE[fault].title} ({fault})")
    return [
        Slip(answer, f"This number comes out when {', or when '.join(several)}.") for answer, several in titles.items()
    ]


def telling(places: Iterable[int], ask: Callable[[int], Question], of: str) -> Question:
    """The question for a number about that place for which most slips give answers of their own.

    Besides its own slips it knows the answers that belong to the other places, and the right one with the other sign.

    Args:
        places: what may be asked about, counted from 0.
        ask: the question about one of them.
        of: what its answer is: ``the weight of key``.
    """
    questions = {place: ask(place) for place in places}
    asked = max(questions, key=lambda place: len({slip.answer for slip in questions[place].slips}))
    question = questions[asked]
    others = [
        Slip(other.answer, f"That is {of} {place}; {of} {asked} is asked for, counted from 0.")
        for place, other in questions.items()
        if place != asked
    ]
    answer = question.answer
    assert isinstance(answer, float)
    besides = _told(answer, question.tolerance, [*others, Slip(-answer, "That is right but for its sign.")])
    return replace(question, slips=[*question.slips, *besides])
