"""Gradients: the backward pass of a candidate whose output is right, judged row by row as the output is."""

from qkv.gradients.judging import with_gradients as with_gradients
