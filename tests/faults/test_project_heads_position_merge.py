"""Faults of the stages around the scores, each held against the faulty code as somebody would write it in torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qkv.faults
from faulty_code import EXAMPLES, FAULTY, Attention, Example
from faulty_code.examples import contiguous, made, square
from qkv.errors import ShapeError
from qkv.faults import CATALOGUE
from qkv.oracle import Inputs, Replacements, Run, resume, run_stages
from qkv.positions import Rope
from qkv.spec import AttentionSpec

MODULES = [
    *("project", "projection_weights", "fused_projection", "qk_norm", "heads", "kv_heads", "memory"),
    *("position", "rope_pairs", "rope_frequencies", "merge", "output"),
]
SOURCES = [(Path(qkv.faults.__file__).parent / f"{module}.py").read_text(encoding="utf-8") for module in MODULES]
NAMES = [name for source in SOURCES for name in re.findall(r'@fault\(\n    "([a-z-]+)"', source)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads cost more than they give on arrays of a few hundred numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def under(right: Run, replacements: Replacements) -> Any:
    """The output with some stages replaced; what comes before them is taken from the right run."""
    first = min(replacements)
    return resume(right.before[first], replacements, first.order).output


@cache
def right_run(example: Example) -> Run:
    return run_stages(*made(example))


def ways(spec: AttentionSpec, inputs: Inputs) -> Iterator[tuple[tuple[str, str], Replacements]]:
    for fault in map(CATALOGUE.__getitem__, NAMES):
        if fault.absent(spec, inputs) is None:
            yield from (((fault.id, variant.note), variant.replacements) for variant in fault.variants(spec))


@cache
def outputs(example: Example) -> dict[tuple[str, str], Any]:
    """The output under each way of each fault that the example leaves room for."""
    found = {}
    for way, replacements in ways(*made(example)):
        try:
            found[way] = under(right_run(example), replacements)
        except ShapeError:
            continue
    return found


TRIED = [
    pytest.param(name, note, code, example, id=f"{name} | {note} | {example.__name__}")
    for name, note, code, examples in FAULTY
    for example in examples
]


@pytest.mark.parametrize("example", [*EXAMPLES, contiguous])
def test_the_code_is_right_before_a_mistake_is_made(example: Example) -> None:
    np.testing.assert_allclose(right_run(example).output, Attention(*made(example))(), atol=1e-10)


@pytest.mark.parametrize(("name", "note", "code", "example"), TRIED)
def test_a_fault_gives_the_numbers_of_the_faulty_code(
    name: str, note: str, code: type[Attention], example: Example
) -> None:
    assert (name, note) in outputs(example), f"{name} has no way called {note!r} here"
    np.testing.assert_allclose(outputs(example)[name, note], code(*made(example))(), atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_every_way_has_faulty_code(name: str) -> None:
    ran = {note for example in EXAMPLES for found, note in outputs(example) if found == name}
    tried = {note for found, note, *_ in FAULTY if found == name}
    assert ran <= tried or name in KERNELS


KERNELS = {"index-overflow"}
"""Written by hand as a kernel, in test_kernels_and_devices.py."""


INVISIBLE = {
    ("rope-low-precision", f"{subject} in float16")
    for subject in ("the frequencies are", "positions, frequencies and angles are")
}
"""Too small to be seen with so few tokens."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_fault_changes_the_output(example: Example) -> None:
    right = right_run(example).output
    for way, output in outputs(example).items():
        assert output.shape == right.shape, way
        if way not in INVISIBLE:
            assert np.abs(output - right).max() > 1e-6, way


IDENTICAL = {
    # The same numbers by another road: only how the inputs lie in memory tells them apart.
    ("heads-split-by-view", "strided-read-as-contiguous"),
    # Fused and cut in the order q, v, k: key and value swapped.
    ("fused-qkv-layout", "key-value-swapped"),
    # As many devices as heads: every head has its own [q k v].
    ("fused-qkv-layout", "fused-qkv-sharded"),
}
"""Faults that give equal numbers somewhere, so that both are named."""


def _equal_pairs(example: Example) -> Iterator[tuple[str, ...]]:
    for (one, first), (other, second) in itertools.combinations(outputs(example).items(), 2):
        if one[0] != other[0] and np.abs(first - second).max() < 1e-9:
            yield tuple(sorted((one[0], other[0])))


@pytest.mark.parametrize("example", EXAMPLES)
def test_no_two_faults_give_the_same_numbers_but_those_known_to(example: Example) -> None:
    assert set(_equal_pairs(example)) <= IDENTICAL


@pytest.mark.parametrize("example", EXAMPLES)
def test_faults_run_on_torch_and_change_no_input(example: Example) -> None:
    spec, inputs = made(example)
    right = run_stages(spec, inputs.map(torch.asarray))
    kept = [array.copy() for array in inputs.arrays()]
    replacements = dict(ways(spec, inputs))
    for way, output in outputs(example).items():
        np.testing.assert_allclose(under(right, replacements[way]), output, atol=1e-10, err_msg=str(way))
    for array, copy in zip(inputs.arrays(), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_the_base_of_rope_is_a_family() -> None:
    spec, inputs = made(square)
    (family,) = CATALOGUE["rope-frequencies"].families
    other = run_stages(spec.but(rope=Rope(base=123.0)), inputs).output
    np.testing.assert_allclose(run_stages(spec, inputs, family.replacements(123.0)).output, other, atol=1e-12)
    assert family.note(spec, inputs, 123.0) == "the base is 123 in place of 5000"
    with pytest.raises(ShapeError, match="can't have the base"):
        run_stages(spec, inputs, family.replacements(-1.0))
