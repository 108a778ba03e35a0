"""Rules: one for each part of a spec. Each turns an intention into those that fit what the candidate says of itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from qkv.adapters.messages import Facts
from qkv.adapters.names import call_role_of
from qkv.adapters.projections import norm_roles
from qkv.errors import SpecError
from qkv.inference.evidence import (
    all_seen_said,
    attribute,
    base_in_source,
    causal_evidence,
    corner_said,
    empty_row_said,
    pairs_adjacent_channels,
    scale_by_default,
    speaks_of_groups,
    speaks_of_rope,
    takes,
    window_said,
)
from qkv.inference.intention import OPEN_IN_A_FILE, SETTLED_BY_A_FILE, Intention
from qkv.masks import Causal, Documents, Everything, Mask, Prefix, Sides, SlidingWindow, window_of
from qkv.positions import Alibi, Rope
from qkv.spec import spec_from_config
from qkv.vocabulary import Pairing

Rule = Callable[[Facts, Intention], Iterator[Intention]]

GROUPED = (6, 2)
"""Query and key/value heads for functions that share heads and say no numbers."""

SOFTCAP, PREFIX, WINDOW = 5.0, 3, 4
"""For functions that take such an argument, where nothing says its value."""


def huggingface(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Its own Hugging Face config says all there is to say."""
    if not facts.config:
        yield said
        return
    layer = attribute(facts, "layer_idx", int)
    try:
        spec = spec_from_config(facts.config, max(layer[1], 0) if layer else 0)
    except SpecError:
        yield said
        return
    fields = {name: getattr(spec, name) for name in SETTLED_BY_A_FILE | {"num_kv_heads"} if hasattr(spec, name)}
    model = facts.config.get("model_type")
    meant = said.assuming(f"as its own config of a {model} model says", **fields)
    yield replace(meant, stated=said.stated | (SETTLED_BY_A_FILE - OPEN_IN_A_FILE))


def heads(facts: Facts, said: Intention) -> Iterator[Intention]:
    """The number of heads, and of key/value heads."""
    number = attribute(facts, "num_heads", int)
    if "num_heads" in said.stated:
        yield said
    elif number is not None and number[1] > 0:
        kv = attribute(facts, "num_kv_heads", int)
        meant = said.assuming(f"{number[1]} heads, from {number[0]}", num_heads=number[1], num_kv_heads=None)
        if kv is not None and kv[1] > 0 and number[1] % kv[1] == 0:
            meant = meant.assuming(f"{kv[1]} key/value heads, from {kv[0]}", num_kv_heads=kv[1])
        yield meant
    elif facts.what == "function" and takes(facts, "query") and "num_kv_heads" in said.stated:
        yield said.noting(f"{said.spec.num_heads} query heads: nothing says how many share a key/value head")
    elif facts.what == "function" and takes(facts, "query") and speaks_of_groups(facts):
        words = f"{GROUPED[0]} query heads over {GROUPED[1]} key/value heads, since it shares heads"
        yield said.assuming(words, num_heads=GROUPED[0], num_kv_heads=GROUPED[1])
        yield replace(said, if_refused=True)
    else:
        yield said


