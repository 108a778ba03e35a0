"""Page: one HTML file that holds all it needs, and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def asset(name: str) -> str:
    """The text of a file that the viewer's build has made: ``viewer.js`` or ``viewer.css``."""
    return (resources.files("qkv.pictures") / "assets" / name).read_text("utf-8")


@cache
def environment(package: str) -> Environment:
    """The templates of a package; whatever they are given is escaped."""
    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def page(
    title: str,
    body: str,
    kind: Literal["attention", "report", "walk"],
    *,
    data: Mapping[str, Mapping[str, Any]] | None = None,
    details: Iterable[Mapping[str, Any]] = (),
) -> str:
    """A whole page, which shows the same without a network and sends nothing.

    Args:
        title: its title; escaped.
        body: its content as HTML; what came from a user has to be escaped already.
        kind: which style sheet it has beside what every page shares.
        data: what the viewer shows, by the id of the element in which it does; see ``viewer/src/payload.ts``.
        details: what the viewer takes when it is needed; it comes last, so that the first view needn't wait.
    """
    script = asset("viewer.js") if data else ""
    text = environment("qkv.pictures").get_template("page.html").render(
        title=title,
        body=Markup(body),
        style=Markup(asset("viewer.css") + asset(f"{kind}.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=[(place, as_data(payload)) for place, payload in (data or {}).items()],
        details=map(as_data, details),
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode()  # half a character in a title can't be stored


def as_data(payload: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: nothing in it ends the element or begins another."""
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""What would end a script element or a line of it, and halves of characters, which no UTF-8 holds."""
