"""Shapes: what every stage will give, before anything runs; and what a candidate's own code gives, by names."""

from qkv.shapes.axes import Axes as Axes
from qkv.shapes.prediction import Prediction as Prediction, StageShapes as StageShapes, predict_shapes as predict_shapes
from qkv.shapes.product import Product as Product, Shape as Shape, explain_matmul as explain_matmul
from qkv.shapes.sheet import Line as Line, Rule as Rule, Sheet as Sheet
from qkv.shapes.sheet_text import sheet_text as sheet_text, sheet_to_json as sheet_to_json
from qkv.shapes.table import shapes_text as shapes_text
