"""The oracle: what is right, defined as a row of stages."""

from qkv.oracle.attention import resume as resume, run_stages as run_stages
from qkv.oracle.backward import (
    Backward as Backward,
    BackwardReplacements as BackwardReplacements,
    BackwardStage as BackwardStage,
    gradients_of as gradients_of,
    run_backward as run_backward,
)
from qkv.oracle.inputs import Array as Array, Inputs as Inputs, Linear as Linear, Norm as Norm, Parameters as Parameters
from qkv.oracle.run import Replacements as Replacements, Run as Run, StageFunction as StageFunction
