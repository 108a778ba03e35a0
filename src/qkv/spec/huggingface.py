"""A spec from a Hugging Face ``config.json``, without importing transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qkv.errors import SpecError, nearest
from qkv.spec.attention_spec import AttentionSpec
from qkv.spec.families import FAMILIES, ModelConfig
from qkv.spec.field_table import cut, shown

_BY_FLAGS = "Or describe the layer by flags: --heads 6 --kv-heads 2 --head-dim 8 --causal --rope halves"


def spec_from_config(config: Mapping[str, Any], layer: int = 0, *, where: str = "the config") -> AttentionSpec:
    """The spec of one layer's self-attention.

    A model of text and images is read at its ``text_config``. What the file leaves out is what transformers takes it to
    be: several published text configs name no number of heads.

    Args:
        config: what a ``config.json`` holds, or ``model.config.to_dict()``.
        layer: the layer meant; in many models some layers have a window and others not.
        where: the file's name, for messages.

    Raises:
        SpecError: an unknown family, a layer the model doesn't have, or an option that a spec can't say.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"{where} is a {type(config).__name__}, and must be an object; try model.config.to_dict()")
    text = config.get("text_config")
    if isinstance(text, Mapping):
        own = text.get("model_type") or f"{config.get('model_type')}_text"
        return spec_from_config({**text, "model_type": own}, layer, where=f"{where}: text_config")
    name = _family(config, where)
    family = FAMILIES[name]
    try:
        return family.read(ModelConfig(config, family.defaults, layer, where))
    except SpecError as error:
        raise SpecError(str(error) if str(error).startswith(where) else f"{where} ({name}): {error}") from None


def _family(config: Mapping[str, Any], where: str) -> str:
    """The family by ``model_type``, or by the name of the model's class where that is missing."""
    named = config.get("model_type")
    if named is None:
        classes = config.get("architectures") or [""]
        if not isinstance(classes, list | tuple) or not isinstance(classes[0], str):
            raise SpecError(
                f"{where}: architectures is {shown(classes)}, and must be a list of class names. Write for instance: "
                '"architectures": ["LlamaForCausalLM"]'
            )
        named = re.sub(r"(For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|PreTrainedModel|Model)$", "", str(classes[0]))
    known = {_plain(family): family for family in FAMILIES}
    if _plain(str(named)) not in known:
        clause = nearest(str(named), FAMILIES)
        end = "" if clause.endswith("?") else "."
        raise SpecError(f"{where}: no family of models is known as {cut(repr(named))}; {clause}{end} {_BY_FLAGS}")
    return known[_plain(str(named))]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
