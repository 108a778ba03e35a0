"""Inference: what a candidate is meant to compute, from what it says of itself; and what it leaves open.

What it *says* counts (names, arguments, attributes), never what it computes: a causal class without its mask must still
be held to being causal. Where it says nothing, every usual meaning is an intention of equal standing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qkv.adapters.messages import Facts
from qkv.adapters.names import call_role_of, role_of
from qkv.masks import Causal, Everything, SlidingWindow
from qkv.positions import Alibi, Rope
from qkv.spec import AttentionSpec, spec_from_mapping
from qkv.vocabulary import Pairing


@dataclass(frozen=True)
class Intention:
    """One spec that the candidate may be meant to follow.

    Attributes:
        spec: the spec.
        stated: fields that the user gave; the others were inferred.
        assumptions: what was inferred, and from what, in sentences.
    """

    spec: AttentionSpec
    stated: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()

    def assuming(self, why: str, **changes: Any) -> Intention:
        """The same with fields set, unless the user gave them, and the reason noted."""
        open_changes = {name: value for name, value in changes.items() if name not in self.stated}
        if not open_changes or self.spec.but(**open_changes) == self.spec:
            return self
        return replace(self, spec=self.spec.but(**open_changes), assumptions=(*self.assumptions, why))


MASK_FIELDS = frozenset({"mask", "causal", "window", "prefix", "documents"})
OPEN_IN_A_FILE = frozenset(
    {"head_dim", "value_dim", "embed_dim", "num_kv_heads", "projection_bias", "out_proj", "empty_row"}
)
"""Fields that a spec file leaves to the candidate's own parameters when it doesn't name them."""


def stated_fields(given: Mapping[str, Any], whole: bool) -> frozenset[str]:
    """Names of the AttentionSpec fields that the user's own fields settle.

    Args:
        given: what was written.
        whole: whether it is a whole spec, in which a missing field means its default.
    """
    names = set(given)
    if whole:
        every = {"num_heads", "scale", "query_offset", "rope", "alibi", "relative_bias", "softcap", "sinks", "qk_norm",
                 "dropout_p", *MASK_FIELDS}  # fmt: skip
        names |= every - OPEN_IN_A_FILE
    if names & MASK_FIELDS:
        names |= MASK_FIELDS
    return frozenset(name for name in names if given.get(name) is not None or name not in OPEN_IN_A_FILE)


def intention_from(given: Mapping[str, Any], whole: bool) -> Intention:
    """What the user alone says."""
    return Intention(spec_from_mapping(given), stated_fields(given, whole))


def intentions(facts: Facts, said: Intention) -> list[Intention]:
    """Every intention that fits what the candidate says of itself, the likeliest first."""
    found = [said]
    for rule in (_sizes, _mask, _corner, _rope, _alibi, _signed_alibi, _softcap, _sinks, _qk_norm):
        found = [further for intention in found for further in rule(facts, intention)]
    return found


def _sizes(facts: Facts, said: Intention) -> Iterator[Intention]:
    heads = attribute(facts, "num_heads", int)
    if heads is not None and "num_heads" not in said.stated:
        kv_heads = attribute(facts, "num_kv_heads", int)
        name, number = heads
        said = said.assuming(f"{number} heads, from {name}", num_heads=number, num_kv_heads=None)
        if kv_heads is not None and number % kv_heads[1] == 0:
            said = said.assuming(f"{kv_heads[1]} key/value heads, from {kv_heads[0]}", num_kv_heads=kv_heads[1])
    yield said


def _mask(facts: Facts, said: Intention) -> Iterator[Intention]:
    if "mask" in said.stated:
        yield said
        return
    window = attribute(facts, "window", int)
    causal = Causal() & SlidingWindow(window[1]) if window and window[1] > 0 else Causal()
    more = f" within a window of {window[1]}, from {window[0]}" if window and window[1] > 0 else ""
    evidence = causal_evidence(facts)
    if evidence:
        yield said.assuming(f"causal{more}, {evidence}", mask=causal)
        return
    bare = SlidingWindow(window[1]) if window and window[1] > 0 else Everything()
    yield said.assuming(f"a window of {window[1]}, from {window[0]}" if window else "", mask=bare)
    yield said.assuming(f"causal{more}: nothing says so but its numbers", mask=causal)


def causal_evidence(facts: Facts) -> str | None:
    """From what it can be seen that the candidate is meant to be causal; None where nothing says so."""
    for name in (facts.name, facts.class_name):
        if re.search(r"causal|masked|decoder|autoregressive|gpt|decode", name, re.IGNORECASE):
            return f"from its name {name}"
    flag = attribute(facts, "causal", bool)
    if flag is not None:
        return f"from {flag[0]}" if flag[1] else None
    for name, array in facts.arrays.items():
        square = len(array.shape) >= 2 and array.shape[-1] == array.shape[-2] and not array.learned
        if square and re.search(r"mask|tril|triu|causal|bias$", name):
            return f"from its buffer {name}"
    if any(call_role_of(argument.name) == "causal" and argument.kind != "kwargs" for argument in facts.call):
        return "asked for with its argument"
    if facts.file:
        code = facts.source
        if re.search(r"non.?causal|not causal|bidirectional", code, re.IGNORECASE):
            return None
        word = re.search(
            r"causal\w*|\btril\b|\btriu\b|look.?ahead|autoregressive|\bfuture\b|subsequent", code, re.IGNORECASE
        )
        if word:
            return f"from {word.group(0)!r} in its source"
    return None


def _corner(facts: Facts, said: Intention) -> Iterator[Intention]:
    if "query_offset" in said.stated or facts.what != "function" or not said.spec.masks(Causal):
        yield said
        return
    corner = re.search(r"(bottom|top|lower|upper).?(right|left)", f"{facts.doc} {facts.source}", re.IGNORECASE)
    if corner:
        where = "top_left" if corner.group(2).lower() == "left" else "bottom_right"
        yield said.assuming(f"its first query is aligned {where}, from {corner.group(0)!r}", query_offset=where)
        return
    yield said
    decodes = re.search(r"cache|decode|past", f"{facts.name} {' '.join(a.name for a in facts.call)}", re.IGNORECASE)
    if not decodes:
        why = "query 0 stands at position 0 (top left), whatever the number of keys"
        yield said.assuming(why, query_offset="top_left")


_ROPE_WORDS = re.compile(
    r"\brope\b|rotary|rotate_half|apply_rope|freqs_cis|inv_freq|view_as_complex|\bpolar\b", re.IGNORECASE
)
_ADJACENT = re.compile(
    r"view_as_complex|view_as_real|\[\s*\.\.\.\s*,\s*(0|1)?::2\s*\]|interleav|\bpolar\b", re.IGNORECASE
)


def _rope(facts: Facts, said: Intention) -> Iterator[Intention]:
    text = f"{facts.source} {' '.join(facts.submodules.values())} {' '.join(facts.arrays)}"
    takes = {call_role_of(argument.name) for argument in facts.call}
    if "rope" in said.stated or not (_ROPE_WORDS.search(text) or takes & {"cos", "rope"}) or not facts.source:
        yield said
        return
    base = attribute(facts, "rope_base", float)
    halves_first = not _ADJACENT.search(facts.source)
    order: tuple[Pairing, ...] = ("halves", "adjacent") if halves_first else ("adjacent", "halves")
    for pairing in order:
        rope = Rope(pairing, base=base[1] if base else 10000.0)
        yield said.assuming(f"{rope}, from its source", rope=rope)
    yield said


def _alibi(facts: Facts, said: Intention) -> Iterator[Intention]:
    says = re.search(r"alibi", f"{facts.source} {facts.class_name}", re.IGNORECASE)
    takes = any(call_role_of(argument.name) == "alibi_slopes" for argument in facts.call)
    if says and not takes and "alibi" not in said.stated and (facts.file or "alibi" in facts.class_name.lower()):
        yield said.assuming("alibi, from its source", alibi=Alibi())
    else:
        yield said


def _signed_alibi(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Under a causal mask the two forms of alibi are the same, until the mask is at fault."""
    yield said
    alibi = said.spec.alibi
    if alibi is not None and not alibi.signed and said.spec.masks(Causal):
        yield replace(said, spec=said.spec.but(alibi=replace(alibi, signed=True)))


