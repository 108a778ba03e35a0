"""The words that a language model knows, one token a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qkv.errors import SpecError, nearest


class Vocabulary:
    """Words and their numbers, both ways.

    Attributes:
        words: every word, at the place that is its number.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def tokens(self, text: str) -> list[int]:
        """The number of each word of a text whose words and full stops stand apart: ``"anna hill has a kite ."``.

        Raises:
            SpecError: the text has no word, or one that is not known; the message names the place and the nearest.
        """
        words = text.split()
        if not words:
            raise SpecError('the text has no word. Words stand apart: "anna hill has a red kite ."')
        for place, word in enumerate(words):
            if word not in self._numbers:
                raise SpecError(
                    f"word {place} of the text is {word!r}, which is none of the {len(self)} words that the model "
                    f"knows; {self._near(word)}"
                )
        return [self._numbers[word] for word in words]

    def text(self, tokens: Iterable[int]) -> str:
        """The words of these numbers, with a space between them.

        Raises:
            SpecError: a number that no word has.
        """
        numbers = [int(number) for number in tokens]
        for number in numbers:
            if not 0 <= number < len(self):
                raise SpecError(f"token {number} is no word: there are {len(self)}, from 0 to {len(self) - 1}")
        return " ".join(self.words[number] for number in numbers)

    def _near(self, word: str) -> str:
        bare = word.rstrip(".?").lower()
        if bare in self._numbers:
            return f"write {' '.join([bare, *word[len(bare) :]])!r}"
        return nearest(bare, self.words)
