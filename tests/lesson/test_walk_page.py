"""The page holds every step, question and answer as HTML, whatever the words are."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from qkv.lesson.numbers import Lesson
from qkv.lesson.steps import STEPS
from qkv.lesson.tokens import Tokens, default_tokens, tokens_of
from qkv.lesson.walk_page import walk_page

VOID = {"input", "meta", "br", "hr", "img"}


class Page(HTMLParser):
    """The elements of a page, each closed where it should be; and all of its text outside scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.data = ""
        self.feed(html)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        last = self.elements[-1] if self.elements else ("", {})
        if self.opened and self.opened[-1] in ("script", "style"):
            self.data = data if last[1].get("class") == "qkv-data" else self.data
        else:
            self.text.append(data)

    def all(self, tag: str, name: str) -> list[dict[str, str | None]]:
        return [attrs for found, attrs in self.elements if found == tag and name in (attrs.get("class") or "").split()]


def matrix(num_tokens: int, dim: int) -> Tokens:
    rows = np.random.default_rng(num_tokens).normal(size=(num_tokens, dim)).round(2)
    return tokens_of("; ".join(" ".join(map(str, row)) for row in rows))


@pytest.mark.parametrize(
    ("tokens", "num_heads"),
    [
        (default_tokens(), 2),
        (matrix(2, 1), 1),
        (matrix(12, 4), 4),
        (tokens_of("Your journey starts with one step"), 3),
        (tokens_of("0 0; 0 0"), 2),
        (tokens_of("1000 1000; -1000 1000; 1000 0"), 2),
    ],
    ids=lambda value: str(getattr(value, "words", value))[:20],
)
def test_every_step_has_its_question_and_its_answer(tokens: Tokens, num_heads: int) -> None:
    page = Page(walk_page(Lesson(tokens, num_heads)))
    assert [attrs["id"] for attrs in page.all("section", "step")] == [step.id for step in STEPS]
    asked = [attrs["data-question"] for attrs in page.all("form", "question")]
    assert len(asked) == sum(len(tokens.words) if step.follows else 1 for step in STEPS)
    assert [attrs["data-question"] for attrs in page.all("p", "answer")] == asked
    questions = json.loads(page.data)["questions"]
    assert list(questions) == asked
    assert {question["kind"] for question in questions.values()} == {"number", "shape", "choice"}


def test_the_answers_handed_to_the_page_are_the_oracles() -> None:
    lesson = Lesson(tokens_of("Your journey starts with one step"), 3)
    questions = json.loads(Page(walk_page(lesson)).data)["questions"]
    for step in STEPS:
        for query, question in step.questions(lesson).items():
            given = questions[f"{step.id}-{query}"]
            assert given["answer"] == pytest.approx(question.answer)
            assert len(given["slips"]) == len(question.slips)


def test_the_numbers_of_the_page_are_those_of_the_lesson() -> None:
    lesson = Lesson(default_tokens())
    html = walk_page(lesson)
    for array in (lesson.simple.weights, lesson.causal.weights, lesson.multi_head.weights, lesson.simple.context):
        for number in array.ravel():
            assert f">{number:.3f}<".replace("-", "\u2212") in html


HOSTILE = (
    "<script>alert(1)</script> </script><b>x \"'&amp; {{7*7}} "
    "\u202eevil \u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f467"
)


def test_words_are_text_and_nothing_else() -> None:
    lesson = Lesson(tokens_of(HOSTILE))
    html = walk_page(lesson)
    page = Page(html)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "b" not in {tag for tag, _ in page.elements}
    text = "".join(page.text)
    for word in lesson.tokens.words:
        assert word in text
    # A word that runs from right to left, or says so, turns nothing around it.
    assert not re.search(r"(?<!<bdi class=\"token\">)\u202eevil", html.split('<script type="application/json"')[0])


def test_nothing_is_asked_of_a_network() -> None:
    html = walk_page(Lesson(default_tokens()))
    assert not re.search(r"\b(?:src|href)=\"(?!#)", html)
    assert "default-src 'none'" in html


def test_the_page_on_the_walk_lists_its_steps() -> None:
    text = (Path(__file__).parents[2] / "docs" / "walk.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (.*?) \|", text, re.MULTILINE)[1:] == [step.title for step in STEPS]
    assert f"in {len(STEPS)} steps" in text
