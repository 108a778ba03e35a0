"""The files of the user's own that a candidate's file imports, found without running any of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path


def files_behind(file: Path) -> set[Path]:
    """The file, and every place where an import in it, or in what it imports, would find a file of the user's.

    A place counts whether or not a file is there yet, and a broken file as well as a sound one: to write it mends the
    import. Folders that are searched are those of the file, of its package, and the working directory.
    """
    found, unread = {file}, [file]
    bases = {*_packages_of(file), Path.cwd()}
    while unread:
        new = set(_imported(unread.pop(), bases)) - found
        found |= new
        unread += [place for place in new if place.is_file()]
    return found | {place.resolve() for place in found if place.is_symlink()}


def _packages_of(file: Path) -> Iterator[Path]:
    """The file's folder; and where that is a package the folder around it, and so on."""
    for folder in file.parents:
        yield folder
        if not (folder / "__init__.py").is_file():
            return


def _imported(file: Path, bases: set[Path]) -> Iterator[Path]:
    tree = ast.Module([], [])
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _places(bases, alias.name)
        elif isinstance(node, ast.ImportFrom):
            inside = {file.parents[node.level - 1]} if 0 < node.level <= len(file.parents) else bases
            for alias in node.names:
                yield from _places(inside, f"{node.module}.{alias.name}" if node.module else alias.name)


def _places(bases: set[Path], name: str) -> Iterator[Path]:
    """Where ``a.b`` and the packages that it is in may stand: ``a.py``, ``a/__init__.py``, ``a/b.py`` ..."""
    for base in bases:
        for path in accumulate(name.split("."), Path.__truediv__, initial=base):
            yield from (path.with_name(f"{path.name}.py"), path / "__init__.py")
