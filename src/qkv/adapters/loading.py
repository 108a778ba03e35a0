"""From ``path/to/file.py:Name`` to the object of that name, loaded as Python itself would load it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from qkv.adapters import choosing
from qkv.adapters.code_lines import code_lines
from qkv.adapters.messages import AS_THEY_STAND
from qkv.adapters.replaced import with_builtins
from qkv.adapters.sources import parsed_file, syntax_error
from qkv.adapters.targets import existing_file, split_target
from qkv.adapters.texts import is_notebook, text_of
from qkv.adapters.tracebacks import ELSEWHERE, raised
from qkv.errors import CandidateError, nearest

_INSTALLED_AS = {
    "torch": "'qkv[torch]'",
    "transformers": "'qkv[hf]'",
    **{name: name for name in ("einops", "jax", "scipy", "matplotlib", "pandas", "tqdm", "triton", "xformers", "timm")},
    "flash_attn": "flash-attn",
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "bs4": "beautifulsoup4",
}
"""What pip calls the packages whose modules are imported under these names."""


@dataclass(frozen=True)
class Loaded:
    """A candidate that was found.

    Attributes:
        name: the name it was found under.
        value: the object itself.
        file: its file as given, or where its module stands.
        members: names of the other candidates in the same file.
        beside: names of those that are likely meant as much; none where the user has named one.
        module: the module it was found in.
    """

    name: str
    value: Any
    file: str
    members: Sequence[str]
    beside: Sequence[str]
    module: ModuleType


def load(target: str, instead: Mapping[str, bytes] = AS_THEY_STAND) -> Loaded:
    """The object that a target names; the one attention in the file where it names none.

    Args:
        target: ``path/to/file.py``, ``path/to/file.py:Name`` or ``package.module:Name``; a name may be dotted.
        instead: texts to run in place of what files hold, by their absolute paths.

    Raises:
        CandidateError: there is no such file or name, the file can't be run, or it holds no one attention.
    """
    path, name = split_target(target)
    typed = path
    tree: ast.Module | None
    if path.lower().endswith((".py", ".ipynb")):
        file = existing_file(path)
        if is_notebook(path):
            instead = {**instead, str(file): text_of(path, instead.get(str(file))).source.encode()}
        _hold_to(instead, file)
        parsed = tree = parsed_file(file, path, instead.get(str(file)))
        module = _import_file(file, path, parsed)
    else:
        module = _import_module(path)
        path = getattr(module, "__file__", None) or path
        tree = _tree_of(module)
    members = choosing.candidates(module, tree)
    beside: Sequence[str] = ()
    if not name:
        name = choosing.choose(module, tree, typed)
        beside = choosing.beside(module, tree, name)
    value = _find(module, name, typed, members)
    return Loaded(name, value, path, [one for one in members if one != name], beside, module)


def _import_file(file: Path, shown: str, tree: ast.Module) -> ModuleType:
    """The module of a file; by its package's name where it imports from its package in relative terms."""
    root, names = file.parent, [] if file.stem == "__init__" else [file.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier() and root.parent != root:
        names.insert(0, root.name)
        root = root.parent
    leave_no_bytecode(root)
    _search_in(root, file.parent)
    if len(names) > 1 and "." not in file.stem and _is_relative(tree):
        return _run(lambda: importlib.import_module(".".join(names)), shown, str(file))
    return _run(lambda: _execute(file), shown, str(file))


def _execute(file: Path) -> ModuleType:
    """The module of a file that stands by itself, run under its own name unless that is taken."""
    name = file.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"_candidate_{name}"
    loader = _FreshLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _is_relative(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _import_module(name: str) -> ModuleType:
    leave_no_bytecode(Path.cwd())
    _search_in(Path.cwd(), Path.cwd())
    return _run(lambda: importlib.import_module(name), name, "", target=name)


def _run(action: Callable[[], ModuleType], shown: str, file: str, target: str = "") -> ModuleType:
    try:
        return with_builtins(action, shown)
    except ModuleNotFoundError as error:
        raise _not_installed(error, shown, file, target) from None
    except SyntaxError as error:
        raise syntax_error(error, error.filename or shown) from None
    except BaseException as error:
        failure = raised(f"importing {shown}", error, file)
        if isinstance(error, ImportError) and "relative import" in str(error):
            failure.hint = _relative_advice(Path(file))
        raise failure from error


def _relative_advice(file: Path) -> str:
    """What makes a file's relative imports work: to import by name, or to make packages of the folders above it."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        nodes = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.ImportFrom)]
        deepest = max((node.level for node in nodes), default=1)
        bare = [folder for folder in file.parents[:deepest] if not (folder / "__init__.py").is_file()]
        first = next(node for node in nodes if node.level)
        names = ", ".join(one.name for one in first.names)
        plain = f"from {first.module} import {names}" if first.module else f"import {names}"
        places = " and into ".join(str(folder) for folder in bare) or str(file.parent)
        return f"write `{plain}`, or make it a package: put an __init__.py into {places}"
    return f"put an __init__.py into {file.parent}, so that it is a package"


def _not_installed(error: ModuleNotFoundError, shown: str, file: str, target: str) -> CandidateError:
    missing = error.name or ""
    if target and (target == missing or target.startswith(missing + ".")):
        return CandidateError(f"no such file or module: {target}", hint="give a file: path/to/file.py:Attention")
    failure = raised(f"importing {shown}", error, file)
    package = missing.partition(".")[0]
    if package in sys.modules or not package:
        return failure
    hint = f"pip install {_INSTALLED_AS.get(package, package)}"
    if package not in _INSTALLED_AS:
        hint += f"; or, if it is a file of your own, put its folder first: PYTHONPATH=FOLDER qkv check {shown}"
    return CandidateError(f"{shown} needs {package}, which is not installed", hint=hint, detail=failure.detail)


def _find(module: ModuleType, name: str, shown: str, members: Sequence[str]) -> Any:
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            inside = [one for one in _inside(module) if one.endswith(f".{name}")]
            known = inside or members or [one for one in vars(module) if not one.startswith("_")]
            hint = nearest(name, known) if known else "it defines nothing"
            raise CandidateError(f"{shown} has no {name!r}", hint=hint) from None
    if not callable(value) and not callable(getattr(value, "forward", None)):
        hint = f"these can be checked: {', '.join(members)}" if members else ""
        raise CandidateError(f"{name} in {shown} is a {type(value).__name__}, which can't be called", hint=hint)
    return value


def _inside(module: ModuleType) -> list[str]:
    """Dotted names of what the classes of a module define within them."""
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    return [f"{one.__name__}.{name}" for one in classes for name, value in vars(one).items() if callable(value)]


def _tree_of(module: ModuleType) -> ast.Module | None:
    try:
        return ast.parse(Path(str(module.__file__)).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _search_in(root: Path, folder: Path) -> None:
    """Nothing; puts the root in front of the import path, and the file's folder and the working directory at its end.

    The folder of a file in a package is not its root, and may hold a ``types.py`` that must not pass for Python's.
    """
    if str(root) in sys.path:
        sys.path.remove(str(root))
    sys.path.insert(0, str(root))
    sys.path += [str(one) for one in (folder, Path.cwd()) if str(one) not in sys.path]


_INSTEAD: dict[str, bytes] = {}
"""Texts that are run in place of what files hold."""


def _hold_to(texts: Mapping[str, bytes], candidate: Path) -> None:
    """Nothing; from now on these files are run, and quoted, as if they held these texts, and all others as they stand.

    Modules that were made of what is no longer so are forgotten. Where it is but the candidate's own, those that it
    imports may stay.
    """
    changed = {path for path in {*_INSTEAD, *texts} if _INSTEAD.get(path) != texts.get(path)}
    _INSTEAD.clear()
    _INSTEAD.update(texts)
    for path in changed:
        linecache.cache.pop(path, None)
        if path in texts:
            with contextlib.suppress(SyntaxError, ValueError):
                lines = code_lines(importlib.util.decode_source(texts[path]), keepends=True)
                linecache.cache[path] = (len(texts[path]), None, lines, path)
    alone = changed <= {str(candidate)}
    for name, module in list(sys.modules.items()) if changed else ():
        users = isinstance(getattr(module, "__loader__", None), _QuietLoader)
        if users and not (alone and getattr(module, "__file__", "") != str(candidate)):
            del sys.modules[name]


class _QuietLoader(importlib.machinery.SourceFileLoader):
    """Leaves no ``__pycache__`` beside the file it loads."""

    def get_data(self, path: str) -> bytes:
        """The bytes of the file, or what is run in their place."""
        return _INSTEAD[path] if path in _INSTEAD else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the file; nothing that was compiled before, where something else is run in its place."""
        path = self.get_filename(fullname)
        return self.source_to_code(_INSTEAD[path], path) if path in _INSTEAD else super().get_code(fullname)

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        """Nothing, on purpose."""


class _FreshLoader(_QuietLoader):
    """Runs a file's source as it stands now, whatever was compiled of it before."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def leave_no_bytecode(root: Path) -> None:
    """Nothing; from now on imports from this folder leave no ``__pycache__`` in it.

    Not PYTHONDONTWRITEBYTECODE: where an installer has not compiled torch, that would compile it anew in every run.
    """
    details = [
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_QuietLoader, importlib.machinery.SOURCE_SUFFIXES),
    ]
    make = importlib.machinery.FileFinder.path_hook(*details)
    inside = str(root)

    def hook(path: str) -> Any:
        if path.startswith(ELSEWHERE) or "site-packages" in path or not Path(path).is_relative_to(root):
            raise ImportError(path)
        return make(path)

    if inside not in _QUIET:
        _QUIET.add(inside)
        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()


_QUIET: set[str] = set()