def _softcap(facts: Facts, said: Intention) -> Iterator[Intention]:
    cap = attribute(facts, "softcap", float)
    yield said if cap is None or cap[1] <= 0 else said.assuming(f"softcap {cap[1]:g}, from {cap[0]}", softcap=cap[1])


def _sinks(facts: Facts, said: Intention) -> Iterator[Intention]:
    owned = [name for name, array in facts.arrays.items() if array.learned and re.search(r"sinks?$", name)]
    yield said.assuming(f"sinks, from its parameter {owned[0]}", sinks=True) if owned else said


def _qk_norm(facts: Facts, said: Intention) -> Iterator[Intention]:
    names = [
        name for name in facts.arrays if re.search(r"(^|\.|_)(q|k|query|key)_?(layer)?_?(norm|ln)\w*\.weight$", name)
    ]
    if not names:
        yield said
        return
    head_dim = attribute(facts, "head_dim", int)
    width = facts.arrays[names[0]].shape[-1]
    kind = "head" if head_dim is None or width == head_dim[1] else "width"
    yield said.assuming(f"query and key normalised per {kind}, from {names[0]}", qk_norm=kind)


def attribute(facts: Facts, role: str, kind: Callable[[Any], Any]) -> tuple[str, Any] | None:
    """Name and value of the attribute with this role, the one nearest to the candidate; None where it has none."""
    found = []
    for name, value in facts.attributes.items():
        if role_of(name.rpartition(".")[2]) != role or value is None or isinstance(value, str):
            continue
        if isinstance(value, bool) != (kind is bool):
            continue
        found.append((name.count("."), name, kind(value)))
    return None if not found else min(found, key=lambda item: item[0])[1:]
