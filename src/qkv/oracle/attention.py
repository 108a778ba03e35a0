"""The oracle: the stages one after the other. A fault is the same with some stages replaced."""

from __future__ import annotations

from types import MappingProxyType

from qkv.oracle.chunks import chunks, in_chunks, joined
from qkv.oracle.inputs import Inputs
from qkv.oracle.run import Replacements, Run
from qkv.oracle.stages import STAGES
from qkv.spec import AttentionSpec

NO_REPLACEMENTS: Replacements = MappingProxyType({})


def run_stages(spec: AttentionSpec, inputs: Inputs, replacements: Replacements = NO_REPLACEMENTS) -> Run:
    """All stages of the attention that ``spec`` describes, in the inputs' own dtype.

    Args:
        spec: what to compute.
        inputs: what to compute it from; float64 arrays make this the reference.
        replacements: stages done another way than the right one.

    Returns:
        The finished run; ``run.output`` is ``(batch, query, width)``, ``run.before[stage]`` what each stage was given.
    """
    if in_chunks(inputs):
        spec = spec.but(query_offset="bottom_right")
        return joined(Run(spec, inputs), [run_stages(spec, chunk, replacements) for chunk in chunks(inputs)])
    return resume(Run(spec, inputs), replacements)


def resume(run: Run, replacements: Replacements, first: int = 0) -> Run:
    """``run`` taken from stage number ``first`` to the end. Up to there, it must be made without the replacements."""
    before = dict(run.before)
    for stage in list(STAGES)[first:]:
        before[stage] = run
        run = replacements.get(stage, STAGES[stage])(run)
    return run.but(before=before)
