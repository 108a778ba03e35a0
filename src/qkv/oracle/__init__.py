"""The oracle: what is right, defined as a row of stages."""

from qkv.oracle.attention import resume as resume
from qkv.oracle.attention import run_stages as run_stages
from qkv.oracle.inputs import Array as Array
from qkv.oracle.inputs import Inputs as Inputs
from qkv.oracle.inputs import Linear as Linear
from qkv.oracle.inputs import Norm as Norm
from qkv.oracle.inputs import Parameters as Parameters
from qkv.oracle.run import Replacements as Replacements
from qkv.oracle.run import Run as Run
from qkv.oracle.run import StageFunction as StageFunction
