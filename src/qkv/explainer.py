"""explain(): somebody's code with, beside each line, what it makes; and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qkv.adapters.notebooks import cell_of
from qkv.adapters.recording import Operation, Place, Recording
from qkv.adapters.shaping.reading import arrays_of, products_of
from qkv.adapters.targets import same_file
from qkv.adapters.texts import Text, decoded, is_notebook, script_of, text_of
from qkv.adapters.tracebacks import is_own, shown
from qkv.debugger import judge, judge_script
from qkv.diagnosis import Diagnosis
from qkv.location.frontier import Frontier
from qkv.location.locating import recognised
from qkv.recognition import Recognition, Sight
from qkv.recognition.arrangement import REPEATED
from qkv.report import Report, SourceLine, Verdict
from qkv.report.anatomy import Anatomy, CodeLine, Made, Mark
from qkv.report.annotations import failed_at
from qkv.report.cells import source_line
from qkv.request import Request
from qkv.settling import Trial
from qkv.shaper import sheet_of
from qkv.shapes import Product, Shape

MOST_MADE = 4
"""Kinds of arrays beside one line, up to which none is left out. Of more, one that becomes another is left out."""

WITHOUT_CACHE = " The arrays here are those of the whole sequence at once, where that changes nothing."
"""What is said beside a line that is wrong only where a sequence comes bit by bit."""


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
    seen: list[tuple[Recognition, bool]] = []
    report = judge(request, seen=lambda trial, diagnosis: seen.extend(_recognised(trial, diagnosis)))
    if not seen and report.candidate.line and report.detail:
        return _until_it_fails(request, report)
    return Anatomy(report, _lines(*seen[0], report) if seen else ())


def _until_it_fails(request: Request, report: Report) -> Anatomy:
    """The lines of a candidate that raises, with the shapes of what it makes before it does."""
    text, failed = _text_of(Path(report.candidate.file)), failed_at(report)
    if text is None or is_notebook(report.candidate.file) or not failed:
        return Anatomy(report, ())
    sheet = sheet_of(request, {})
    if not sheet.why:
        return Anatomy(report, ())
    made: dict[int, list[Made]] = {failed: []}
    for one in sheet.lines:
        if one.makes and one.file == text.path.name:
            made.setdefault(one.line, []).append(
                Made(one.makes, "", one.shape.axes, one.shape.sizes, "", *_in_words(one.products))
            )
    clash = f"{text.path.name}:{failed}: "
    said = sheet.hint.removeprefix(clash) if sheet.hint.startswith(clash) else sheet.why
    lines = [
        CodeLine(number, text.lines[number - 1], made.get(number, []), *(("wrong", said) if number == failed else ()))
        for number in _shown(text, set(made))
    ]
    return Anatomy(replace(report, why=sheet.why, hint=sheet.hint, detail=sheet.detail), lines)


def _recognised(trial: Trial, diagnosis: Diagnosis) -> Iterator[tuple[Recognition, bool]]:
    """What a candidate makes on an input that shows its fault, or on one where it has none; and whether it is right."""
    usable = [one for one in trial.observations if not one.probe.inputs.steps]
    for observation in sorted(usable, key=lambda one: one.comparison.agrees)[:1]:
        recognition = recognised(trial, diagnosis, observation)
        if recognition is not None:
            yield recognition, observation.comparison.agrees


# --- lines ------------------------------------------------------------------------------------------------------------


def _lines(recognition: Recognition, agrees: bool, report: Report) -> list[CodeLine]:
    """The lines of every definition that the candidate went through, file by file, its own behind those it imports."""
    texts, frontier = _texts(recognition.recording, report), Frontier(recognition, None)
    return [
        replace(line, file=shown(str(text.path)) if len(texts) > 1 else "")
        for text in texts
        for line in _lines_of(text, recognition, frontier, agrees, report)
    ]


def _lines_of(
    text: Text, recognition: Recognition, frontier: Frontier, agrees: bool, report: Report
) -> Iterator[CodeLine]:
    """The lines of the definitions in one file."""
    recording = recognition.recording
    known = {operation.place for operation in recording.operations if _is_known(recognition, operation.results)}
    made: dict[int, list[tuple[Made | None, bool]]] = {}
    for number, operation in enumerate(recording.operations):
        place = _place(recording, operation)
        if place is not None and Path(place.file) == text.path:
            needed = report.verdict is Verdict.RIGHT and number in frontier.slice
            for value in operation.results:
                right = needed or _is_right(frontier, value)
                entry = _made(recognition, operation, value, "" if operation.place in known else place.makes), right
                here = made.setdefault(place.line, [])
                here += [entry] if entry not in here else []
    blamed = _blamed(text, report.line)
    said = f"{report.faults[0].title}: {report.faults[0].explanation}" if report.faults else report.why
    said += WITHOUT_CACHE if agrees else ""
    for number in _shown(text, {*made, blamed} - {0}):
        yield _line(text, number, made.get(number, []), said if number == blamed else "")


def _is_known(recognition: Recognition, values: Sequence[int]) -> bool:
    return any(_seen(recognition, value) is not None for value in values)


def _is_right(frontier: Frontier, value: int) -> bool:
    """Whether a value is right; one that nothing is known of, where it was only needed for one that is."""
    known = _is_known(frontier.recognition, [value])
    return frontier.recognition.right(value) if known else value in frontier.cleared


def _line(text: Text, number: int, made: Sequence[tuple[Made | None, bool]], said: str) -> CodeLine:
    shown = [one for one, _ in made if one is not None]
    right = bool(shown) and all(is_right for _, is_right in made)
    mark: Mark = "wrong" if said else "right" if right else ""
    cell, line = cell_of(text.cells, number) if text.cells else (0, number)
    return CodeLine(line, text.lines[number - 1], _without_steps(_folded(shown)), mark, said, cell)


def _without_steps(made: Sequence[Made]) -> list[Made]:
    """What a line makes; of many kinds no steps: what no product makes, and something of its name comes of."""
    names = [one.name.partition(",")[0] for one in made]
    last = {name: place for place, name in enumerate(names)}
    kept = [one for place, one in enumerate(made) if one.product or last[names[place]] == place]
    return kept if len(made) > MOST_MADE else list(made)


def _folded(made: Sequence[Made]) -> list[Made]:
    """What a line makes, each kind once: a loop makes the same for one token, one head, after the other."""
    kinds: dict[tuple[object, ...], list[Made]] = {}
    for one in made:
        kinds.setdefault((one.name, one.stage, tuple(one.axes), one.product), []).append(one)
    folded = []
    for first, *others in kinds.values():
        more = f"{'; ' if first.note else 'and '}{len(others)} more, the last: {_where(others[-1])}" if others else ""
        folded.append(replace(first, note=first.note + more))
    return folded


def _where(made: Made) -> str:
    """An array without its name, which is known."""
    return str(replace(made, name="")).strip()


def _texts(recording: Recording, report: Report) -> list[Text]:
    """The user's files in which operations stand, that of the candidate last; of an installed one that with most."""
    places = (_place(recording, operation) for operation in recording.operations)
    files = Counter(place.file for place in places if place is not None)
    own = [file for file in files if is_own(file)] or [file for file, _ in files.most_common(1)]
    named = report.candidate.file and str(Path(report.candidate.file).resolve())
    return [text for file in sorted(own, key=lambda file: file == named) if (text := _text_of(Path(file))) is not None]


