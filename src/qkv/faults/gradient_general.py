"""Faults of the backward pass as a whole: it fails, it draws random numbers, or it is wrong in a way without a name."""

from __future__ import annotations

from qkv.faults.gradient import BackwardWays, gradient_fault
from qkv.spec import AttentionSpec


@gradient_fault(
    "gradient-fails",
    "gradient",
    title="the backward pass raises an error",
    explanation=(
        "The output is right, and asking for its gradients fails: a tensor that the backward pass needs was changed in "
        "place after it was used, a custom function has no backward() or returns gradients of another shape, or the "
        "tensors pass through something that keeps no graph. Whatever stands before this layer can't be trained."
    ),
    repair="attn_weights = attn_weights / total  # not attn_weights /= total: the graph needs what stood there",
    watched=True,
)
def gradient_fails(spec: AttentionSpec) -> BackwardWays:
    """Seen when the gradients are asked for."""
    yield from ()


@gradient_fault(
    "gradient-random",
    "gradient",
    title="the gradients differ from run to run",
    explanation=(
        "The same inputs and the same gradient of the output give other gradients the second time, while the output "
        "stays the same: dropout drawn anew on the way back, memory that was never set to zero, or sums in which one "
        "program overwrites another."
    ),
    repair="dq = torch.zeros_like(query)  # torch.empty_like holds whatever lay there before",
    watched=True,
)
def gradient_random(spec: AttentionSpec) -> BackwardWays:
    """Seen when one question is asked twice, under other random numbers."""
    yield from ()


@gradient_fault(
    "gradient-only",
    "gradient",
    title="the output is right and the gradients are wrong",
    explanation=(
        "No fault of the backward pass that is known by name gives these numbers. Where they are wrong tells most: dv "
        "alone, the weights or the cotangent as the backward pass sees them; dq and dk, softmax's part of it; one of "
        "these two, the last product or the scale; some rows only, a mask, a block or a group of heads."
    ),
    repair="torch.autograd.gradcheck(attention, (query, key, value))  # in float64, on inputs as small as they can be",
    general=True,
    watched=True,
)
def gradient_only(spec: AttentionSpec) -> BackwardWays:
    """Whatever is left."""
    yield from ()
