"""The repair is written whole or not at all, and only over what was judged."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from qkv.errors import CandidateError
from qkv.repair import patch_between, write

BEFORE = b"\xef\xbb\xbfdef f(x):\r\n    y = x / 2\r\n    return y\r\n"
AFTER = BEFORE.replace(b"/ 2", b"* 2")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "attention.py"
    path.write_bytes(BEFORE)
    path.chmod(0o640)
    return path


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_patch_says_which_line_changes() -> None:
    patch = patch_between("a/b.py", BEFORE, AFTER)
    assert (patch.line, patch.before, patch.after) == (2, "    y = x / 2", "    y = x * 2")
    assert patch.diff.splitlines()[-3:-1] == ["-    y = x / 2", "+    y = x * 2"]
    assert (patch.original, patch.edited) == (BEFORE, AFTER)


def test_lines_that_are_added_stand_before_none() -> None:
    patch = patch_between("b.py", b"a\nb\n", b"a\nnew\nb\n")
    assert (patch.line, patch.before, patch.after) == (2, "", "new")


def test_the_file_keeps_its_mode_and_gets_the_text(file: Path) -> None:
    write(patch_between(str(file), BEFORE, AFTER))
    assert file.read_bytes() == AFTER
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert left_in(file.parent) == ["attention.py"]


def test_a_link_is_followed(file: Path) -> None:
    link = file.with_name("link.py")
    link.symlink_to(file)
    write(patch_between(str(link), BEFORE, AFTER))
    assert link.is_symlink()
    assert file.read_bytes() == AFTER


def test_what_is_read_only_is_left_alone(file: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(CandidateError, match=r"attention\.py is read-only") as caught:
        write(patch_between(str(file), BEFORE, AFTER))
    assert caught.value.hint == f"chmod u+w {file}"
    assert file.read_bytes() == BEFORE


def test_what_has_changed_since_is_left_alone(file: Path) -> None:
    patch = patch_between(str(file), BEFORE, AFTER)
    file.write_bytes(BEFORE + b"# more\r\n")
    with pytest.raises(CandidateError, match="has changed since it was judged"):
        write(patch)
    assert file.read_bytes() == BEFORE + b"# more\r\n"
    assert left_in(file.parent) == ["attention.py"]


def test_what_is_gone_is_said(file: Path) -> None:
    file.unlink()
    with pytest.raises(CandidateError, match="can't be written: No such file"):
        write(patch_between(str(file), BEFORE, AFTER))
