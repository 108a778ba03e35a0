"""The picture of the README is what its script makes: the same words, and cells of the same colours."""

from __future__ import annotations

import io
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def cells(svg: str) -> list[tuple[int, ...]]:
    """The colours that areas are filled with, one after the other."""
    return [tuple(bytes.fromhex(colour)) for colour in re.findall(r'<path [^>]*style="fill: #([0-9a-f]{6})', svg)]


def test_the_picture_is_what_its_script_makes() -> None:
    script = runpy.run_path(str(ROOT / "examples" / "readme_picture.py"))
    file = io.BytesIO()
    script["picture"]().savefig(file, format="svg")
    made, kept = file.getvalue().decode(), script["PICTURE"].read_text("utf-8")
    assert words(made) == words(kept)
    assert len(cells(kept)) > 3 * 21, "each cell that a query may attend to has a colour of its own"
    assert np.abs(np.array(cells(made)) - np.array(cells(kept))).max() <= 2
    assert "first wrong: query 0, key 0" in words(kept)
