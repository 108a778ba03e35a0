"""What each family of models means by its ``config.json``: a family is one entry of one of these files.

Each rule is what the family's code in transformers computes; the defaults are what it takes a missing field to be.
"""

from __future__ import annotations

from collections.abc import Mapping

from qkv.spec.families import absolute, adjacent, alibi, gemma, llama
from qkv.spec.families.config import ModelConfig as ModelConfig
from qkv.spec.families.family import Family as Family

FAMILIES: Mapping[str, Family] = {
    **absolute.FAMILIES,
    **adjacent.FAMILIES,
    **alibi.FAMILIES,
    **gemma.FAMILIES,
    **llama.FAMILIES,
}
"""Every family by its ``model_type``."""
