"""Faults of rope beside a cache: keys that are turned at the wrong time, before or after they are put there."""

from __future__ import annotations

from qkv.faults.caching import held
from qkv.faults.fault import Ways, fault
from qkv.faults.needs import CACHE, ROPE
from qkv.faults.position import by_sides, turned
from qkv.oracle import Array, Replacements, Run
from qkv.spec import AttentionSpec
from qkv.vocabulary import Stage


@fault(
    "rope-cache-unturned",
    Stage.POSITION,
    title="keys out of the cache are turned otherwise than the new ones",
    explanation=(
        "Keys are put into the cache before rope, and rope is applied to the new ones alone, or the other way round. A "
        "query then meets some keys that are turned and others that are not. The first call is right, the calls after "
        "it are wrong."
    ),
    repair="key = apply_rope(key, positions)\nkey = torch.cat([cached_key, key], dim=-2)  # turned before it is kept",
    needs=[ROPE, CACHE],
)
def rope_cache_unturned(spec: AttentionSpec) -> Ways:
    """``k_j`` for ``R_j k_j`` where ``j`` came out of the cache, or where it did not."""
    if spec.rope is not None:
        yield "only the new keys are turned", _turning(new=True)
        yield "only the keys out of the cache are turned", _turning(new=False)


def _turning(*, new: bool) -> Replacements:
    def key(run: Run, x: Array, at: Array) -> Array:
        begin = held(run)
        return turned(run, x, run.array([place * ((place >= begin) == new) for place in range(len(at))]))

    return by_sides(turned, key)
