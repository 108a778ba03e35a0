"""Masks: who may attend to whom. One rule a file; everything else derives from the rule."""

from qkv.masks.causal import Causal as Causal
from qkv.masks.dilated import Dilated as Dilated
from qkv.masks.documents import Documents as Documents
from qkv.masks.everything import Everything as Everything
from qkv.masks.expression import MASKS as MASKS, parse_mask as parse_mask
from qkv.masks.global_tokens import GlobalTokens as GlobalTokens
from qkv.masks.mask import (
    And as And,
    Array as Array,
    Mask as Mask,
    Not as Not,
    Or as Or,
    Positions as Positions,
    Span as Span,
)
from qkv.masks.padding import Padding as Padding
from qkv.masks.prefix import Prefix as Prefix
from qkv.masks.sliding_window import SlidingWindow as SlidingWindow
