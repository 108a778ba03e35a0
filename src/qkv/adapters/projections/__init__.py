"""Which arrays of a candidate's state are which projection, and how they are laid out.

Names settle most of it, the class that an array belongs to the rest: a ``Linear`` is always (out, in), a ``Conv1D``
always (in, out), ``GPTNeoX`` keeps q, k and v of one head together. Where the field has several conventions for one
name, every one of them is a reading, the commonest first; the candidate's own numbers tell which it is.
"""

from qkv.adapters.projections.norm_roles import norm_roles as norm_roles
from qkv.adapters.projections.pieces import (
    NormPiece as NormPiece,
    Piece as Piece,
    ProjectionReading as ProjectionReading,
    State as State,
)
from qkv.adapters.projections.reading import readings_of as readings_of
from qkv.adapters.projections.sizes import possible_heads as possible_heads
from qkv.adapters.projections.values import randomised as randomised
from qkv.adapters.projections.widths import channels_in as channels_in
