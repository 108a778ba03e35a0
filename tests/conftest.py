"""Turns the annotations of qkv's tensor code, shapes included, into checks for as long as the tests run.

Where arrays are made and changed, that is. The search over faults makes functions by the hundred thousand, and checking
each would cost minutes; mypy checks those modules. The hook works on import, so it must stand here: before any test
module has imported qkv.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from jaxtyping import config, install_import_hook

_EARLY = sorted(name for name in sys.modules if name.partition(".")[0] == "qkv")
if _EARLY:
    raise RuntimeError(f"types and shapes go unchecked in {', '.join(_EARLY)}: imported before tests/conftest.py")

CHECKED = [
    f"qkv.{name}" for name in ("layers", "masks", "model.language_model", "positions", "oracle", "shapes", "spec")
]
install_import_hook(CHECKED, "runtime_types.check")

# A shared machine may pause a test past any deadline. With CI set, hypothesis draws the same examples every time.
settings.register_profile("qkv", deadline=None, print_blob=True)
settings.load_profile("qkv")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No check of types and shapes, as at users' run time: for tests of what qkv itself says to a wrong argument."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
