"""Intention: a spec that a candidate may be meant to follow, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qkv.errors import SpecError
from qkv.spec import GROUP_SIZE, AttentionSpec, spec_from_mapping


@dataclass(frozen=True)
class Intention:
    """One spec that the candidate may be meant to follow.

    Attributes:
        spec: the spec.
        stated: fields that the user gave; the others were inferred.
        given: the user's own words, field by field.
        assumptions: what was inferred, and from what, in sentences.
        if_refused: whether it is only meant where the candidate could not be called under the intentions before it.
    """

    spec: AttentionSpec
    stated: frozenset[str] = frozenset()
    given: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    if_refused: bool = False

    @property
    def is_meant(self) -> bool:
        """Whether the user said anything of what it is meant to compute."""
        return not self.given.keys() <= SIZES

    def assuming(self, why: str, **changes: Any) -> Intention:
        """The same with fields set, unless the user gave them, and the reason noted."""
        open_changes = {name: value for name, value in changes.items() if name not in self.stated}
        if not open_changes or self.spec.but(**open_changes) == self.spec:
            return self
        assumptions = (*self.assumptions, why) if why else self.assumptions
        return replace(self, spec=self.spec.but(**open_changes), assumptions=assumptions)

    def noting(self, why: str, **changes: Any) -> Intention:
        """The same with fields set, and the reason noted even where they already were as they should be."""
        open_changes = {name: value for name, value in changes.items() if name not in self.stated}
        return replace(self, spec=self.spec.but(**open_changes), assumptions=(*self.assumptions, why))


SIZES = frozenset({"num_heads", "num_kv_heads", "head_dim", "value_dim", "embed_dim"})
"""Fields that say how large it is, and nothing of what it is meant to do."""

MASK_FIELDS = frozenset({"mask", "causal", "window", "prefix", "documents"})

OPEN_IN_A_FILE = frozenset(
    {"head_dim", "value_dim", "embed_dim", "num_kv_heads", "projection_bias", "out_proj", "empty_row"}
)
"""Fields that a spec file leaves to the candidate's own parameters when it doesn't name them."""

SETTLED_BY_A_FILE = MASK_FIELDS | {
    "num_heads",
    "scale",
    "query_offset",
    "rope",
    "alibi",
    "relative_bias",
    "softcap",
    "sinks",
    "qk_norm",
    "dropout_p",
}
"""Fields that have their default in a spec file that doesn't name them."""


def stated_fields(given: Mapping[str, Any], whole: bool) -> frozenset[str]:
    """Names of the AttentionSpec fields that the user's own fields settle.

    Args:
        given: what was written.
        whole: whether it is a whole spec, in which a missing field means its default.
    """
    names = set(given) | (SETTLED_BY_A_FILE if whole else set())
    # A window or documents alone leave open whether the mask is causal too.
    if names & {"mask", "causal"}:
        names |= MASK_FIELDS
    else:
        names -= MASK_FIELDS
    return frozenset(name for name in names if given.get(name) is not None or name not in OPEN_IN_A_FILE)


def intention_from(given: Mapping[str, Any], whole: bool) -> Intention:
    """What the user alone says.

    Raises:
        SpecError: the fields contradict each other, or a whole spec leaves out what has no usual value beside another.
    """
    if whole and given.get("num_kv_heads") and "num_heads" not in given:
        raise SpecError(
            f"num_kv_heads is {given['num_kv_heads']} and num_heads is missing, in what is a whole spec. Write for "
            f'instance: "num_heads": {GROUP_SIZE * given["num_kv_heads"]}'
        )
    return Intention(spec_from_mapping(given), stated_fields(given, whole), given)
