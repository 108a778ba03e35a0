"""The report as workflow commands of GitHub Actions, which show it beside the line of code."""

from __future__ import annotations

from qkv.report.annotations import Annotation, annotations_of, path_in, root
from qkv.report.document import Report
from qkv.report.plain import harmless

# https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
_OF_TEXT = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_OF_PROPERTIES = _OF_TEXT | str.maketrans({":": "%3A", ",": "%2C"})


def to_github(report: Report) -> str:
    """The report as lines such as ``::error file=attention.py,line=5,endLine=5,title=qkv scale-missing::...``.

    An error for a wrong attention (one for each fault) and for one that could not be run, a warning for an undecided
    one, a notice for a right one.
    """
    return "".join(map(_command, annotations_of(harmless(report))))


def _command(annotation: Annotation) -> str:
    """One line. Python has no tool for this: the few characters that are escaped are those of GitHub's own toolkit."""
    place = {"file": path_in(root(), annotation.file)} if annotation.file else {}
    if annotation.line:
        place |= {"line": str(annotation.line), "endLine": str(annotation.end_line)}
    properties = place | {"title": f"qkv {annotation.rule.id}"}
    said = ",".join(f"{name}={value.translate(_OF_PROPERTIES)}" for name, value in properties.items())
    return f"::{annotation.level} {said}::{annotation.text.translate(_OF_TEXT)}\n"
