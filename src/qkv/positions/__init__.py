"""Position: rope turns query and key; alibi and relative bias add to the scores."""

from qkv.positions.alibi import Alibi as Alibi, alibi_slopes as alibi_slopes
from qkv.positions.relative_bias import RelativeBias as RelativeBias
from qkv.positions.rope import Rope as Rope, RopeScaling as RopeScaling, rotate as rotate
