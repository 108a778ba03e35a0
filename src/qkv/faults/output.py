"""Faults of the output: what happens to the merged heads at the end."""

from __future__ import annotations

from qkv.faults.fault import Ways, fault
from qkv.faults.needs import OUT_PROJ
from qkv.faults.replacing import fitting, impossible
from qkv.oracle import Run
from qkv.oracle.stages import merge, output
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "output-projection-missing",
    Stage.OUTPUT,
    title="the output projection is not applied",
    explanation=(
        "The merged heads are handed back as they are. They are right, but each channel still belongs to one head "
        "alone; mixing the heads is what out_proj is for. Every row of the output is wrong."
    ),
    repair="return self.out_proj(context)",
    needs=[OUT_PROJ],
    commonness=3,
)
def output_projection_missing(spec: AttentionSpec) -> Ways:
    """``z = y`` for ``z = y Wo^T + bo``."""
    if spec.out_proj:
        yield {Stage.OUTPUT: lambda run: run.but(output=fitting(output(run).output, run.context))}


@fault(
    "output-projection-twice",
    Stage.OUTPUT,
    title="the output projection is applied twice",
    explanation=(
        "The heads go through out_proj inside the attention and once more outside, where the layer is used. The "
        "context is right, every row of the output is wrong."
    ),
    repair="return self.out_proj(context)  # once",
    needs=[OUT_PROJ],
    commonness=1,
)
def output_projection_twice(spec: AttentionSpec) -> Ways:
    """``z = (y Wo^T + bo) Wo^T + bo``."""

    def twice(run: Run) -> Run:
        once = output(run).output
        return output(run.but(context=fitting(run.context, once)))

    if spec.out_proj:
        yield {Stage.OUTPUT: twice}


@fault(
    "residual-added",
    Stage.OUTPUT,
    title="the input is added to the output",
    explanation=(
        "The residual connection belongs to the block around the attention. Added inside as well, every row is off by "
        "its own input (or, added before the output projection, by its own query)."
    ),
    repair="return self.out_proj(context)  # x + attention(x) stands in the block",
    commonness=1,
)
def residual_added(spec: AttentionSpec) -> Ways:
    """``z = x + o``; or ``y = q + sum_j w_ij v_j``."""

    def with_input(run: Run) -> Run:
        done = output(run)
        if run.inputs.x is None:
            raise impossible("query, key and value came ready made")
        return done.but(output=done.output + fitting(done.output, run.inputs.x))

    def with_query(run: Run) -> Run:
        return merge(run.but(context=run.context + fitting(run.context, run.query)))

    yield "x + output", {Stage.OUTPUT: with_input}
    yield "query + context, head by head", {Stage.MERGE: with_query}
