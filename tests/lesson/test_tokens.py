"""What a reader gives becomes tokens, or an error that says what to give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.errors import SpecError
from qkv.lesson.tokens import MOST_TOKENS, default_tokens, tokens_of


def test_the_default_can_be_checked_by_hand() -> None:
    tokens = default_tokens()
    assert tokens.inputs.shape == (3, 2)
    assert (tokens.inputs == np.round(tokens.inputs)).all()


def test_a_word_always_has_the_same_numbers() -> None:
    first, second = tokens_of("the cat saw The dog"), tokens_of("dog the")
    assert first.inputs.shape == (5, 3)
    assert (first.inputs[0] == first.inputs[3]).all()
    assert (first.inputs[[4, 0]] == second.inputs).all()
    assert (np.abs(first.inputs) <= 0.9).all()
    assert (first.inputs != tokens_of("the cat saw The dog", seed=1).inputs).any()
    assert tokens_of("one step", dim=2).inputs.shape == (2, 2)


@pytest.mark.parametrize(
    "given", ["1 0; 0.5 -2; 1e1 2", "1,0;.5,-2;10,2", "[[1, 0], [0.5, -2], [10, 2]]", "1 0\n0.5 -2\n10 2\n"]
)
def test_rows_of_numbers(given: str) -> None:
    tokens = tokens_of(given)
    assert tokens.inputs.tolist() == [[1, 0], [0.5, -2], [10, 2]]
    assert tokens.words == ("token 0", "token 1", "token 2")


def test_files(tmp_path: Path) -> None:
    rows = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66]])
    np.save(tmp_path / "a.npy", rows.astype(np.float32))
    (tmp_path / "a.csv").write_text("0.43,0.15,0.89\n0.55,0.87,0.66\n", encoding="utf-8-sig")
    for name in ("a.npy", "a.csv"):
        tokens = tokens_of(str(tmp_path / name))
        np.testing.assert_allclose(tokens.inputs, rows, rtol=1e-6)
        assert name in tokens.origin


def test_words_that_a_page_may_not_hold_are_made_to() -> None:
    family, hebrew = "\U0001f469\u200d\U0001f467", "\u05e9\u05dc\u05d5\u05dd"
    tokens = tokens_of(f"<script>alert(1)</script> {family} {hebrew} \x00\x1b[2J \udcff {'a' * 5000}")
    assert tokens.words[1:4] == (family, hebrew, "\ufffd\ufffd[2J")
    assert tokens.words[0].startswith("<script>")
    assert max(map(len, tokens.words)) <= 16
    "".join(tokens.words).encode()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "the sentence has 0 words: the walk takes 2 to 12 tokens"),
        ("alone", "the sentence has 1 word: the walk takes 2 to 12 tokens"),
        ("word " * (MOST_TOKENS + 1), "the sentence has 13 words"),
        ("word " * 1000, "the sentence has 1000 words"),
        ("1 2", "the matrix has 1 row: "),
        ("1 2 3 4 5; 1 2 3 4 5", "a token has 5 numbers: "),
        ("1 2; 3", "the rows have 2, 1 numbers, and must be equally long"),
        ("1 2; 3 x", "could not convert string to float: 'x'; write a sentence, or rows of numbers"),
        ("1 2; 3 nan", "not from -1000 to 1000"),
        ("1 2; 3 1e400", "not from -1000 to 1000"),
        ("missing.csv", "missing.csv can't be read: No such file or directory"),
    ],
)
def test_what_cannot_be_walked_through_is_told(given: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        tokens_of(given)
    assert says in str(error.value)


def test_dim_is_for_sentences() -> None:
    with pytest.raises(SpecError, match="--dim is for sentences"):
        tokens_of("1 0; 0 1", dim=2)
    with pytest.raises(SpecError, match="a token has 5 numbers"):
        tokens_of("one step", dim=5)


def test_arrays_that_are_no_matrix(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for array, says in (
        (np.zeros((2, 3, 4)), "shape (2, 3, 4)"),
        (np.array([["a", "b"], ["c", "d"]]), "dtype <U1"),
        (np.array([[1j, 1], [1, 1]]), "dtype complex128"),
        (np.array([[None, 1], [1, 1]]), "holds no matrix of numbers"),
        (np.zeros((500, 500)), "too large"),
    ):
        np.save(path, array)
        with pytest.raises(SpecError) as error:
            tokens_of(str(path))
        assert says in str(error.value)
    path.write_bytes(b"")
    with pytest.raises(SpecError, match="holds no matrix of numbers"):
        tokens_of(str(path))


def test_a_header_that_claims_too_much_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(SpecError, match="holds no matrix of numbers"):
        tokens_of(str(path))
