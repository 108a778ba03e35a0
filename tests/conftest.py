"""Turns every annotation of qkv, shapes included, into a check for as long as the tests run.

The hook works on import, so it must stand here: before any test module has imported qkv.
"""

from __future__ import annotations

import sys

from jaxtyping import install_import_hook

_EARLY = sorted(name for name in sys.modules if name.partition(".")[0] == "qkv")
if _EARLY:
    raise RuntimeError(f"types and shapes go unchecked in {', '.join(_EARLY)}: imported before tests/conftest.py")

install_import_hook("qkv", "runtime_types.check")
