"""Judges the adapters of examples/, as a user would; with a planted fault where one is asked for.

The tests run this in a process of its own, where the checks of types and shapes that they put on qkv are not in place.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from plants import Model, Plant
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from qkv.adapters.host import Host
from qkv.cli.options import given_fields
from qkv.debugger import judge
from qkv.request import Request

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@dataclass(frozen=True)
class Judgement:
    """What a test needs of a report.

    Attributes:
        verdict: right, wrong, undecided or failed.
        faults: ids of the faults named.
        why: the reason, where there is no verdict or no fault.
        line: number of the line that is blamed; 0 where none is.
        until: number of the line before which something is left out; that of the line itself where nothing is.
    """

    verdict: str
    faults: list[str]
    why: str
    line: int = 0
    until: int = 0


def by_config(candidate: str) -> Judgement:
    """The judgement that ``qkv check --spec config.json`` comes to."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.json"
        config.write_text(config_of(candidate))
        given, whole = given_fields({"spec_file": str(config)})
    return _judged(Request(str(EXAMPLES / candidate), given, whole))


def by_fields(candidate: str, given: Mapping[str, Any]) -> Judgement:
    """The judgement by some fields of the spec or none; the candidate is in examples/, unless it has a whole path."""
    return _judged(Request(str(EXAMPLES / candidate), given))


def with_plant(model: Model, plant: Plant) -> Judgement:
    """The judgement on a model with one line of it changed."""
    with put_in_place(model.module, plant):
        return by_fields(model.candidate, model.given) if model.given else by_config(model.candidate)


def config_of(candidate: str) -> str:
    """The adapter's model config, as the model's files would hold it."""
    path = EXAMPLES / candidate.partition(":")[0]
    found = importlib.util.spec_from_file_location(f"examples_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with mock.patch.dict(sys.modules, {found.name: module}):
        found.loader.exec_module(module)
    return module.CONFIG.to_json_string()


def _judged(request: Request) -> Judgement:
    report = judge(request, Host())
    line = 0 if report.line is None else report.line.line
    return Judgement(
        report.verdict.value,
        [fault.id for fault in report.faults],
        f"{report.why} {report.detail}".strip(),
        line,
        (None if report.line is None else report.line.until) or line,
    )


@contextmanager
def put_in_place(home: str, plant: Plant) -> Iterator[None]:
    """Meanwhile the changed source stands in the place of the original."""
    other, _, name = plant.where.rpartition(":")
    module = importlib.import_module(other or home)
    source = inspect.getsource(getattr(module, name))
    assert plant.line in source, f"the library has changed: {plant.line!r} is not in {name}"
    made: dict[str, Any] = {}
    exec(source.replace(plant.line, plant.instead, 1), vars(module), made)  # noqa: S102 - the library's own source
    registry = {"sdpa": made[name]} if name == "sdpa_attention_forward" else {}
    with (
        mock.patch.object(module, name, made[name]),
        mock.patch.dict(ALL_ATTENTION_FUNCTIONS._global_mapping, registry),
    ):
        yield
