"""Predicted shapes against the oracle's tensors, and the words for products that can't be."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given

from drawn import Call, drawn_calls, drawn_specs
from qkv.errors import ShapeError
from qkv.oracle import Run, run_stages
from qkv.positions import Rope
from qkv.report.plain import encodable
from qkv.shapes import Prediction, explain_matmul, predict_shapes, shapes_text
from qkv.shapes.boxes import boxes_text, of_pairs
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage

TENSORS = ("query", "key", "value", "scores", "may_attend", "weights", "context", "output")


def predicted(spec: AttentionSpec, call: Call) -> tuple[Prediction, Run]:
    """The prediction and the run of the same call, which has an output projection where the spec says so."""
    inputs = call.inputs(spec)
    if call.form == "heads":
        inputs, spec = inputs.but(parameters=None), spec.but(embed_dim=None)
    elif not spec.out_proj:
        assert inputs.parameters is not None
        inputs = inputs.but(parameters=dataclasses.replace(inputs.parameters, out_proj=None))
    query_len, key_len = inputs.lengths
    prediction = predict_shapes(
        spec,
        query_len=query_len,
        key_len=key_len,
        batch=call.batch,
        embed_dim=None if inputs.x is None else inputs.x.shape[-1],
        head_dim=spec.head_dim or 8,
    )
    return prediction, run_stages(spec, inputs)


@given(drawn_specs(), drawn_calls())
def test_every_stage_gives_what_was_predicted(spec: AttentionSpec, call: Call) -> None:
    prediction, run = predicted(spec, call)
    stages = list(Stage)
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        after = run if following is None else run.before[following]
        real = {name: tuple(getattr(after, name).shape) for name in TENSORS if getattr(after, name) is not None}
        assert {name: shape.sizes for name, shape in prediction.after(stage).items()} == real


@given(drawn_specs(), drawn_calls())
def test_every_product_can_be_made_and_makes_its_tensor(spec: AttentionSpec, call: Call) -> None:
    prediction, _ = predicted(spec, call)
    for step in prediction.stages:
        for product in step.products:
            left, right = product.left, product.right
            assert explain_matmul(left.axes, left.sizes, right.axes, right.sizes).result == product.result
            made = step.makes[product.makes]
            assert made.sizes[-2:] == product.result.sizes
            assert made.axes[-2:] == product.result.axes
            in_front = made.sizes[:-2]
            assert product.times == in_front[0] * (in_front[1] if len(in_front) > 1 else 1)


def test_the_articles_example_is_said_as_the_article_says_it() -> None:
    prediction = predict_shapes(AttentionSpec(head_dim=2), query_len=3)
    mix = next(step for step in prediction.stages if step.stage is Stage.MIX).products[0]
    assert mix.names == "(query key)(key dim) -> (query dim)"
    assert mix.numbers == "(3 x 3)(3 x 2) = (3 x 2)"
    assert str(prediction.output) == "(batch 1, query 3, head*dim 2)"


def test_the_table() -> None:
    spec = AttentionSpec(6, 2, 8, 10, rope=Rope())
    text = shapes_text(predict_shapes(spec, batch=2, query_len=7, key_len=9, embed_dim=56))
    table, _, drawn = text.partition("\n\nscores, 12 times\n")
    lines = table.splitlines()
    assert lines[0] == str(spec)
    assert lines[2].split() == ["stage", "gives", "shape", "in", "names", "in", "numbers"]
    assert [line.split()[0] for line in lines[4:] if not line.startswith(" ")] == [
        "project", "heads", "position", "scores", "scale", "mask", "softmax", "mix", "merge", "output",
    ]  # fmt: skip
    project = lines[4]
    assert "(query embed)(embed head*dim) -> (query head*dim)" in project
    assert "(7 x 56)(56 x 48) = (7 x 48), 2 times" in project
    assert any("each key/value head is read by 3 query heads" in line for line in lines)
    assert any("(7 x 8)(8 x 9) = (7 x 9), 12 times" in line for line in lines)
    assert "context, 12 times\n" in drawn
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_narrow_table_has_its_products_beneath() -> None:
    prediction = predict_shapes(AttentionSpec(6, 2, 8, 10, rope=Rope()), batch=2, query_len=7, key_len=9, embed_dim=56)
    narrow, wide = shapes_text(prediction, 80), shapes_text(prediction, 200)
    assert wide == shapes_text(prediction)
    assert max(map(len, narrow.splitlines())) <= 80
    assert all(one.names in narrow and one.numbers in narrow for _, one in prediction.products)


def test_products_of_queries_and_keys_are_drawn_to_scale() -> None:
    few = predict_shapes(AttentionSpec(head_dim=2), query_len=3).products
    assert boxes_text(of_pairs(few)[1:]) == "\n".join([
        "context",
        "        key 3              dim 2              dim 2",
        "        ┌───────┐          ┌─────┐            ┌─────┐",
        "query 3 │ · · · │  @ key 3 │ · · │  = query 3 │ · · │",
        "        │ · · · │          │ · · │            │ · · │",
        "        │ · · · │          │ · · │            │ · · │",
        "        └───────┘          └─────┘            └─────┘",
    ])  # fmt: skip
    many = predict_shapes(AttentionSpec(head_dim=30), query_len=10, key_len=60, embed_dim=90).products
    scores, context = of_pairs(many)
    assert [name for name, _ in (scores, context)] == ["scores", "context"], "projections have no keys beside queries"
    sides = {"key": 12, "dim": 6, "query": 1}  # characters, and of queries lines, by their number
    for name, product in (scores, context):
        lines = boxes_text([(name, product)]).splitlines()
        widths = [len(edge) - 1 for edge in re.findall(r"┌(─+)┐", lines[2])]
        assert widths == [sides[one.axes[1]] for one in (product.left, product.right, product.result)]
        assert [line.count("│") for line in lines].count(6) == sides["query"], "the left one and the result are as high"


def test_a_terminal_without_such_lines_gets_plain_ones() -> None:
    drawn = boxes_text(predict_shapes(AttentionSpec(head_dim=2), query_len=3).products)
    assert encodable(drawn, "ascii").count("| . . . |") == 3 + 2 + 3, "the scores, the turned keys, the weights"
    assert "\\" not in encodable(drawn, "ascii")


def test_a_head_takes_an_equal_share_of_the_token() -> None:
    made = predict_shapes(AttentionSpec(6), query_len=7, embed_dim=48).after(Stage.HEADS)
    assert made["query"].sizes == (1, 6, 7, 8)


@pytest.mark.parametrize(
    ("spec", "sizes", "says"),
    [
        (AttentionSpec(6), {"query_len": 7}, "pass head_dim, or embed_dim"),
        (AttentionSpec(6), {"query_len": 7, "embed_dim": 50}, "leaves 2 over. Use a multiple of 6 such as 48"),
        (AttentionSpec(6, embed_dim=48), {"query_len": 7, "embed_dim": 56}, "embed_dim is 56, and the spec says 48"),
        (AttentionSpec(head_dim=8), {"query_len": 0}, "query_len is 0, and must be 1 or more"),
        (AttentionSpec(head_dim=8), {"query_len": 3, "batch": 0}, "batch is 0"),
    ],
)
def test_a_size_that_is_missing_or_wrong(spec: AttentionSpec, sizes: dict[str, Any], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        predict_shapes(spec, **sizes)


@pytest.mark.parametrize(
    ("left", "right", "says"),
    [
        (
            (("query", "dim"), (5, 2)),
            (("key", "dim"), (3, 2)),
            ["(query dim)(key dim), (5 x 2)(3 x 2), is impossible", "(dim, 2)", "(key, 3)",
             "Write left @ right.T: (query dim)(dim key) -> (query key), (5 x 2)(2 x 3) = (5 x 3)"],
        ),
        (
            (("key", "query"), (4, 3)),
            (("key", "dim"), (4, 2)),
            ["Write left.T @ right: (query key)(key dim) -> (query dim), (3 x 4)(4 x 2) = (3 x 2)"],
        ),
        (
            (("key", "dim"), (4, 2)),
            (("query", "key"), (3, 4)),
            ["Write right @ left: (query key)(key dim) -> (query dim)"],
        ),
        ((("query", "key"), (3, 4)), (("key", "dim"), (3, 2)), ["Both are called key", "made from other inputs"]),
        ((("query", "key"), (3, 4)), (("token", "dim"), (3, 2)), ["No transpose of the two has an axis in common"]),
        (
            (("query", "dim"), (3, 3)),
            (("key", "dim"), (3, 3)),
            ["has no meaning", "columns are dim", "rows key", "Write left @ right.T"],
        ),
        ((("query",), (3,)), (("key", "dim"), (3, 2)), ["the left matrix has axes ('query',)", "rows and columns"]),
        ((("query", "key"), (3, 4)), (("key", "dim"), (4, 2, 1)), ["the right matrix"]),
    ],
)  # fmt: skip
def test_an_impossible_product_names_the_two_axes_and_what_to_write(left: Any, right: Any, says: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        explain_matmul(*left, *right)
    for part in says:
        assert part in str(caught.value)
