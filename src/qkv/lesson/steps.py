"""The steps of the lesson, in the article's order. A step's text and figures are the template of its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qkv.lesson import questions
from qkv.lesson.numbers import Lesson
from qkv.lesson.question import Question


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        id: its place in the page's address, and its template, ``templates/steps/<id>.html``.
        name: its heading in a word or two.
        title: its heading.
        ask: its question about one token's vector.
        follows: whether the question follows the token that is chosen; else it is the same for all.
    """

    id: str
    name: str
    title: str
    ask: Callable[[Lesson, int], Question]
    follows: bool = False

    def questions(self, lesson: Lesson) -> dict[int, Question]:
        """The questions by the token that they are about."""
        queries = range(len(lesson.tokens.words)) if self.follows else [lesson.default_query]
        return {query: self.ask(lesson, query) for query in queries}


STEPS = (
    Step("inputs", "inputs", "Inputs: one vector for each token", questions.inputs),
    Step("scores", "scores", "Attention scores of one token", questions.scores, follows=True),
    Step("softmax", "softmax", "Attention weights: softmax of the scores", questions.softmax, follows=True),
    Step("context", "context", "The context vector: a weighted sum", questions.context, follows=True),
    Step("together", "all tokens", "All tokens at once", questions.axis),
    Step("shape", "shape", "Predict the shape", questions.product),
    Step("comparison", "compare", "Compare a row with the vector computed alone", questions.comparison),
    Step("projections", "q, k, v", "Trainable weights: query, key and value", questions.projection, follows=True),
    Step("scale", "scale", "Scaled dot-product attention", questions.scale, follows=True),
    Step("causal", "causal", "The causal mask: no look into the future", questions.causal, follows=True),
    Step("dropout", "dropout", "Dropout, in training only", questions.dropout, follows=True),
    Step("heads", "heads", "Several heads in parallel", questions.split),
    Step("check", "your code", "Now your own code", questions.diagnosis),
)
"""All steps in order."""
