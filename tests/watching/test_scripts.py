"""Code that is no candidate: whatever runs under `watching`."""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch  # noqa: F401 - what a script does with it is seen only if it is imported before

from qkv.adapters.watching import watching

SCRIPT = """\
import torch

inputs = torch.tensor([[0.4, 0.1], [0.5, 0.8], [0.2, 0.9]])
attn_scores = inputs @ inputs.T
attn_weights = torch.softmax(attn_scores, dim=-1)
all_context_vecs = attn_weights @ inputs
"""
IN_NUMPY = """\
import numpy as np
from numpy import array

inputs = array([[0.4, 0.1], [0.5, 0.8], [0.2, 0.9]])
attn_scores = inputs @ inputs.T
attn_weights = np.exp(attn_scores) / np.exp(attn_scores).sum(axis=-1, keepdims=True)
all_context_vecs = attn_weights @ inputs
"""


@pytest.mark.parametrize(("source", "line"), [(SCRIPT, 6), (IN_NUMPY, 7)], ids=["torch", "numpy"])
def test_a_script(write: Callable[[str], str], source: str, line: int) -> None:
    path = write(source)
    space: dict[str, Any] = {"__name__": "__main__"}
    with watching() as watch:
        exec(compile(source, path, "exec"), space)  # noqa: S102 - as a script is run
    recording = watch.recording(space["all_context_vecs"])
    product = recording.operations[-1]
    place = recording.places[product.place or 0]
    assert (place.file, place.line, place.function) == (path, line, "")
    assert (place.code, place.target) == ("attn_weights @ inputs", "all_context_vecs")
    assert list(recording.returned) == list(product.results)
    assert product.arguments[0].value == watch.number(space["attn_weights"])
    assert product.arguments[1].value == watch.number(space["inputs"])


def test_a_cell_of_a_notebook() -> None:
    name = "cell 3"
    linecache.cache[name] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), name)
    with watching([name]) as watch:
        exec(compile(SCRIPT, name, "exec"), {})  # noqa: S102 - as a notebook is run
    recording = watch.recording()
    assert {one.file for one in recording.places} == {name}
    assert recording.places[-1].code == "attn_weights @ inputs"


def test_code_without_a_text_has_lines(write: Callable[[str], str]) -> None:
    with watching(["no file"]) as watch:
        exec(compile(SCRIPT, "no file", "exec"), {})  # noqa: S102 - as a script is run
    last = watch.recording().places[-1]
    assert (last.line, last.code, last.target) == (6, "", "")


def test_arrays_that_were_not_seen_have_no_number() -> None:
    array = np.ones(3)
    with watching() as watch:
        pass
    assert watch.number(array) is None


def test_nothing_is_taken_down_afterwards(write: Callable[[str], str]) -> None:
    space: dict[str, Any] = {}
    with watching() as watch:
        exec(compile(IN_NUMPY, write(IN_NUMPY), "exec"), space)  # noqa: S102 - as a script is run
    count = len(watch.recording().operations)
    kept = space["inputs"]
    twice = kept * 2
    assert len(watch.recording().operations) == count
    assert type(twice) is np.ndarray
    np.testing.assert_array_equal(space["array"]([1.0, 2.0]), [1.0, 2.0])


def test_one_watch_inside_another(write: Callable[[str], str]) -> None:
    path = write(IN_NUMPY)
    with watching() as outer:
        exec(compile(IN_NUMPY, path, "exec"), {})  # noqa: S102 - as a script is run
        with watching() as inner:
            exec(compile(IN_NUMPY, path, "exec"), {})  # noqa: S102 - as a script is run
    assert len(inner.recording().operations) == len(outer.recording().operations)


def test_watching_does_not_import_torch() -> None:
    code = "import sys; import qkv.adapters.watching, qkv.adapters.host; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
