"""Shapes: what every stage will give, before anything runs."""

from qkv.shapes.prediction import Prediction as Prediction, StageShapes as StageShapes, predict_shapes as predict_shapes
from qkv.shapes.product import Product as Product, Shape as Shape, explain_matmul as explain_matmul
from qkv.shapes.table import shapes_text as shapes_text
