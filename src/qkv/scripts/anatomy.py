"""A script's lines with what each of them makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qkv.adapters.messages import ScriptRun
from qkv.adapters.notebooks import cell_of
from qkv.adapters.recording import Operation, Place
from qkv.adapters.texts import Text
from qkv.recognition.arrangement import REPEATED
from qkv.report.anatomy import CodeLine, Made, Mark
from qkv.scripts.findings import Finding
from qkv.scripts.known import Known, Sight
from qkv.scripts.possible import PRODUCTS
from qkv.scripts.reading import Reading, refs
from qkv.shapes import Product, Shape

_STAGES = {
    "split": "heads",
    "product": "scores",
    "renormalise": "softmax",
    "drop": "dropout",
    "exp": "softmax",
    "given": "",
    "derived": "",
    "order": "",
}
"""The stages of moves that have another name."""
_NAMES = {"scores": "attn_scores", "weights": "attn_weights"}
MOST_MADE = 4
"""Arrays that are named beside one line; a loop makes the same again and again."""


def lines_of(text: Text, run: ScriptRun, reading: Reading, findings: Sequence[Finding]) -> list[CodeLine]:
    """Every line of a script that is not empty, with what it makes and what is wrong there."""
    wrong: dict[int, list[str]] = {run.line: [f"it stops here: {run.error}"]} if run.error else {}
    for finding in findings:
        wrong.setdefault(line_of(reading, finding), []).append(finding.said)
    made: dict[int, list[Made]] = {}
    for line, one in _made(reading):
        if one not in made.setdefault(line, []):
            made[line].append(one)
    spoilt = {known for one in findings for known in _made_wrongly(reading, one)}
    right = {line for line, known in _knowns(reading) if not spoilt & set(known.chain())}
    found = []
    for number, code in enumerate(text.lines, 1):
        if not code.strip():
            continue
        here, makes = wrong.get(number, []), made.get(number, [])[-MOST_MADE:]
        mark: Mark = "wrong" if here else "right" if makes and number in right else ""
        cell, line = cell_of(text.cells, number) if text.cells else (0, number)
        found.append(CodeLine(line, code, makes, mark, "\n".join(here), cell))
    return found


def place_of(reading: Reading, finding: Finding) -> Place | None:
    """The expression that is to be written anew; None where that isn't known."""
    return finding.place or reading.place(finding.operation)


def line_of(reading: Reading, finding: Finding) -> int:
    """The line to change: that of the operation, or of the call that it is changed at.

    A helper that takes the axis as an argument is right, and its caller wrong.
    """
    place = reading.place(finding.operation)
    if place is None:
        return 0
    called = finding.place is not None and finding.place in reading.calls(finding.operation)
    return finding.place.line if finding.place is not None and called else place.line


def _made_wrongly(reading: Reading, finding: Finding) -> Iterator[Known]:
    for value in reading.operations[finding.operation].results if finding.operation >= 0 else ():
        if value in reading.sights:
            yield reading.sights[value].known


def _knowns(reading: Reading) -> Iterator[tuple[int, Known]]:
    return ((reading.line(value), sight.known) for value, sight in reading.sights.items())


def _made(reading: Reading) -> Iterator[tuple[int, Made]]:
    for operation in reading.operations:
        for value in operation.results:
            sight = reading.sights.get(value)
            if sight is not None and (reading.name(value) or operation.name in PRODUCTS):
                yield reading.line(value), _described(reading, operation, value, sight)


def _described(reading: Reading, operation: Operation, value: int, sight: Sight) -> Made:
    known = sight.known
    named = reading.axes(sight)
    axes = [axis for axis in named if axis != REPEATED]
    shape = [size for axis, size in zip(named, reading.array(value).shape, strict=True) if axis != REPEATED]
    product = product_of(reading, operation, sight)
    name = _name(known)
    return Made(
        name, "output" if name == "output" else _STAGES.get(known.move, known.move), axes, shape, _note(sight),
        product.names if product else "", product.numbers if product else "",
    )  # fmt: skip


def _name(known: Known) -> str:
    if known.kind == "tokens":
        return known.role or "tokens"
    if known.kind == "matrix":
        return f"{known.role or 'a'} projection"
    if known.kind == "scores" and known.move in ("scale", "mask"):
        return f"{'scaled' if known.move == 'scale' else 'masked'} attn_scores"
    if known.kind == "context" and known.move == "project":
        return "output"
    return "exp(attn_scores)" if known.move == "exp" else _NAMES.get(known.kind, known.kind)


def _note(sight: Sight) -> str:
    known = sight.known
    where = ", ".join(f"{axis} {place}" for axis, place in sight.fixed.items())
    parts = [f"of {where}" if where else ""]
    if known.move == "scale" and known.kind in ("scores", "tokens"):
        parts.append(f"times {known.number:.4g}")
    if known.kind == "weights" and known.move in ("softmax", "renormalise") and known.over:
        parts.append("each row sums to one" if known.over == "key" else f"sums to one over the {known.over} axis")
    return ", ".join(part for part in parts if part)


def product_of(reading: Reading, operation: Operation, sight: Sight) -> Product | None:
    """The matrix product that was made, in names; None where it is none of two matrices that are known."""
    operands = [reading.sights.get(value) for value in refs(operation.arguments)]
    if operation.name not in ("matmul", "mm", "bmm", "linear") or len(operands) < 2:
        return None
    shapes = [_matrix(reading, value, sight) for value in list(refs(operation.arguments))[:2]]
    left, right = shapes
    if right is not None and operation.name == "linear":
        right = Shape(right.axes[::-1], right.sizes[::-1])  # it multiplies by the weight transposed
    if left is None or right is None or left.sizes[1] != right.sizes[0]:
        return None
    return Product(left, right)


def _matrix(reading: Reading, value: int, result: Sight) -> Shape | None:
    """The last two axes of an operand, a token's axis by what it is in the result."""
    sight, array = reading.sights.get(value), reading.array(value)
    if sight is None or array.ndim < 2:
        return None
    axes = reading.axes(sight)[-2:]
    if sight.known.kind == "tokens" and result.known.kind == "scores":
        first = bool(result.known.sources) and sight.known is result.known.sources[0] and axes[1] != "token"
        axes = tuple(("query" if first else "key") if axis == "token" else axis for axis in axes)
    if sight.known.kind == "tokens" and result.known.kind == "context":
        axes = tuple("key" if axis == "token" else axis for axis in axes)
    sizes = array.shape[-2], array.shape[-1]
    return Shape((axes[0], axes[1]), sizes)
