"""explain(): somebody's code with, beside each line, what it makes; and the verdict on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qkv.adapters.notebooks import cell_of
from qkv.adapters.recording import Operation, Place, Recording, Ref
from qkv.adapters.texts import Text, decoded, is_notebook, script_of, text_of
from qkv.debugger import judge, judge_script
from qkv.diagnosis import Diagnosis
from qkv.location.locating import recognised
from qkv.recognition import Recognition, Sight
from qkv.recognition.arrangement import REPEATED
from qkv.report import Report, SourceLine
from qkv.report.anatomy import Anatomy, CodeLine, Made, Mark
from qkv.report.cells import source_line
from qkv.request import Request
from qkv.settling import Trial
from qkv.shapes import Product, Shape

PRODUCTS = ("matmul", "mm", "bmm")
MOST_MADE = 4
"""Kinds of arrays that are named beside one line: the last ones, which the others are steps to."""


def explain(request: Request) -> Anatomy:
    """The code of a candidate, a script or a notebook, line by line, with the report that ``qkv check`` gives of it.

    Args:
        request: what is asked.

    Raises:
        SpecError: the spec contradicts itself.
    """
    script = script_of(request.target, request.source)
    if script is not None:
        host = request.host()
        try:
            return judge_script(script, request, host, "explain")
        finally:
            host.close()
    seen: list[Recognition] = []
    report = judge(request, seen=lambda trial, diagnosis: seen.extend(_recognised(trial, diagnosis)))
    return Anatomy(report, _lines(seen[0], report) if seen else ())


def _recognised(trial: Trial, diagnosis: Diagnosis) -> Iterator[Recognition]:
    """What a candidate makes on an input that shows its fault, or on the first one where it has none."""
    usable = [one for one in trial.observations if not one.probe.inputs.steps]
    for observation in sorted(usable, key=lambda one: one.comparison.agrees)[:1]:
        recognition = recognised(trial, diagnosis, observation)
        if recognition is not None:
            yield recognition


# --- lines ------------------------------------------------------------------------------------------------------------


def _lines(recognition: Recognition, report: Report) -> list[CodeLine]:
    """The lines of every definition that the candidate went through, in the file where it stands."""
    recording = recognition.recording
    text = _text_of(recording, report)
    if text is None:
        return []
    made: dict[int, list[tuple[Made, bool]]] = {}
    for operation in recording.operations:
        place = _place(recording, operation)
        if place is not None and Path(place.file) == text.path:
            for value in operation.results:
                sight, right = _seen(recognition, value), recognition.right(value)
                if sight is not None:
                    entry = _made(recognition, operation, value, sight), right
                    here = made.setdefault(place.line, [])
                    here += [entry] if entry not in here else []
    blamed = _blamed(text, report.line)
    said = f"{report.faults[0].title}: {report.faults[0].explanation}" if report.faults else report.why
    return [_line(text, number, made.get(number, []), said if number == blamed else "") for number in
            _shown(text, {*made, blamed} - {0})]  # fmt: skip


def _line(text: Text, number: int, made: Sequence[tuple[Made, bool]], said: str) -> CodeLine:
    right = bool(made) and all(is_right for _, is_right in made)
    mark: Mark = "wrong" if said else "right" if right else ""
    cell, line = cell_of(text.cells, number) if text.cells else (0, number)
    return CodeLine(line, text.lines[number - 1], _folded([one for one, _ in made])[-MOST_MADE:], mark, said, cell)


def _folded(made: Sequence[Made]) -> list[Made]:
    """What a line makes, each kind once: a loop makes the same for one token, one head, after the other."""
    kinds: dict[tuple[object, ...], list[Made]] = {}
    for one in made:
        kinds.setdefault((one.name, one.stage, tuple(one.axes), one.product), []).append(one)
    folded = []
    for first, *others in kinds.values():
        note = first.note if not others else f"{first.note}; {len(others)} more, the last: {_where(others[-1])}"
        folded.append(replace(first, note=note.removeprefix("; ")))
    return folded


def _where(made: Made) -> str:
    """An array without its name, which is known."""
    return str(replace(made, name="")).strip()


def _text_of(recording: Recording, report: Report) -> Text | None:
    """The file in which most operations stand."""
    files = [place.file for operation in recording.operations if (place := _place(recording, operation)) is not None]
    if not files:
        return None
    path = Path(max(set(files), key=files.count))
    if is_notebook(str(path)):
        return text_of(str(path))
    try:
        source = decoded(path.read_bytes())
        return Text(str(path), path, source, source)
    except (OSError, SyntaxError, ValueError):
        return None


def _blamed(text: Text, line: SourceLine | None) -> int:
    """The number of the line that a report names; 0 where it names none of this file."""
    for number in range(1, len(text.lines) + 1) if line is not None else ():
        here = source_line(text, number)
        if line is not None and (here.line, Path(here.file).name) == (line.line, Path(line.file).name):
            return number
    return 0


def _shown(text: Text, lines: set[int]) -> list[int]:
    """The lines of the outermost definitions that these lines stand in, empty ones left out."""
    shown: set[int] = set()
    for node in ast.parse(text.source).body:
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if lines & set(span):
            shown |= set(span)
    return [number for number in sorted(shown) if text.lines[number - 1].strip()]


def _seen(recognition: Recognition, value: int) -> Sight | None:
    """What a value is: in the attention that is meant, else under the fault, else what it has most in common with."""
    sight = recognition.sights[value]
    return sight if recognition.right(value) else recognition.faulty[value] or sight


# --- what a line makes ------------------------------------------------------------------------------------------------


def _made(recognition: Recognition, operation: Operation, value: int, sight: Sight) -> Made:
    shape = recognition.recording.values[value].array.shape
    named = [(axis, size) for axis, size in zip(sight.axes, shape, strict=False) if axis != REPEATED]
    product = _product(recognition, operation)
    notes = [f"{axis} {place}" for axis, place in sight.fixed.items()]
    notes += [f"times {sight.factor:.4g}"] if abs(sight.factor - 1) > 1e-9 else []
    notes += ["its entries in an order that is none of whole axes"] if sight.scrambled else []
    return Made(
        sight.name, str(sight.stage or ""), [axis for axis, _ in named], [size for _, size in named], ", ".join(notes),
        product.names if product else "", product.numbers if product else "",
    )  # fmt: skip


def _product(recognition: Recognition, operation: Operation) -> Product | None:
    """The matrix product of two arrays that are known, in names."""
    operands = [one.value for one in operation.arguments if isinstance(one, Ref)]
    if operation.name not in PRODUCTS or len(operands) != 2:
        return None
    matrices = [_matrix(recognition, value) for value in operands]
    left, right = matrices
    if left is None or right is None or left.sizes[1] != right.sizes[0]:
        return None
    return Product(left, right)


def _matrix(recognition: Recognition, value: int) -> Shape | None:
    sight, array = _seen(recognition, value), recognition.recording.values[value].array
    if sight is None or array.ndim < 2 or len(sight.axes) != array.ndim:
        return None
    return Shape((sight.axes[-2], sight.axes[-1]), (array.shape[-2], array.shape[-1]))


def _place(recording: Recording, operation: Operation) -> Place | None:
    return None if operation.place is None else recording.places[operation.place]
