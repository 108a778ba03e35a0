"""Figures: what is in the files, cell by cell and word by word; and that matplotlib's settings stay the user's."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

import qkv
from qkv.errors import QkvError, ShapeError, SpecError
from qkv.shapes import explain_matmul, predict_shapes

TOKENS = ["Your", "journey", "starts", "with", "one", "step"]


def causal(*shape: int) -> NDArray[np.float64]:
    """Weights of queries that see themselves and what came before, ``(..., query, key)``."""
    weights = np.tril(np.exp(np.random.default_rng(shape[-1]).normal(size=shape)))
    return weights / weights.sum(-1, keepdims=True)


def written(figure: Figure, form: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def texts(svg: bytes) -> list[str]:
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def meshes(figure: Figure) -> list[Any]:
    """The cells of each panel; those of a colour bar, which has no title, are none."""
    cells = [(axes, one) for axes in figure.axes for one in axes.collections if isinstance(one, QuadMesh)]
    return [one for axes, one in cells if axes.get_label() != "<colorbar>"]


def outlined(figure: Figure) -> list[tuple[int, int]]:
    """Row and column of each outlined cell."""
    patches = [one for axes in figure.axes for one in axes.patches if one.get_gid() == "first-wrong"]
    return [(round(one.get_y() + 0.5), round(one.get_x() + 0.5)) for one in patches if isinstance(one, Rectangle)]


def test_the_text_of_an_svg_is_text_and_the_tokens_stand_on_both_axes() -> None:
    svg = written(qkv.draw(causal(6, 6), tokens=TOKENS, mask="causal"), "svg")
    found = texts(svg)
    assert all(found.count(token) == 2 for token in TOKENS)
    assert {"query", "key", "attention weight", "may not attend"} <= set(found)
    assert found.count("0.00") == 1, "the colour bar's"
    assert found.count("1.00") == 2, "the first row's weight, and the colour bar's"


def test_tokens_are_neither_markup_nor_formulae() -> None:
    tokens = ["<script>a(1)<", "$x^2$", "a\x00\u202eb", " the", "\U0001f600", "&amp;"]
    found = texts(written(qkv.draw(causal(6, 6), tokens=tokens), "svg"))
    assert found.count("<script>a(1)<") == 2
    assert found.count("$x^2$") == 2
    assert found.count("a\\u0000\\u202eb") == 2
    assert found.count("␣the") == found.count("&amp;") == 2
    assert written(qkv.draw(causal(6, 6), tokens=tokens), "png")


def test_long_tokens_are_cut_and_others_than_texts_are_written_as_such() -> None:
    figure = qkv.draw(causal(4, 4), tokens=["w" * 3000, 7, None, "the"])  # type: ignore[list-item]
    assert [one.get_text() for one in figure.axes[0].get_xticklabels()] == ["w" * 13 + "…", "7", "None", "the"]
    assert figure.get_figheight() < 6


def test_files_are_of_the_size_and_kind_that_a_paper_takes() -> None:
    figure = qkv.draw(causal(6, 6))
    pdf = written(figure, "pdf")
    assert pdf.startswith(b"%PDF")
    assert b"/CIDFontType2" in pdf, "fonts are embedded as TrueType, not as Type 3"
    assert b"/Type3" not in pdf
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert box is not None
    assert float(box[1]) == pytest.approx(3.3 * 72)
    assert Image.open(io.BytesIO(written(figure, "png"))).size[0] == 990
    assert qkv.draw(causal(4, 6, 6)).get_size_inches()[0] == pytest.approx(6.7)
    assert qkv.draw(causal(6, 6), width=5).get_size_inches()[0] == pytest.approx(5)


def test_settings_are_neither_changed_nor_followed() -> None:
    before = dict(mpl.rcParams)
    usual = written(qkv.draw(causal(6, 6)), "png")
    assert dict(mpl.rcParams) == before
    odd = {"font.size": 30, "axes.grid": True, "savefig.dpi": 10, "savefig.bbox": "tight", "axes.spines.top": False}
    with style.context("dark_background"), mpl.rc_context(odd):
        figure = qkv.draw(causal(6, 6))
        assert written(figure, "png") == usual
        assert b"<text" in written(figure, "svg")
    assert dict(mpl.rcParams) == before


def test_two_are_drawn_with_their_difference_and_the_first_wrong_cell() -> None:
    right = causal(6, 6)
    wrong = right.copy()
    wrong[3, :2] = wrong[3, 1::-1]
    wrong[4, 5] = 0.25  # where the mask allows none
    figure = qkv.draw(right, wrong, tokens=TOKENS, mask="causal")
    shown = [mesh.get_array() for mesh in meshes(figure)]
    assert [axes.get_title() for axes in figure.axes][:3] == ["expected", "got", "got \u2212 expected"]
    hidden = np.triu(np.ones((6, 6), bool), 1)
    assert np.array_equal(shown[0].mask, hidden)
    hidden[4, 5] = False
    assert np.array_equal(shown[1].mask, hidden), "a weight where none may be is drawn"
    assert np.array_equal(shown[2].mask, hidden)
    assert np.allclose(shown[2][~hidden], (wrong - right)[~hidden])
    assert outlined(figure) == [(3, 0)] * 3
    assert "first wrong: query 3, key 0" in texts(written(figure, "svg"))
    low, high = meshes(figure)[2].get_clim()
    assert low == -high == -np.abs(wrong - right).max()
    assert meshes(figure)[0].get_clim() == meshes(figure)[1].get_clim() == (0, 1)


def test_of_several_heads_the_first_that_differs_is_compared() -> None:
    right = causal(3, 5, 5)
    wrong = right.copy()
    wrong[1, 4, 2] += 0.5
    figure = qkv.draw(right, wrong)
    assert figure.get_suptitle() == "head 1"
    assert outlined(figure) == [(4, 2)] * 3
    assert outlined(qkv.draw(right, wrong, head=2)) == []
    assert outlined(qkv.draw(right, right)) == []


@pytest.mark.parametrize(
    ("dtype", "off"), [("bfloat16", 1e-3), ("float16", 1e-4), ("float32", 1e-7), ("float64", 1e-9)]
)
def test_rounding_at_a_precision_is_no_difference(dtype: str, off: float) -> None:
    right = torch.full((4, 4), 0.25, dtype=torch.float64)
    wrong = (right + off).to(getattr(torch, dtype))
    assert outlined(qkv.draw(right, wrong)) == []
    assert outlined(qkv.draw(right, (right + 0.1).to(getattr(torch, dtype)))) == [(0, 0)] * 3


def test_tensors_are_drawn_like_arrays() -> None:
    weights = torch.tensor(causal(1, 2, 3, 3), dtype=torch.bfloat16, requires_grad=True)
    figure = qkv.draw(weights, head=1)
    assert len(meshes(figure)) == 1
    assert np.allclose(meshes(figure)[0].get_array(), weights.detach().double().numpy()[0, 1])


def test_heads_are_a_grid_with_one_scale_and_stages_a_row() -> None:
    weights = causal(12, 4, 4)
    figure = qkv.draw(weights)
    assert [axes.get_title() for axes in figure.axes[:12]] == [f"head {head}" for head in range(12)]
    assert {mesh.get_clim() for mesh in meshes(figure)} == {(0, 1)}
    scores = np.random.default_rng(0).normal(size=(4, 4))
    masked = np.where(np.tri(4, dtype=bool), scores, -np.inf)
    row = qkv.draw({"attn_scores": scores, "masked": masked, "attn_weights": weights[0]})
    tops = {round(float(axes.get_position().y1), 3) for axes in row.axes[:3]}
    assert len(tops) == 1
    assert np.array_equal(meshes(row)[1].get_array().mask, ~np.tri(4, dtype=bool))
    assert {"attention score", "attention weight"} <= set(texts(written(row, "svg")))


def test_masks_are_drawn_from_expressions_objects_and_tables() -> None:
    table = (qkv.causal() & qkv.window(2)).dense(6, 6)
    for given in ("causal & window(2)", qkv.causal() & qkv.window(2), table, torch.tensor(table)):
        figure = qkv.draw(given, tokens=TOKENS)
        (mesh,) = meshes(figure)
        assert np.array_equal(mesh.get_array().mask, ~table)
        assert {"may attend", "may not attend"} <= set(texts(written(figure, "svg")))
    (mesh,) = meshes(qkv.draw("causal", lengths=(2, 5)))
    assert np.array_equal(mesh.get_array().mask, ~qkv.causal().dense(2, 5))


def test_what_is_no_number_is_a_cross_and_no_blank() -> None:
    weights = causal(5, 5)
    weights[3, 2] = np.nan
    figure = qkv.draw(weights, mask="causal")
    (crosses,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert (list(crosses.get_xdata()), list(crosses.get_ydata())) == ([2], [3])
    assert "not a number" in texts(written(figure, "svg"))
    assert outlined(qkv.draw(causal(5, 5), weights)) == [(3, 2)] * 3


def test_large_matrices_keep_their_largest_and_say_what_a_cell_covers() -> None:
    weights = np.full((1500, 1100), 1e-4)
    weights[777, 1099] = 0.9
    figure = qkv.draw(weights)
    (mesh,) = meshes(figure)
    assert mesh.get_array().shape == (500, 367)
    assert np.argwhere(mesh.get_array() == 0.9).tolist() == [[259, 366]]
    svg = written(figure, "svg")
    assert "each cell: largest of 3 queries by 3 keys" in texts(svg)
    assert len(svg) < 500_000


def test_labels_are_thinned_out_when_they_do_not_fit() -> None:
    tokens = [f"token{place}" for place in range(200)]
    found = texts(written(qkv.draw(causal(200, 200), tokens=tokens), "svg"))
    assert 10 < sum(one.startswith("token") for one in found) < 100
    numbers = [one.get_text() for one in qkv.draw(causal(200, 200)).axes[0].get_yticklabels()]
    assert numbers[:3] == ["0", "10", "20"]


def test_in_a_row_of_stages_every_token_has_its_label_where_there_is_room() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 1, 1, 14, 8))
    view = qkv.show(query, key, spec={"causal": True}, tokens=[f"t{place}" for place in range(14)])
    figure = qkv.draw(view, stages=True)
    for labels in (figure.axes[0].get_yticklabels(), figure.axes[0].get_xticklabels()):
        assert [one.get_text() for one in labels] == [f"t{place}" for place in range(14)]
    figure.draw(FigureCanvasAgg(figure).get_renderer())
    boxes = [one.get_window_extent() for one in figure.axes[0].get_yticklabels()]
    assert all(upper.y0 + 1 >= lower.y1 for upper, lower in pairwise(boxes)), "and none runs into the next"


def test_axes_of_the_user_are_drawn_into() -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    assert qkv.draw(causal(4, 4), causal(4, 4) * 0.9, ax=axes) is figure
    assert [one.get_title() for one in axes] == ["expected", "got", "got \u2212 expected"]
    with pytest.raises(SpecError, match="there are 3 matrices to draw and 1 axes; give as many, or none"):
        qkv.draw(causal(4, 4), causal(4, 4), ax=axes[0])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ([np.zeros(3)], {}, ShapeError, r"shape \(3,\), and a picture needs \(query, key\)"),
        ([np.zeros((0, 3))], {}, ShapeError, "with a token on each axis"),
        ([np.zeros((2, 3, 4, 4))], {}, ShapeError, "a figure is of one sequence: give what is drawn"),
        ([np.zeros((3, 4))], {"tokens": ["a", "b"]}, ShapeError, "there are 2 key tokens, and what is drawn has 4"),
        (
            [np.zeros((3, 4))],
            {"mask": np.ones((4, 4), bool)},
            ShapeError,
            r"mask has shape \(4, 4\), and what is drawn",
        ),
        ([np.zeros((3, 4))], {"mask": np.ones((3, 4))}, SpecError, "give booleans, True where a query may attend"),
        ([np.zeros((3, 4))], {"mask": "casual"}, SpecError, "causal"),
        ([np.zeros((3, 4)), np.zeros((4, 4))], {}, ShapeError, "only equal ones are compared"),
        ([np.zeros((2, 3, 4))], {"head": 5}, SpecError, "head is 5, and there are 2, counted from 0"),
        ([np.zeros((3, 4), complex)], {}, SpecError, "holds complex values"),
        ([[[1.0], [1.0, 2.0]]], {}, SpecError, "rows differ in length"),
        ([{}], {}, SpecError, "the mapping is empty"),
        (["causal"], {"lengths": (0, 0)}, SpecError, r"lengths is \(0, 0\), and must be two whole numbers"),
        (["causal"], {"lengths": (5,)}, SpecError, r"lengths is \(5,\), and must be two whole numbers"),
        ([np.zeros((2, 3, 4))], {"head": "a"}, SpecError, "head is 'a', and must be a whole number"),
        ([np.zeros((3, 4))], {"width": -3}, SpecError, "width is -3, and must be a number of inches"),
        ([np.zeros((3, 4))], {"width": float("nan")}, SpecError, "width is nan"),
        ([np.zeros((3, 4))], {"kind": "heat"}, SpecError, "kind is 'heat', and must be one of weights, scores"),
    ],
)
def test_what_cannot_be_drawn(arguments: list[Any], options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        qkv.draw(*arguments, **options)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "qkv.pictures.paper"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delattr("qkv.pictures.paper", raising=False)
    with pytest.raises(QkvError, match=re.escape('pip install "qkv[plot]"')):
        qkv.draw(causal(3, 3))


def test_neither_qkv_nor_draw_loads_matplotlib_before_a_figure_is_made() -> None:
    code = "import sys, qkv; qkv.draw; assert not {'matplotlib', 'torch'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_view_is_drawn_by_layer_and_head_with_its_stages() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 1, 2, 5, 8))
    view = qkv.show(query, key, spec={"num_heads": 2, "causal": True}, tokens=list("abcde"))
    assert [axes.get_title() for axes in qkv.draw(view).axes[:2]] == ["head 0", "head 1"]
    figure = qkv.draw(view, head=1, stages=True)
    names = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert names[0] == "attn_scores, head 1"
    assert names[-1] == "attn_weights, head 1"
    scores, weights = meshes(figure)[0].get_array(), meshes(figure)[-1].get_array()
    assert np.allclose(scores, query[0, 1] @ key[0, 1].T)
    assert np.allclose(weights.filled(0).sum(-1), 1)
    assert np.array_equal(weights.mask, ~np.tri(5, dtype=bool))


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1e300])
def test_numbers_of_any_size_stay_in_their_cells(size: float) -> None:
    figure = qkv.draw(np.full((3, 3), size), np.full((3, 3), -size))
    assert outlined(figure) == [(0, 0)] * 3
    assert max(map(len, texts(written(figure, "svg")))) < 40


def test_weights_of_many_keys_are_shaded_by_their_logarithm_unless_it_is_said_how() -> None:
    even = np.full((100, 100), 0.01)
    even[0] = [1.0, *[0.0] * 99]  # the largest weight of a causal head
    (cells,) = meshes(qkv.draw(even))
    shades = cells.norm(np.array([0.0, 0.01, 0.1, 1.0]))
    assert shades[0] == 0
    assert shades[1] > 0.4, "what a key gets of an even row can be seen"
    assert shades[2] - shades[1] == pytest.approx(shades[3] - shades[2])
    assert not np.ma.getmaskarray(cells.get_array()).any(), "a weight of 0 is not hidden"
    assert meshes(qkv.draw(even[:64, :64]))[0].norm(0.25) == 0.25
    assert meshes(qkv.draw(even, shades="linear"))[0].norm(0.25) == 0.25
    assert meshes(qkv.draw(even, shades="root"))[0].norm(0.25) == 0.5
    with pytest.raises(SpecError, match="shades is 'logarithm', and must be one of linear, root, log"):
        qkv.draw(even, shades="logarithm")  # type: ignore[arg-type]


def test_the_cells_of_a_mask_are_told_apart_by_lines() -> None:
    mask, weights = meshes(qkv.draw("causal")), meshes(qkv.draw(causal(4, 4)))
    assert mask[0].get_edgecolor().tolist() == [[1, 1, 1, 1]]
    assert weights[0].get_edgecolor().tolist() != [[1, 1, 1, 1]]


def test_a_weight_that_rounding_leaves_where_none_may_be_is_hatched_in_all_three() -> None:
    right = causal(4, 4)
    noisy = right + np.triu(np.full((4, 4), -1e-17), 1)
    noisy[3] = noisy[3, ::-1]
    cells = meshes(qkv.draw(right, noisy, mask="causal"))
    assert [one.get_array().mask.tolist() for one in cells] == [(~np.tri(4, dtype=bool)).tolist()] * 3
    assert not any(text.startswith("\N{MINUS SIGN}0.00") for axes in qkv.draw(right, noisy).axes for text in
                   (one.get_text() for one in axes.texts))  # fmt: skip


def test_shapes_are_boxes_to_scale_with_their_axes_named() -> None:
    figure = qkv.draw(explain_matmul(("query", "key"), (10, 40), ("key", "dim"), (40, 20)), title="a product")
    boxes = [one for one in figure.axes[0].patches if isinstance(one, Rectangle)]
    assert [(40 * one.get_height(), 40 * one.get_width()) for one in boxes] == [(10, 40), (40, 20), (10, 20)]
    found = texts(written(figure, "svg"))
    assert {"query 10", "key 40", "dim 20", "@", "=", "a product"} == set(found)

    both = qkv.draw(predict_shapes(qkv.AttentionSpec(4), query_len=3, embed_dim=8))
    assert [axes.get_title("left") for axes in both.axes] == ["scores, 4 times", "context, 4 times"]
    assert len(both.axes[0].patches) == 3 * 2 + 2 * 3 + 3 * 3 + 3, "of few numbers each has its cell"