def mask(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Causal or not, with the window, prefix and documents that the user or the candidate speaks of."""
    if "mask" in said.stated:
        yield said
        return
    size = said.given.get("window")
    window = window_said(facts) or _window_asked_for(facts) if size is None else ((size - 1, size - 1), "")
    (before, after), why = window or ((None, None), "")
    within = f" within a window of {before + 1}" if before is not None and why else ""
    prefix = said.given.get("prefix", PREFIX if takes(facts, "prefix") else None)
    documents = bool(said.given.get("documents") or takes(facts, "documents") or takes(facts, "cu_seqlens"))
    causal = _joined(Causal() if before is None else Causal() & SlidingWindow(before + 1), prefix, documents)
    evidence = why if after == 0 != before else causal_evidence(facts)
    if evidence:
        reasons = dict.fromkeys([f"causal{within}", *([why] if within else []), evidence])
        yield said.assuming(", ".join(reasons), mask=causal)
        return
    bare = _joined(window_of((before, after)), None if before is None else said.given.get("prefix"), documents)
    if before != after:
        sides = f"{before} keys before a query's own and {after} after it".replace("None", "all")
        yield said.noting(f"{sides}, {why}", mask=bare)
        return
    more = f"{within}, {why}" if within else ""
    all_seen = all_seen_said(facts)
    if all_seen:
        yield said.noting(f"not causal{',' if more else ''}{more}, {all_seen}", mask=bare)
        return
    yield said.noting(f"not causal{',' if more else ''}{more}: nothing says so (--causal if it should be)", mask=bare)
    yield said.assuming(f"causal{more}: nothing says so; its numbers come nearest to that", mask=causal)


def _window_asked_for(facts: Facts) -> tuple[Sides, str] | None:
    """A window for an argument that has to be given one."""
    asked = next((a for a in facts.call if call_role_of(a.name) in ("window", "left_window") and a.required), None)
    return ((WINDOW - 1, WINDOW - 1), f"asked for with its argument {asked.name}") if asked else None


def _joined(mask: Mask, prefix: int | None, documents: bool) -> Mask:
    if prefix is not None:
        mask = mask | Prefix(prefix)
    if documents:
        mask = Documents() if mask == Everything() else mask & Documents()
    return mask


def corner(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Where the first query of a function stands: both corners are in use where nothing says which."""
    own_lengths = takes(facts, "query") and not facts.arrays
    if not own_lengths or not said.spec.masks(Causal):
        yield said
        return
    if "query_offset" in said.stated:
        default = said.spec.query_offset == "bottom_right" and "query_offset" not in said.given
        note = "the last query stands at the last key: query_offset is bottom_right where a spec doesn't name it"
        yield said.noting(note) if default else said
        return
    named = corner_said(facts)
    if named:
        yield said.assuming(f"its first query is aligned {named[0]}, from {named[1]!r}", query_offset=named[0])
        return
    yield said
    names = f"{facts.name} {' '.join(argument.name for argument in facts.call)}"
    if not re.search(r"cache|decode|past", names, re.IGNORECASE):
        why = "query 0 stands at position 0 (top left), whatever the number of keys"
        yield said.assuming(why, query_offset="top_left")


def rope(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Rope on either pairing, with the base and the number of channels that it names."""
    handed = takes(facts, "cos") or takes(facts, "rope") or takes(facts, "freqs_cis")
    if "rope" in said.stated or not (speaks_of_rope(facts) or handed) or not facts.source:
        yield said
        return
    base, dims = attribute(facts, "rope_base", float) or base_in_source(facts), _rotary_dims(facts)
    first: Pairing = "adjacent" if pairs_adjacent_channels(facts) else "halves"
    second: Pairing = "halves" if first == "adjacent" else "adjacent"
    for pairing in (first, second):
        meant = Rope(pairing, base=base[1] if base else 10000.0, dims=dims)
        yield said.assuming(f"{meant}, from its source", rope=meant)
    yield said


def _rotary_dims(facts: Facts) -> int | None:
    dims = attribute(facts, "rotary_dims", int)
    head_dim = attribute(facts, "head_dim", int)
    fraction = attribute(facts, "rotary_fraction", float)
    if dims is None and fraction is not None and head_dim is not None and fraction[1] < 1:
        return int(fraction[1] * head_dim[1]) or None
    if dims is None or dims[1] < 2 or dims[1] % 2 or (head_dim is not None and dims[1] >= head_dim[1]):
        return None
    return int(dims[1])


def alibi(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Alibi; under a causal mask in both of its forms, which differ once the mask is at fault."""
    words = f"{facts.source if facts.file else ''} {facts.class_name}"
    says = re.search(r"alibi", words, re.IGNORECASE) or takes(facts, "alibi_slopes")
    meant = said.assuming("alibi, from its source", alibi=Alibi()) if says else said
    yield meant
    if meant.spec.alibi is not None and not meant.spec.alibi.signed and meant.spec.masks(Causal):
        yield replace(meant, spec=meant.spec.but(alibi=replace(meant.spec.alibi, signed=True)))


def scores(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Softcap, a scale by the model's own constant, sinks."""
    cap = attribute(facts, "softcap", float)
    if cap is not None and cap[1] > 0:
        said = said.assuming(f"softcap {cap[1]:g}, from {cap[0]}", softcap=cap[1])
    elif takes(facts, "softcap"):
        said = said.assuming(f"softcap {SOFTCAP:g}, asked for with its argument", softcap=SOFTCAP)
    scalar = attribute(facts, "query_pre_attn_scalar", float)
    if scalar is not None and scalar[1] > 0:
        said = said.assuming(f"the scale is {scalar[1]:g}^-0.5, from {scalar[0]}", scale=scalar[1] ** -0.5)
    for meant in _scales(facts, said):
        yield _with_sinks(facts, meant)


def _scales(facts: Facts, said: Intention) -> Iterator[Intention]:
    """With the number that a constructor or a config has for the scale by default, and without it."""
    number = scale_by_default(facts)
    if number is not None and "scale" not in said.stated and said.spec.scale is None:
        yield said.assuming(f"the scale is {number[1]:g}, from {number[0]}", scale=number[1])
    yield said


def _with_sinks(facts: Facts, said: Intention) -> Intention:
    owned = [name for name, array in facts.arrays.items() if array.learned and re.search(r"sinks?$", name)]
    if owned or takes(facts, "sinks"):
        return said.assuming(f"sinks, from {owned[0] if owned else takes(facts, 'sinks')}", sinks=True)
    return said


def qk_norm(facts: Facts, said: Intention) -> Iterator[Intention]:
    """Normalised query and key, per head or over their width, by the size of the norm's own weight."""
    roles = norm_roles(facts)
    names = [name for name in facts.arrays if name.rpartition(".")[0] in roles]
    if not names:
        yield said
        return
    head_dim = attribute(facts, "head_dim", int)
    width = facts.arrays[names[0]].shape[-1]
    whole = width * said.spec.num_heads
    in_heads = any(size % whole == 0 for one in facts.arrays.values() if len(one.shape) > 1 for size in one.shape)
    kind = "head" if (in_heads if head_dim is None else width == head_dim[1]) else "width"
    yield said.assuming(f"query and key normalised per {kind}, from {names[0]}", qk_norm=kind)


def empty_row(facts: Facts, said: Intention) -> Iterator[Intention]:
    """What its documentation says of a query that may attend to nothing; it is then held to that."""
    named = empty_row_said(facts)
    if named is None or "empty_row" in said.stated:
        yield said
        return
    rule, words = named
    meant = replace(said, spec=said.spec.but(empty_row=rule), stated=said.stated | {"empty_row"})
    yield replace(meant, assumptions=(*said.assumptions, f"a query without keys gets {rule}, from {words!r}"))


RULES: tuple[Rule, ...] = (huggingface, heads, mask, corner, rope, alibi, scores, qk_norm, empty_row)
"""Every rule, in the order in which they speak."""


def intentions(facts: Facts, said: Intention) -> list[Intention]:
    """Every intention that fits what the candidate says of itself, the likeliest first."""
    found = [said]
    for rule in RULES:
        found = [further for intention in found for further in rule(facts, intention)]
    return found
