"""Writes the walks that the browser tests open into a folder: ``python walks.py FOLDER``."""

import sys
from pathlib import Path

from qkv.lesson.numbers import Lesson
from qkv.lesson.tokens import default_tokens, tokens_of
from qkv.lesson.walk_page import walk_page

WALKS = {
    "default": Lesson(default_tokens()),
    "long": Lesson(tokens_of("the quick brown fox jumps over the lazy dog and then internationalizations", dim=4), 4),
    "hostile": Lesson(tokens_of("<script>alert(1)</script> </script><img/src=x> \u202egnp.exe שלום 😀 \"'&amp;")),
}

if __name__ == "__main__":
    for name, lesson in WALKS.items():
        (Path(sys.argv[1]) / f"{name}.html").write_text(walk_page(lesson), encoding="utf-8")
