"""Faulty attentions as somebody would write them in torch. They share nothing with the oracle.

Every subclass of :class:`faulty_code.attention.Attention` makes one mistake; importing this package lists them all.
"""

from faulty_code import fused, heads, merging, norms, projections, rope
from faulty_code.attention import FAULTY as FAULTY, Attention as Attention
from faulty_code.examples import EXAMPLES as EXAMPLES, Example as Example

__all__ = ["fused", "heads", "merging", "norms", "projections", "rope"]
