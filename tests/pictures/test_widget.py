"""The view in a notebook: what the widget holds and shows, and what stands in for it."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import qkv
from qkv.errors import QkvError
from qkv.pictures.attention import LayerWeights
from qkv.pictures.page import asset
from qkv.pictures.still import still
from qkv.pictures.view import AttentionView
from qkv.pictures.weights import GivenWeights

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def view() -> AttentionView:
    heads = [GivenWeights(name="head 0", weights=np.array([[1.0, np.nan], [0.25, 0.75]]))]
    return AttentionView(layers=[LayerWeights("layer 0", heads)], tokens=["cat", HOSTILE], title="two tokens")


def test_the_widget_carries_the_payload_and_the_viewer(view: AttentionView) -> None:
    widget = view.widget()
    state = widget.get_state()
    assert state["payload"] == view.payload()
    assert json.loads(json.dumps(state["payload"], allow_nan=False))["key_tokens"] == ["cat", HOSTILE]
    assert (state["_esm"], state["_css"]) == (asset("widget.js"), asset("widget.css"))
    assert "export{" in state["_esm"].replace(" ", "")


def test_a_notebook_is_given_the_widget_to_show(view: AttentionView) -> None:
    bundle, _ = view.widget()._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]


def test_pictures_stand_in_for_the_widget_in_an_output_of_their_own(
    view: AttentionView, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs: list[dict[str, str]] = []
    monkeypatch.setattr("qkv.pictures.widget.display", lambda bundle, **_: outputs.append(bundle))
    widget = view.widget()
    widget._ipython_display_()
    pictures, shown = outputs
    assert list(shown) == ["application/vnd.jupyter.widget-view+json"], "JupyterLab shows this or an error"
    assert f'<div id="{widget.stand_in}">' in pictures["text/html"], "what the script hides is there"


def test_still_pictures_have_the_colours_of_the_page_and_need_neither_script_nor_style_sheet(
    view: AttentionView,
) -> None:
    html = still(view.but(title=HOSTILE).payload())
    assert "<script" not in html
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    assert image.size == (320, 320)
    first, masked, quarter = (image.getpixel(place) for place in ((80, 80), (240, 80), (80, 240)))
    assert (first, masked) == ((0x1D, 0x4F, 0x91), (0xED, 0xEB, 0xE6))
    assert quarter == pytest.approx([255 - (255 - part) / 4 for part in (0x1D, 0x4F, 0x91)], abs=4)


def test_what_is_in_the_frame_of_a_page_stays_where_frames_are_taken_away(view: AttentionView) -> None:
    assert view._repr_html_().endswith(f">{still(view.payload())}</iframe>")


def test_the_widget_asks_nobody_for_anything() -> None:
    for name in ("widget.js", "widget.css"):
        links = set(re.findall(r"https?://[^\s\"'`)]+", asset(name))) - {"http://www.w3.org/2000/svg"}
        assert not {link for link in links if not link.startswith("http://www.w3.org/")}


def test_without_anywidget_it_says_what_to_install_and_the_page_stands_in(
    view: AttentionView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "qkv.pictures.widget", raising=False)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(QkvError, match=re.escape('pip install "qkv[notebook]"')):
        view.widget()
    page = view._repr_html_()
    assert page.startswith("<iframe srcdoc=")
    assert type(page) is str, "marimo takes no text of another kind"
    assert "<script" not in page, "what is in the frame is escaped"


def test_what_show_gives_has_a_widget_and_nothing_is_loaded_before() -> None:
    code = (
        "import sys, numpy, qkv; view = qkv.show(numpy.full((3, 3), 1 / 3)); "
        "assert 'anywidget' not in sys.modules; view.widget(); assert 'anywidget' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_view_is_drawn_as_a_figure_too(view: AttentionView) -> None:
    figure = qkv.draw(view)
    assert figure.axes[0].get_title() == "head 0"
    assert [one.get_text() for one in figure.axes[0].get_xticklabels()] == ["cat", HOSTILE[:13] + "…"]
    with pytest.raises(QkvError, match=r"give query and key to qkv\.show"):
        qkv.draw(view, stages=True)
