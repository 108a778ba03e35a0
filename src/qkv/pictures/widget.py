"""Widget: the view in a notebook, in JupyterLab, VS Code, Colab or marimo."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets
from IPython.display import display
from markupsafe import Markup

from qkv.pictures.page import asset
from qkv.pictures.still import still


class AttentionWidget(anywidget.AnyWidget):
    """The view of a payload; see ``viewer/src/widget.ts``. Nothing comes back from it."""

    _esm = asset("widget.js")
    _css = asset("widget.css")

    payload = traitlets.Dict().tag(sync=True)
    stand_in = traitlets.Unicode().tag(sync=True)
    """The id of the element that stands in for the widget, which the script hides."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload=payload)
        self.stand_in = f"qkv-still-{self.model_id}"

    def _ipython_display_(self) -> None:
        """Nothing; shows the widget, and before it pictures that stay where it can't be.

        Two outputs, since JupyterLab shows an error in the place of one whose widget is gone, whatever else it holds.
        """
        pictures = Markup('<div id="{}">{}</div>').format(self.stand_in, Markup(still(self.payload)))
        display({"text/html": str(pictures), "text/plain": self.payload["title"]}, raw=True)  # type: ignore[no-untyped-call]
        bundle, metadata = self._repr_mimebundle_() or ({}, {})
        bundle.pop("text/plain", None)
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
