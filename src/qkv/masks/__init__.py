"""Masks: who may attend to whom. One rule a file; everything else derives from the rule."""

from qkv.masks.causal_mask import Causal as Causal
from qkv.masks.dilated_mask import Dilated as Dilated
from qkv.masks.documents_mask import Documents as Documents
from qkv.masks.expression import MASKS as MASKS, parse_mask as parse_mask
from qkv.masks.global_tokens_mask import GlobalTokens as GlobalTokens
from qkv.masks.intervals import Ranges as Ranges, Reach as Reach, Span as Span
from qkv.masks.makers import (
    causal as causal,
    dilated as dilated,
    documents as documents,
    everything as everything,
    global_tokens as global_tokens,
    padding as padding,
    per_head as per_head,
    prefix as prefix,
    rule as rule,
    window as window,
)
from qkv.masks.mask import (
    And as And,
    Mask as Mask,
    Not as Not,
    Or as Or,
    Shifted as Shifted,
)
from qkv.masks.no_mask import Everything as Everything, Unexplained as Unexplained
from qkv.masks.padding_mask import Padding as Padding
from qkv.masks.per_head_mask import PerHead as PerHead
from qkv.masks.places import Array as Array, Positions as Positions, QueryOffset as QueryOffset
from qkv.masks.prefix_mask import Prefix as Prefix
from qkv.masks.rule_mask import Rule as Rule
from qkv.masks.sides import Sides as Sides, sides_of as sides_of, window_of as window_of
from qkv.masks.sliding_window import SlidingWindow as SlidingWindow
