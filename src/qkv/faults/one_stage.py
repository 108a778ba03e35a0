"""Two faults of one stage: the second is made under the spec that the first one follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qkv.errors import SpecError
from qkv.faults.as_if import AsIf
from qkv.faults.fault import CATALOGUE, Variant
from qkv.spec import AttentionSpec


def one_stage_pairs(spec: AttentionSpec) -> Iterator[tuple[Variant, Variant]]:
    """Every two faults that do one and the same stage under another spec; what the second replaces is both."""
    faults = [fault for fault in CATALOGUE.values() if not fault.rounds]
    for place, fault in enumerate(faults):
        for first in fault.variants(spec):
            stage = _only_as_if(first)
            later = [] if stage is None else [other for other in faults[place + 1 :] if other.stage == fault.stage]
            for other in later:
                yield from ((first, both) for both in _under(first, other.variants, spec))


def _under(
    first: Variant, ways: Callable[[AttentionSpec], Iterator[Variant]], spec: AttentionSpec
) -> Iterator[Variant]:
    done = _only_as_if(first)
    assert done is not None
    try:
        for second in ways(spec.but(**done.spec_changes)):
            further = _only_as_if(second)
            if further is not None and second.replacements.keys() == first.replacements.keys():
                both = AsIf(further.stage, None, {**done.spec_changes, **further.spec_changes})
                yield Variant(second.fault, dict.fromkeys(second.replacements, both), second.note)
    except SpecError:  # the two contradict each other
        return


def _only_as_if(variant: Variant) -> AsIf | None:
    """What the variant replaces, where that is one stage done under another spec."""
    replaced = list(variant.replacements.values())
    only = replaced[0] if len(replaced) == 1 else None
    return only if isinstance(only, AsIf) and only.inputs is None else None
