"""Which files of the user's own a file imports, whether they are there, broken, or yet to be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.cli.imports import files_behind


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def write(folder: Path, **files: str) -> Path:
    """The first of the files; ``a__b`` is ``a/b.py``."""
    places = [folder / f"{name.replace('__', '/')}.py" for name in files]
    for place, text in zip(places, files.values(), strict=True):
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return places[0]


def test_imports_of_imports(folder: Path) -> None:
    start = write(
        folder,
        attention="import math, torch.nn\nfrom helper import scale",
        helper="def f():\n    import deep.er as d",
        deep__er="",
        other="",
    )
    found = {str(place.relative_to(folder)) for place in files_behind(start) if place.is_file()}
    assert found == {"attention.py", "helper.py", "deep/er.py"}


def test_a_file_that_is_broken_or_not_there_counts(folder: Path) -> None:
    start = write(folder, attention="import helper, later", helper="def (:")
    assert {folder / "helper.py", folder / "later.py", folder / "later" / "__init__.py"} <= files_behind(start)
    assert files_behind(write(folder, attention="def (:")) == {start}
    assert files_behind(folder / "nothing.py") == {folder / "nothing.py"}


def test_relative_imports_and_the_package_around(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    start = write(
        package, attention="from . import rope\nfrom .masks import causal\nimport package.more\nfrom ... import x"
    )
    write(package, rope="from package.inner import y", masks="", more="", inner="")
    found = {place.name for place in files_behind(start) if place.is_file()}
    assert found == {"attention.py", "rope.py", "masks.py", "more.py", "inner.py", "__init__.py"}


def test_the_file_behind_a_link(folder: Path) -> None:
    real = write(folder, real="")
    link = folder / "attention.py"
    link.symlink_to(real)
    assert files_behind(link) == {link, real}


def test_files_that_import_each_other(folder: Path) -> None:
    start = write(folder, attention="import helper", helper="import attention")
    assert {place.name for place in files_behind(start) if place.is_file()} == {"attention.py", "helper.py"}
