"""Scopes: a fault that some calls have and others not: code often has one path for a prompt, another for decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from qkv.faults.fault import Variant
from qkv.faults.replacing import impossible
from qkv.oracle import Array, Replacements, Run, StageFunction
from qkv.oracle.stages import STAGES
from qkv.vocabulary import Stage

Scope = Callable[[int, int], bool]
"""Whether a call has the fault, by its number and by how many tokens come with it."""

SCOPES: Mapping[str, Scope] = MappingProxyType(
    {
        "only in the call that begins a sequence": lambda call, count: call == 0,
        "only in calls that find a cache filled": lambda call, count: call > 0,
        "only in calls with several tokens": lambda call, count: count > 1,
        "only in calls with one token": lambda call, count: count == 1,
    }
)


def scoped(variant: Variant) -> Iterator[Variant]:
    """The same fault in some calls only, once for each scope: in what comes with a call, or in all that it reads."""
    for words, scope in SCOPES.items():
        read = min(variant.replacements, default=Stage.OUTPUT) <= Stage.POSITION
        for by_token in (True, False) if read else (True,):
            replacements: Replacements = {
                stage: _within(scope, stage, new, by_token) for stage, new in variant.replacements.items()
            }
            note = words if by_token else f"{words}, to what the cache gives too"
            yield Variant(variant.fault, replacements, f"{variant.note}; {note}" if variant.note else note)


def _within(scope: Scope, stage: Stage, wrong: StageFunction, tokens_apart: bool) -> StageFunction:
    def replaced(run: Run) -> Run:
        steps = run.inputs.steps or (run.inputs.lengths[0],)
        inside = [scope(call, count) for call, count in enumerate(steps)]
        by_token = tokens_apart and stage <= Stage.POSITION and len(steps) > 1
        if not (any(inside) if by_token else inside[-1]):
            raise impossible("this call is none of those that have the fault")
        if not by_token:
            return wrong(run)
        faulty, right = wrong(run), STAGES[stage](run)
        of_each_key = [one for one, count in zip(inside, steps, strict=True) for _ in range(count)]
        return faulty.but(
            query=faulty.query if inside[-1] else right.query,
            key=_chosen(run, of_each_key, faulty.key, right.key),
            value=_chosen(run, of_each_key, faulty.value, right.value),
        )

    return replaced


def _chosen(run: Run, chosen: list[bool], faulty: Array, right: Array) -> Array:
    if faulty.shape != right.shape or faulty.shape[-2] != len(chosen):
        raise impossible("the fault changes which token is which")
    return run.xp.where(run.xp.asarray(chosen)[:, None], faulty, right)
