from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from qkv.errors import SpecError
from qkv.model import Vocabulary, vocabulary

KNOWN = vocabulary()


@given(st.lists(st.sampled_from(KNOWN.words), min_size=1, max_size=30))
def test_a_text_comes_back_from_its_tokens(words: list[str]) -> None:
    tokens = KNOWN.tokens(" ".join(words))
    assert len(tokens) == len(words)
    assert KNOWN.text(tokens) == " ".join(words)


def test_every_word_has_a_number_of_its_own() -> None:
    assert [KNOWN.tokens(word) for word in KNOWN.words] == [[number] for number in range(len(KNOWN))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("anna has a kitte", r"word 3 of the text is 'kitte'.*did you mean 'kite'\?"),
        ("Anna has a kite", "word 0 of the text is 'Anna'.*write 'anna'"),
        ("anna has a kite.", r"word 3 of the text is 'kite\.'.*write 'kite \.'"),
        ("is anna in ?!", r"'\?!', which is none"),
        ("xyzzyq", "none of the 89 words that the model knows; known: "),
        ("  ", "has no word"),
    ],
)
def test_a_word_that_is_not_known_is_named_with_the_nearest(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        KNOWN.tokens(text)


@pytest.mark.parametrize("number", [-1, 89])
def test_a_number_that_no_word_has_is_named(number: int) -> None:
    with pytest.raises(SpecError, match=f"token {number} is no word: there are 89, from 0 to 88"):
        KNOWN.text([0, number])


def test_the_place_of_a_word_is_its_number() -> None:
    assert Vocabulary(["b", "a"]).tokens("a b a") == [1, 0, 1]
