"""The lesson as a page. All of it is HTML made here; the page's script hides, steps, and checks answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.lesson.figures import figures, figures_by_head, head_figures
from qkv.lesson.matrix import text
from qkv.lesson.numbers import DROPOUT_P, HEAD_DIM, Lesson
from qkv.lesson.question import Question
from qkv.lesson.steps import STEPS
from qkv.lesson.worksheet import worksheet
from qkv.pictures.page import environment, page

TITLE = "Attention, step by step"


def walk_page(lesson: Lesson) -> str:
    """The lesson as one HTML file."""
    questions = {step.id: step.questions(lesson) for step in STEPS}
    body = environment("qkv.lesson").get_template("walk.html").render(
        tokens=lesson.tokens,
        num_heads=lesson.num_heads,
        head_dim=HEAD_DIM,
        dropout_p=DROPOUT_P,
        default_query=lesson.default_query,
        steps=STEPS,
        questions=questions,
        figures=figures(lesson),
        shared=head_figures(lesson),
        heads=figures_by_head(lesson),
        sheets=[worksheet(lesson, query) for query in range(len(lesson.tokens.words))],
        differences=_differences(lesson),
        text=text,
    )  # fmt: skip
    return page(TITLE, body, "walk", data={"walk": payload(questions)})


def payload(questions: dict[str, dict[int, Question]]) -> dict[str, Any]:
    """What the page's script checks answers by; see ``WalkPayload`` in ``viewer/src/payload.ts``."""
    asked = {f"{step}-{query}": one.to_json() for step, each in questions.items() for query, one in each.items()}
    return {"schema": 1, "kind": "walk", "title": TITLE, "questions": asked}


def _differences(lesson: Lesson) -> list[str]:
    """How far each row of the batch is from the vector computed alone."""
    rows = enumerate(lesson.simple.context[0])
    return [f"{np.abs(row - lesson.simple.alone(query)).max():.0e}".replace("0e+00", "0") for query, row in rows]
