"""Position: rope turns query and key; alibi and relative bias add to the scores."""

from qkv.positions.alibi import Alibi as Alibi
from qkv.positions.alibi import alibi_slopes as alibi_slopes
from qkv.positions.relative_bias import RelativeBias as RelativeBias
from qkv.positions.rope import Rope as Rope
from qkv.positions.rope import RopeScaling as RopeScaling
from qkv.positions.rope import rotate as rotate
