"""The tokens of a lesson: a sentence, a small matrix, or the article's case; and where their numbers come from."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qkv.errors import SpecError
from qkv.oracle import Array

MOST_TOKENS = 12
MOST_NUMBERS = 4
LARGEST = 1000.0
LONGEST_WORD = 16
LARGEST_FILE = 100_000
_WRITE = 'write a sentence, or rows of numbers: qkv walk "1 0; 0 1; 1 2"'


@dataclass(frozen=True)
class Tokens:
    """What the lesson computes with.

    Attributes:
        words: the text of each token.
        inputs: one vector for each token, ``(token, dim)``, float64.
        origin: a sentence on where the numbers come from.
    """

    words: tuple[str, ...]
    inputs: Array
    origin: str


def default_tokens() -> Tokens:
    """Three tokens of two numbers each, small enough for pencil and paper."""
    return Tokens(
        ("Your", "journey", "starts"),
        np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]),
        "These vectors were chosen so that every number can be checked by hand.",
    )


def tokens_of(given: str, *, dim: int | None = None, seed: int = 0) -> Tokens:
    """The tokens that a sentence, rows of numbers or the name of a ``.csv`` or ``.npy`` file stand for.

    Args:
        given: ``"your own sentence"``, ``"1 0; 0 1; 1 2"`` or ``"inputs.csv"``.
        dim: numbers for each word of a sentence; None means 3, as in the article.
        seed: gives the words of a sentence other numbers.

    Raises:
        SpecError: there are too few or too many tokens or numbers, or a file can't be read.
    """
    if not re.search(r"\.(csv|npy)$", given.strip(), re.IGNORECASE) and not _looks_like_numbers(given):
        return _from_sentence(given, 3 if dim is None else dim, seed)
    if dim is not None:
        raise SpecError("--dim is for sentences, and numbers were given: each row has as many as it has. Leave it out")
    if _looks_like_numbers(given):
        return _from_matrix(_parsed(given), "These are the numbers that you gave.")
    path = Path(given.strip())
    return _from_matrix(_read(path), f"These are the numbers of {path.name}.")


# --- a sentence ---


def _from_sentence(sentence: str, dim: int, seed: int) -> Tokens:
    words = sentence.split()
    _check_size(len(words), dim, "the sentence has", "words")
    return Tokens(
        tuple(map(_printable, words)),
        np.array([_vector_of(word, dim, seed) for word in words]),
        f"Each word's {dim} numbers are read off the SHA-256 hash of the word (in lower case) and the seed {seed}: "
        "they mean nothing, and the same word always has the same ones. A language model has learned its numbers.",
    )


def _vector_of(word: str, dim: int, seed: int) -> list[float]:
    """Numbers from -0.9 to 0.9 with one decimal."""
    known = hashlib.sha256(f"{seed}:{word.casefold()}".encode(errors="surrogatepass")).digest()
    return [(byte % 19 - 9) / 10 for byte in known[:dim]]


def _printable(word: str) -> str:
    """The word without characters that no page may hold, and not longer than a column is wide."""
    word = "".join("\ufffd" if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in word)
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD - 1] + "…"


# --- a matrix ---


def _looks_like_numbers(given: str) -> bool:
    """Whether the first row is one of numbers; a mistake in another row is then told as such."""
    rows = _rows(given)
    return bool(rows) and all(map(_is_number, rows[0]))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _rows(text: str) -> list[list[str]]:
    """Rows divided by ``;`` or line ends, numbers by spaces or commas; brackets don't count."""
    text = re.sub(r"\]\s*,", ";", text)
    rows = (row.replace(",", " ").split() for row in re.split(r"[;\n]", re.sub(r"[\[\]()]", " ", text)))
    return [row for row in rows if row]


def _parsed(text: str) -> list[list[float]]:
    try:
        return [[float(number) for number in row] for row in _rows(text)]
    except ValueError as error:
        raise SpecError(f"a row of numbers can't be read: {error}; {_WRITE}") from None


def _read(path: Path) -> Array:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"{path} is too large: {_limits()}")
        if path.suffix.lower() == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)  # no memory for what a header only claims
        return _parsed(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SpecError(f"{path} can't be read: {error.strerror}; {_WRITE}") from None
    except (ValueError, EOFError) as error:
        raise SpecError(f"{path} holds no matrix of numbers: {error}") from None


def _from_matrix(rows: Array, origin: str) -> Tokens:
    if not isinstance(rows, np.ndarray) and len({len(row) for row in rows}) > 1:
        raise SpecError(f"the rows have {', '.join(str(len(row)) for row in rows)} numbers, and must be equally long")
    inputs = np.asarray(rows)
    if inputs.ndim != 2 or inputs.dtype.kind not in "fiub":
        raise SpecError(
            f"the array has shape {inputs.shape} and dtype {inputs.dtype}; "
            "a matrix of numbers is needed, a row for each token"
        )
    _check_size(inputs.shape[0], inputs.shape[1], "the matrix has", "rows")
    inputs = inputs.astype(np.float64)
    if not (np.abs(inputs) <= LARGEST).all():
        raise SpecError(f"the matrix holds numbers that are not from {-LARGEST:g} to {LARGEST:g}; scale them down")
    return Tokens(tuple(f"token {place}" for place in range(len(inputs))), inputs, origin)


def _check_size(tokens: int, dim: int, has: str, what: str) -> None:
    if not 2 <= tokens <= MOST_TOKENS:
        what = what.removesuffix("s") if tokens == 1 else what
        raise SpecError(f"{has} {tokens} {what}: {_limits()}")
    if not 1 <= dim <= MOST_NUMBERS:
        raise SpecError(f"a token has {dim} numbers: {_limits()}")


def _limits() -> str:
    return (
        f"the walk takes 2 to {MOST_TOKENS} tokens with 1 to {MOST_NUMBERS} numbers each, so that a person can follow "
        f"every one; {_WRITE}"
    )
