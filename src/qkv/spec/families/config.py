"""A model's ``config.json`` as the families read it: names that vary, defaults, and the layer that is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qkv.errors import SpecError
from qkv.spec.field_table import shown

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads",),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "attention_dropout": ("attn_pdrop", "attention_probs_dropout_prob"),
    "rope_theta": ("rotary_emb_base",),
    "partial_rotary_factor": ("rotary_pct",),
}


class ModelConfig:
    """One model's configuration, seen from one layer.

    Attributes:
        layer: number of the layer, from 0.
        where: what the configuration stands in, for messages.
    """

    def __init__(self, mapping: Mapping[str, Any], defaults: Mapping[str, Any], layer: int, where: str) -> None:
        self._mapping = mapping
        self._defaults = defaults
        self.layer = layer
        self.where = where
        layers = self.whole("num_hidden_layers")
        if layer < 0 or (layers is not None and layer >= layers):
            last = "" if layers is None else f"; the model has layers 0 to {layers - 1}"
            raise SpecError(f"{where}: there is no layer {layer}{last}")

    def get(self, name: str) -> Any:
        """The value by this name or another one in use for it; the family's default where the file has none."""
        for spelled in (name, *_OTHER_NAMES.get(name, ())):
            if spelled in self._mapping:
                return self._mapping[spelled]
        return self._defaults.get(name)

    def whole(self, name: str) -> int | None:
        """A whole number; None where the file says null or nothing."""
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self._wrong(name, value, "a whole number")
        return value

    def need(self, name: str) -> int:
        """A whole number of 1 or more, without which there is no spec."""
        value = self.whole(name)
        if value is None or value < 1:
            raise self._wrong(name, value, "a whole number of 1 or more")
        return value

    def number(self, name: str) -> float | None:
        """A number; None where the file says null or nothing."""
        value = self.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self._wrong(name, value, "a number")
        return None if value is None else float(value)

    def flag(self, name: str) -> bool:
        """Whether the file says true; null and nothing are no."""
        value = self.get(name)
        if not isinstance(value, bool | None):
            raise self._wrong(name, value, "true or false")
        return bool(value)

    def inner(self, name: str) -> Mapping[str, Any]:
        """An object inside the configuration; empty where there is none."""
        value = self.get(name)
        if not isinstance(value, Mapping | None):
            raise self._wrong(name, value, "an object")
        return value or {}

    def of_layer(self, name: str) -> Any:
        """This layer's entry of a list with one entry per layer; None where there is no such list."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) <= self.layer:
            raise self._wrong(name, value, f"a list with one entry per layer, more than {self.layer} of them")
        return value[self.layer]

    def refuse(self, name: str, why: str) -> None:
        """Nothing, unless the configuration asks for something that a spec can't say.

        Raises:
            SpecError: it does.
        """
        if self.get(name):
            raise SpecError(
                f"{self.where}: {name} is {shown(self.get(name))}, and a spec can't say this: {why}. "
                f"Take {name} out of a copy of the config to judge the rest"
            )

    def _wrong(self, name: str, value: object, expected: str) -> SpecError:
        return SpecError(
            f"{self.where}: {name} is {shown(value)}, and must be {expected}. Take it from the model's own "
            "config.json, or describe the layer by flags: --heads 6 --kv-heads 2 --head-dim 8 --causal"
        )