def _text_of(path: Path) -> Text | None:
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
        if line is not None and here.line == line.line and same_file(here.file, line.file):
            return number
    return 0


def _shown(text: Text, lines: set[int]) -> list[int]:
    """The lines of the outermost definitions that these lines stand in, empty ones left out."""
    shown: set[int] = set()
    for node in text.tree.body:
        span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if lines & set(span):
            shown |= set(span)
    return [number for number in sorted(shown) if text.lines[number - 1].strip()]


def _seen(recognition: Recognition, value: int) -> Sight | None:
    """What a value is: in the attention that is meant, else under the fault, else what it has most in common with."""
    sight = recognition.sights[value]
    return sight if recognition.right(value) else recognition.faulty[value] or sight


# --- what a line makes ------------------------------------------------------------------------------------------------


def _made(recognition: Recognition, operation: Operation, value: int, called: str) -> Made | None:
    """An array by what it is, else by what the code calls it; None for a nameless one that nothing is known of."""
    shape, sight = recognition.recording.values[value].array.shape, _seen(recognition, value)
    if sight is None:
        return Made(called, "", [""] * len(shape), shape) if called and shape else None
    named = [(axis, size) for axis, size in zip(sight.axes, shape, strict=False) if axis != REPEATED]
    products = _products(recognition, operation, value)
    notes = [f"{axis} {place}" for axis, place in sight.fixed.items()]
    notes += [f"times {sight.factor:.4g}"] if abs(sight.factor - 1) > 1e-9 else []
    notes += ["its entries in an order that is none of whole axes"] if sight.scrambled else []
    return Made(
        sight.name, str(sight.stage or ""), [axis for axis, _ in named], [size for _, size in named], ", ".join(notes),
        *_in_words(products),
    )  # fmt: skip


def _in_words(products: Sequence[Product]) -> tuple[str, str]:
    """Products in names and in numbers, several behind each other."""
    return ", ".join(one.names for one in products), ", ".join(one.numbers for one in products)


def _products(recognition: Recognition, operation: Operation, value: int) -> list[Product]:
    """The matrix products of arrays that are known, in names; the last of them with rows and columns as it is known."""
    shapes = [_shape(recognition, one) for one in arrays_of(operation)]
    known = [shape for shape in shapes if shape is not None]
    products = list(products_of(operation, known)) if len(known) == len(shapes) else []
    made = _shape(recognition, value)
    if products and made is not None and made.sizes[-2:] == products[-1].result.sizes:
        left, right = products[-1].left, products[-1].right
        rows = Shape((made.axes[-2], left.axes[1]), left.sizes)
        products[-1] = Product(rows, Shape((right.axes[0], made.axes[-1]), right.sizes))
    return products


def _shape(recognition: Recognition, value: int) -> Shape | None:
    sight, array = _seen(recognition, value), recognition.recording.values[value].array
    named = sight is not None and len(sight.axes) == array.ndim and all(sight.axes)
    return Shape(sight.axes, array.shape) if sight is not None and named else None


def _place(recording: Recording, operation: Operation) -> Place | None:
    return None if operation.place is None else recording.places[operation.place]
