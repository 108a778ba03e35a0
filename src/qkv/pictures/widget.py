"""Widget: the view in a notebook, in JupyterLab, VS Code, Colab or marimo."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from qkv.pictures.page import asset


class AttentionWidget(anywidget.AnyWidget):
    """The view of a payload; see ``viewer/src/widget.ts``. Nothing comes back from it."""

    _esm = asset("widget.js")
    _css = asset("widget.css")

    payload = traitlets.Dict().tag(sync=True)

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload=payload)
