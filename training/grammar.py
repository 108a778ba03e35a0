"""Stories to learn from: sentences of templates, in which some words can only be known by looking back.

Who has which surname, and which colour a thing has, is drawn anew for every story, and a parrot repeats what it hears::

    anna wood has a red kite . ben hill said lamp river honey key . the parrot said lamp river honey key . anna wood ...

After the second `anna`, `wood` is known from the first; after the parrot's `lamp`, `river` is. None of it can be learnt
by heart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

KINDS = """\
anna ben clara david emma felix grace henry iris jack laura oscar
wood hill stone river field marsh brook lake forest meadow bank moor
red blue green yellow black white brown grey orange purple
kite drum lamp boat hat ball book cup key bell coat clock
garden kitchen attic market harbour school station library
north south east west winter summer rain snow wind thunder bread honey salt apple pepper silver gold
. ? a and found gave has hid in is parrot said saw the to took went where"""
FIRST_NAMES, SURNAMES, COLOURS, THINGS, PLACES, OTHERS, GRAMMAR = (kind.split() for kind in KINDS.splitlines())
CONTENT = sorted([*FIRST_NAMES, *SURNAMES, *COLOURS, *THINGS, *PLACES, *OTHERS])
WORDS = sorted([*CONTENT, *GRAMMAR])


@dataclass
class Story:
    """Sentences about people and things that are drawn for them.

    Attributes:
        random: where chance comes from.
        words: what was told so far.
        recalled: places of the words that earlier ones settle.
    """

    random: Random
    words: list[str] = field(default_factory=list)
    recalled: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.random.sample
        self.people = dict(zip(draw(FIRST_NAMES, 3), draw(SURNAMES, 3), strict=True))
        self.things = dict(zip(draw(COLOURS, 3), draw(THINGS, 3), strict=True))

    def add(self, text: str) -> None:
        """Tells words; `*` before one says that earlier words settle it."""
        for word in text.split():
            if word.startswith("*"):
                self.recalled.append(len(self.words))
            self.words.append(word.removeprefix("*"))

    def add_with(self, pairs: dict[str, str], before: str, after: str = "") -> None:
        """Tells one of the pairs between other words; its second word is settled where the first was told before."""
        self.add(before)
        first = self.random.choice(list(pairs))
        self.add(f"{first} {'*' if first in self.words else ''}{pairs[first]} {after}")


def has(story: Story) -> None:
    story.add_with(story.people, "", "has a")
    story.add_with(story.things, "", ".")


def gave(story: Story) -> None:
    story.add_with(story.people, "", "gave the")
    story.add_with(story.things, "", "to")
    story.add_with(story.people, "", ".")


def hid(story: Story) -> None:
    story.add_with(story.people, "", f"{story.random.choice(['hid', 'found', 'saw', 'took'])} the")
    story.add_with(story.things, "", f"in the {story.random.choice(PLACES)} .")


def went(story: Story) -> None:
    story.add_with(story.people, "", "and")
    story.add_with(story.people, "", f"went to the {story.random.choice(PLACES)} .")


def asked(story: Story) -> None:
    story.add_with(story.things, "where is the", "?")
    story.add_with(story.things, "the", f"is in the {story.random.choice(PLACES)} .")


def said(story: Story) -> None:
    free = [word for word in CONTENT if word not in story.people and word not in story.things]
    first, *others = story.random.sample(free, story.random.randint(4, 16))
    story.add_with(story.people, "", f"said {first} {' '.join(others)} .")
    story.add(f"the parrot said {first} {' '.join(f'*{word}' for word in others)} .")


SENTENCES: tuple[Callable[[Story], None], ...] = (has, gave, hid, went, asked, said, said, said)


def stories(seed: int, length: int) -> Iterator[Story]:
    """Stories without end, each of `length` words."""
    random = Random(seed)
    while True:
        story = Story(random)
        while len(story.words) < length:
            random.choice(SENTENCES)(story)
        del story.words[length:]
        story.recalled = [place for place in story.recalled if place < length]
        yield story


def said_twice(seed: int, length: int) -> list[str]:
    """Words drawn at random, each of them once, and then all of them again."""
    return 2 * Random(seed).sample(CONTENT, length)
