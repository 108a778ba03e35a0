"""Masks: who may attend to whom. One rule a file; everything else derives from the rule."""

from qkv.masks.causal import Causal as Causal
from qkv.masks.documents import Documents as Documents
from qkv.masks.everything import Everything as Everything
from qkv.masks.expression import MASKS as MASKS
from qkv.masks.expression import parse_mask as parse_mask
from qkv.masks.mask import And as And
from qkv.masks.mask import Array as Array
from qkv.masks.mask import Mask as Mask
from qkv.masks.mask import Not as Not
from qkv.masks.mask import Or as Or
from qkv.masks.mask import Positions as Positions
from qkv.masks.padding import Padding as Padding
from qkv.masks.prefix import Prefix as Prefix
from qkv.masks.sliding_window import SlidingWindow as SlidingWindow
