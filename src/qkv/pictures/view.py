"""View: attention weights to be looked at, in a page or a notebook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from qkv.errors import QkvError, SpecError
from qkv.pictures.attention import Attention
from qkv.pictures.page import environment, page
from qkv.pictures.page_file import write_whole
from qkv.pictures.payload import Parts, Payload, built
from qkv.pictures.still import still

if TYPE_CHECKING:
    from qkv.pictures.widget import AttentionWidget

Progress = Callable[[float], None]
"""Is told the share of the work done since it was told last."""


@dataclass(frozen=True, kw_only=True)
class AttentionView(Attention):
    """Attention weights to be looked at; its attributes are those of :class:`Attention`."""

    def payload(self, progress: Progress = lambda share: None) -> Payload:
        """What the viewer shows, all in one; see ``viewer/src/payload.ts``."""
        return built(self, progress).whole()

    def html(self, progress: Progress = lambda share: None) -> str:
        """A page of its own; the finer pictures stand behind what is seen first."""
        return self._page(built(self, progress))

    def save(self, path: str | Path, progress: Progress = lambda share: None) -> Path:
        """The path of the page, which is written there whole or not at all.

        Raises:
            SpecError: it is a folder.
            OSError: it can't be written.
        """
        path = Path(path)
        if path.is_dir():
            raise SpecError(f"{str(path)!r} is a folder; name a file: view.save('show.html')")
        write_whole(path, self.html(progress))
        return path

    def widget(self, progress: Progress = lambda share: None) -> AttentionWidget:
        """The view as a widget of a notebook, which fits into it; without ``anywidget`` the page in a frame is shown.

        Raises:
            QkvError: anywidget is not installed.
        """
        try:
            from qkv.pictures.widget import AttentionWidget
        except ModuleNotFoundError as error:
            if error.name not in ("anywidget", "traitlets"):
                raise
            raise QkvError('a widget needs anywidget, which is not installed: pip install "qkv[notebook]"') from None
        return AttentionWidget(self.payload(progress))

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that it and the notebook leave each other alone.

        What a notebook that isn't trusted makes of the frame is what is in it: pictures.
        """
        parts = built(self, lambda share: None)
        template = '<iframe srcdoc="{}" title="{}" sandbox="allow-scripts" style="{}">{}</iframe>'
        style = "width: 100%; height: 46rem; border: 0"
        return str(Markup(template).format(self._page(parts), self.title, style, Markup(still(parts.whole()))))

    def _page(self, parts: Parts) -> str:
        body = environment("qkv.pictures").get_template("view.html").render(title=self.title)
        return page(self.title, body, "attention", data={"attention": parts.first()}, details=parts.details())
