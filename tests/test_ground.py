"""The promises the project makes about itself: what it imports, who imports whom, and its version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {contract["id"]: contract["name"] for contract in SETTINGS["tool"]["importlinter"]["contracts"]}

HELP = """
import sys
from qkv.cli import main
sys.argv = ["qkv", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
LOADED = """
import sys
print("loaded:", *sorted({"torch", "transformers", "jax"} & sys.modules.keys()))
"""


def last_line_of(code: str) -> str:
    """What a fresh Python prints last when it runs the code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import qkv", HELP], ids=["import qkv", "qkv --help"])
def test_no_framework_is_loaded_before_one_is_needed(code: str) -> None:
    assert last_line_of(code + LOADED) == "loaded:"


def test_a_loaded_framework_would_have_been_seen() -> None:
    assert last_line_of("import torch" + LOADED) == "loaded: torch"


def lint_imports(directory: Path) -> str:
    """What import-linter says about the qkv in the directory, which stands before the installed one on the path."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", directory / "pyproject.toml"],
        env={**os.environ, "PYTHONPATH": str(directory / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its settings, to plant a violation in."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_on_imports_is_kept(copy: Path) -> None:
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in lint_imports(copy)


@pytest.mark.parametrize(
    ("contract", "module", "line"),
    [
        ("layers", "errors.py", "import qkv.spec"),
        ("layers", "without_a_place.py", ""),
        ("judge", "oracle/planted.py", "import qkv.layers.causal"),
        ("judge", "oracle/planted.py", "from qkv.layers import CausalAttention"),
        ("frameworks", "oracle/planted.py", "import torch"),
        ("frameworks", "spec/planted.py", "def late() -> None:\n    from transformers import AutoConfig"),
        ("cycles", "layers/rope.py", "import qkv.layers.multi_head"),
    ],
)
def test_a_planted_violation_is_caught(copy: Path, contract: str, module: str, line: str) -> None:
    with (copy / "src" / "qkv" / module).open("a", encoding="utf-8") as planted:
        planted.write(f"\n\n{line}\n")
    assert f"{CONTRACTS[contract]} BROKEN" in lint_imports(copy)


def test_the_version_is_the_same_wherever_it_stands() -> None:
    version = SETTINGS["project"]["version"]
    assert metadata.version("qkv") == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert last_line_of("import qkv; print(getattr(qkv, '__version__', None))") in ("None", version)
