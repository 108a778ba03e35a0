"""A dump opened: what kind it is is told by its name, and what it holds without reading any numbers yet."""

from __future__ import annotations

from pathlib import Path

from qkv.adapters.dump.numpy_files import array_contents, folder_contents, npz_contents
from qkv.adapters.dump.safetensors_file import safetensors_contents
from qkv.adapters.dump.stored import Contents
from qkv.adapters.dump.torch_file import torch_contents
from qkv.errors import CandidateError, nearest

SUFFIXES = (".safetensors", ".npz", ".npy", ".pt", ".pth")


def is_dump(target: object) -> bool:
    """Whether a target names a dump: a file of tensors by its suffix, or a folder with such files in it."""
    if not isinstance(target, str | Path):
        return False
    path = Path(target)
    return path.suffix.lower() in SUFFIXES or (path.is_dir() and not any(path.glob("*.py")))


def open_dump(target: str | Path, time_limit: float, memory_limit: int, *, alone: bool = False) -> Contents:
    """Every tensor of a dump by its name, its numbers not read yet.

    Args:
        target: a ``.safetensors``, ``.npz``, ``.pt`` or ``.pth`` file, or a folder of ``.npy`` files.
        time_limit: seconds that reading may take, where another process does it.
        memory_limit: bytes that process may take.
        alone: whether an ``.npy`` file will do, which holds one array alone.

    Raises:
        CandidateError: there is no such dump, it is empty, or it can't be read.
    """
    path = Path(target).expanduser()
    _must_exist(path)
    suffix = path.suffix.lower()
    if path.is_dir():
        contents = folder_contents(path)
    elif suffix == ".safetensors":
        contents = safetensors_contents(path)
    elif suffix == ".npz":
        contents = npz_contents(path)
    elif suffix == ".npy" and alone:
        contents = array_contents(path)
    elif suffix == ".npy":
        raise CandidateError(f"{path} is one array alone", hint=f"name the folder with all of them: {path.parent}")
    else:
        contents = torch_contents(path, time_limit, memory_limit)
    if not contents:
        raise CandidateError(f"{path} holds no tensor", hint="dump at least query, key, value and output")
    return contents


def _must_exist(path: Path) -> None:
    if path.is_dir():
        return
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        names = (
            [file.name for file in path.parent.iterdir() if file.suffix in SUFFIXES][:200]
            if path.parent.is_dir()
            else []
        )
        reason = (
            "no such file" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", "") or str(error)
        )
        near = nearest(path.name, names) if names else f"no dump is in {path.parent}"
        raise CandidateError(f"{path} can't be read: {reason}", hint=near) from None
    if not path.is_file():
        raise CandidateError(f"{path} is no regular file", hint="write the tensors into a file first")
    if size == 0:
        raise CandidateError(f"{path} is empty", hint="the program that writes it may not have closed it")
