"""Inference: what a candidate says of itself (names, attributes, arguments, buffers, words) becomes a spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from qkv.adapters.host import Host
from qkv.adapters.messages import Facts
from qkv.inference import Intention, intention_from, intentions
from qkv.masks import Causal, Documents, Everything, Prefix, SlidingWindow
from qkv.positions import Alibi, Rope
from qkv.spec import AttentionSpec


def facts_of(candidate: Any) -> Facts:
    """What the host says of a candidate; a class is built with its defaults first."""
    host = Host()
    facts = host.open(candidate)
    return host.build({}) if facts.what == "class" else facts


def meant(candidate: Any, **given: Any) -> list[Intention]:
    return intentions(facts_of(candidate), intention_from(given, whole=False))


def the(found: list[Intention]) -> Intention:
    (one,) = found
    return one


def module(name: str, /, *, buffers: dict[str, torch.Tensor] | None = None, **attributes: Any) -> type:
    """A class of this name with three projections and these attributes; its source says nothing."""

    def init(self: Any) -> None:
        nn.Module.__init__(self)
        for key, value in attributes.items():
            setattr(self, key, value)
        for key, value in (buffers or {}).items():
            self.register_buffer(key, value)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(12, 12) for _ in range(3))

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    members = {"__init__": init, "forward": forward, "__module__": "nowhere"}
    return type(name, (nn.Module,), members)


CAUSAL, ANY = Causal(), Everything()

# --- causal or not ----------------------------------------------------------------------------------------------------

SAID = [
    ("CausalAttention", {}, CAUSAL, "causal, from its name CausalAttention"),
    ("MaskedSelfAttention", {}, CAUSAL, "causal, from its name MaskedSelfAttention"),
    ("DecoderBlockAttention", {}, CAUSAL, "causal, from its name DecoderBlockAttention"),
    ("GPTAttention", {}, CAUSAL, "causal, from its name GPTAttention"),
    ("Attention", {"is_causal": True}, CAUSAL, "causal, from is_causal"),
    ("Attention", {"causal": True, "window_size": 4}, CAUSAL & SlidingWindow(4),
     "causal within a window of 4, from window_size, from causal"),
    ("Attention", {"buffers": {"mask": torch.ones(9, 9).triu(1)}}, CAUSAL, "causal, from its buffer mask"),
    ("Attention", {"buffers": {"bias": torch.ones(1, 1, 9, 9).tril()}}, CAUSAL, "causal, from its buffer bias"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "attributes", "mask", "why"), SAID, ids=[why for *_, why in SAID])
def test_what_says_causal(name: str, attributes: dict[str, Any], mask: Any, why: str) -> None:
    intention = the(meant(module(name, **attributes)))
    assert intention.spec.mask == mask
    assert intention.assumptions == (why,)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"causal": False}, {"buffers": {"table": torch.ones(9, 9)}}, {"mask": nn.Parameter(torch.ones(9, 9))}],
)
def test_what_says_nothing_may_be_either(attributes: dict[str, Any]) -> None:
    first, second = meant(module("Attention", **attributes))
    assert (first.spec.mask, second.spec.mask) == (ANY, CAUSAL)
    assert [one.startswith("not causal: nothing says so") for one in first.assumptions] == [True]
    assert second.assumptions == ("causal: nothing says so; its numbers come nearest to that",)


def masked_by_its_bias(q: Any, k: Any, v: Any, attn_bias: Any) -> Any:
    """What is hidden is minus infinity in the bias."""


def masked_attention(q: Any, k: Any, v: Any) -> Any:
    """The padding is left out."""


def masked_and_no_more(q: Any, k: Any, v: Any) -> Any:
    """Masked attention."""


def test_masked_in_a_name_means_causal_only_where_no_other_mask_is_given_or_named() -> None:
    assert [one.spec.mask for one in meant(masked_by_its_bias)][:1] == [ANY]
    assert [one.spec.mask for one in meant(masked_attention)][:1] == [ANY]
    assert {one.spec.mask for one in meant(masked_and_no_more)} == {CAUSAL}


def test_a_window_alone_may_be_two_sided_or_causal() -> None:
    first, second = meant(module("Attention", sliding_window=4))
    assert (first.spec.mask, second.spec.mask) == (SlidingWindow(4), CAUSAL & SlidingWindow(4))
    assert "within a window of 4, from sliding_window" in first.assumptions[0]
    assert first.assumptions[0].startswith("not causal")


def test_a_mask_that_the_user_gave_is_the_only_one() -> None:
    assert the(meant(module("CausalAttention"), causal=False)).spec.mask == ANY
    intention = the(meant(module("Attention", window_size=4), causal=True))
    assert (intention.spec.mask, intention.assumptions) == (CAUSAL, ())


ALONE = [
    ({"window": 6}, SlidingWindow(6), CAUSAL & SlidingWindow(6)),
    ({"documents": True}, Documents(), CAUSAL & Documents()),
    ({"window": 4, "prefix": 3}, SlidingWindow(4) | Prefix(3), (CAUSAL & SlidingWindow(4)) | Prefix(3)),
    ({"window": 4, "documents": True}, SlidingWindow(4) & Documents(), CAUSAL & SlidingWindow(4) & Documents()),
]


@pytest.mark.parametrize(("given", "bare", "causal"), ALONE)
def test_a_window_or_documents_that_the_user_gave_leave_open_whether_it_is_causal(
    given: dict[str, Any], bare: Any, causal: Any
) -> None:
    own = {"window_size": 9} if "window" in given else {}
    assert [one.spec.mask for one in meant(module("Attention", **own), **given)] == [bare, causal]
    assert the(meant(module("CausalAttention", **own), **given)).spec.mask == causal
    assert the(meant(module("CausalAttention"), **given, causal=False)).spec.mask == bare


# --- by the words of its own source -----------------------------------------------------------------------------------


def from_text(text: str, name: str, tmp_path: Any) -> Facts:
    """What the host says of a function or class that is written in a file."""
    path = tmp_path / "candidate.py"
    path.write_text(f"import torch\nimport torch.nn as nn\nimport numpy as np\n{text}")
    host = Host()
    facts = host.open(f"{path}:{name}")
    return host.build({}) if facts.what == "class" else facts


WORDS = [
    ("scores = scores.masked_fill(torch.triu(torch.ones(5, 5), 1).bool(), -1e9)", CAUSAL, "causal, from 'triu'"),
    ("keep = np.tril(np.ones((5, 5)))", CAUSAL, "causal, from 'tril'"),
    ("# no token may look into the future", CAUSAL, "causal, from 'future'"),
    ("look_ahead = 1", CAUSAL, "causal, from 'look_ahead'"),
]


@pytest.mark.parametrize(("line", "mask", "why"), WORDS, ids=[why for *_, why in WORDS])
def test_words_in_a_file_count(line: str, mask: Any, why: str, tmp_path: Any) -> None:
    facts = from_text(f"def attention(x, w_q, w_k, w_v):\n    {line}\n    return x\n", "attention", tmp_path)
    intention = the(intentions(facts, intention_from({}, whole=False)))
    assert intention.spec.mask == mask
    assert intention.assumptions == (f"{why} in its source",)


@pytest.mark.parametrize("line", ["# bidirectional, not like the causal one", "# non-causal"])
def test_words_against_it_leave_both_open(line: str, tmp_path: Any) -> None:
    facts = from_text(f"def attention(x, w_q, w_k, w_v):\n    {line}\n    return x\n", "attention", tmp_path)
    masks = [intention.spec.mask for intention in intentions(facts, intention_from({}, whole=False))]
    assert masks == [ANY, CAUSAL]


ALL_SEEN = {
    "Every token of x looks at all tokens of the memory": [ANY],
    "Bidirectional self-attention": [ANY],
    "A query attends to every encoder token": [ANY],
    "A token sees all tokens before it": [CAUSAL],
    "Each token attends to all tokens up to its own place": [CAUSAL],
    "Causal: a token sees all tokens, future ones aside": [CAUSAL],
    "Nothing of the kind": [CAUSAL],
}


@pytest.mark.parametrize(("doc", "masks"), ALL_SEEN.items())
def test_documentation_by_which_all_is_seen_outweighs_a_name_in_the_code(
    doc: str, masks: list[Any], tmp_path: Any
) -> None:
    text = f'def attention(x, w_q, w_k, w_v):\n    """{doc}."""\n    causal = np.tril(np.ones((5, 5)))\n    return x\n'
    found = intentions(from_text(text, "attention", tmp_path), intention_from({}, whole=False))
    assert [intention.spec.mask for intention in found] == masks
    assert found[0].assumptions[0].startswith("not causal, from '" if masks == [ANY] else "causal, from '")


# --- functions --------------------------------------------------------------------------------------------------------


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    return q


def lower_right(q: Any, k: Any, v: Any, is_causal: bool = True) -> Any:
    """With is_causal the mask is aligned to the bottom right corner."""
    return q


def upper_left(q: Any, k: Any, v: Any, is_causal: bool = True) -> Any:
    """Mask drawn from the upper-left corner."""
    return q


def causal_decode(q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None) -> Any:
    return q


def test_a_function_that_does_not_say_may_mean_either_corner() -> None:
    first, second = meant(causal_attention)
    assert [one.spec.mask for one in (first, second)] == [CAUSAL, CAUSAL]
    assert [one.spec.query_offset for one in (first, second)] == ["bottom_right", "top_left"]
    assert second.assumptions[-1].startswith("query 0 stands at position 0 (top left)")


def test_a_corner_that_the_documentation_names_is_the_only_one() -> None:
    assert the(meant(lower_right)).spec.query_offset == "bottom_right"
    intention = the(meant(upper_left))
    assert intention.spec.query_offset == "top_left"
    assert intention.assumptions[-1] == "its first query is aligned top_left, from 'upper-left'"


def test_with_a_cache_the_queries_stand_at_the_end() -> None:
    assert [one.spec.query_offset for one in meant(causal_decode)] == ["bottom_right"]


def test_a_corner_that_the_user_gave_is_the_only_one() -> None:
    assert the(meant(causal_attention, query_offset="top_left")).spec.query_offset == "top_left"


def with_gqa(q: Any, k: Any, v: Any, enable_gqa: bool = False) -> Any:
    return q


def test_a_function_that_shares_heads_gets_heads_to_share() -> None:
    grouped, alone = meant(with_gqa)[0], meant(with_gqa)[-1]
    assert (grouped.spec.num_heads, grouped.spec.num_kv_heads) == (6, 2)
    assert not grouped.if_refused
    assert (alone.spec.num_heads, alone.if_refused) == (1, True)
    assert the(meant(with_gqa, num_heads=4, causal=False)).spec.num_heads == 4


def takes_much(q: Any, k: Any, v: Any, softcap: float = 0.0, sinks: Any = None, alibi_slopes: Any = None) -> Any:
    return q


def takes_visibility(
    q: Any, k: Any, v: Any, causal: bool = False, prefix_len: int = 0, document_ids: Any = None
) -> Any:
    return q


def test_what_a_function_can_be_asked_for_it_is_asked_for() -> None:
    spec = meant(takes_much, causal=False)[0].spec
    assert (spec.softcap, spec.sinks, spec.alibi) == (5.0, True, Alibi())
    spec = meant(takes_visibility, query_offset="top_left")[0].spec
    assert spec.mask == (CAUSAL | Prefix(3)) & Documents()


# --- numbers ----------------------------------------------------------------------------------------------------------

Build = Callable[[AttentionSpec], Any]

ATTRIBUTES: list[tuple[dict[str, Any], Build, Any, str]] = [
    ({"num_heads": 4}, lambda spec: (spec.num_heads, spec.kv_heads), (4, 4), "4 heads, from num_heads"),
    ({"n_head": 4, "n_kv_heads": 2}, lambda spec: (spec.num_heads, spec.num_kv_heads), (4, 2),
     "2 key/value heads, from n_kv_heads"),
    ({"attn_logit_softcapping": 30.0}, lambda spec: spec.softcap, 30.0, "softcap 30, from attn_logit_softcapping"),
    ({"query_pre_attn_scalar": 16}, lambda spec: spec.scale, 0.25, "the scale is 16^-0.5, from query_pre_attn_scalar"),
    ({"sinks": nn.Parameter(torch.zeros(4))}, lambda spec: spec.sinks, True, "sinks, from sinks"),
    ({"q_norm": nn.RMSNorm(3), "head_dim": 3}, lambda spec: spec.qk_norm, "head",
     "query and key normalised per head, from q_norm.weight"),
    ({"q_norm": nn.LayerNorm(12), "head_dim": 3}, lambda spec: spec.qk_norm, "width",
     "query and key normalised per width, from q_norm.weight"),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "read", "value", "why"), ATTRIBUTES, ids=[why for *_, why in ATTRIBUTES])
def test_attributes_become_fields(attributes: dict[str, Any], read: Build, value: Any, why: str) -> None:
    intention = the(meant(module("CausalAttention", **attributes)))
    assert read(intention.spec) == value
    assert why in intention.assumptions


@pytest.mark.parametrize(
    "attributes",
    [
        {"n_head": 4, "n_kv_heads": 3},
        {"num_heads": 0},
        {"softcap": 0.0},
        {"query_pre_attn_scalar": 0},
        {"softcap": True},
    ],
)
def test_numbers_that_make_no_sense_are_left_alone(attributes: dict[str, Any]) -> None:
    spec = the(meant(module("CausalAttention", **attributes))).spec
    assert (spec.kv_heads, spec.softcap, spec.scale) == (spec.num_heads, None, None)


def test_what_the_user_gave_stands_against_what_the_candidate_says() -> None:
    intention = the(meant(module("CausalAttention", n_head=4, softcap=30.0), num_heads=2, softcap=None, scale=0.5))
    assert (intention.spec.num_heads, intention.spec.scale, intention.spec.softcap) == (2, 0.5, None)
    assert "4 heads, from n_head" not in intention.assumptions


# --- rope and alibi ---------------------------------------------------------------------------------------------------


class RopeCausal(nn.Module):
    """With rope."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim, self.rope_theta, self.rotary_pct = 8, 500.0, 0.5
        self.q_proj = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([-x2, x1], dim=-1)


class ComplexRopeCausal(nn.Module):
    """Rope by complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, freqs_cis: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * freqs_cis)


class AlibiCausal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.q_proj = 4, nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_rope_is_meant_in_both_pairings_the_likelier_first_and_last_not_at_all() -> None:
    half, adjacent, none = meant(RopeCausal)
    assert half.spec.rope == Rope("halves", base=500.0, dims=4)
    assert adjacent.spec.rope == Rope("adjacent", base=500.0, dims=4)
    assert none.spec.rope is None
    ropes = [one.spec.rope for one in meant(ComplexRopeCausal)]
    assert ropes == [Rope("adjacent"), Rope("halves"), None]


class SharingRopeCausal(RopeCausal):
    """With rope, and keys that are shared."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([-x2, x1], dim=-1).repeat_interleave(2, dim=1)


class InterleavedRopeCausal(RopeCausal):
    """With rope."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.repeat_interleave(2, dim=-1).cos()


@pytest.mark.parametrize(("candidate", "pairing"), [(SharingRopeCausal, "halves"), (InterleavedRopeCausal, "adjacent")])
def test_what_takes_channels_apart_says_how_rope_pairs_them(candidate: type[Any], pairing: str) -> None:
    rope = meant(candidate)[0].spec.rope
    assert rope is not None
    assert rope.pairing == pairing


def test_a_rope_that_the_user_gave_is_the_only_one() -> None:
    assert the(meant(RopeCausal, rope={"pairing": "adjacent", "base": 7.0})).spec.rope == Rope("adjacent", base=7.0)


def test_alibi_under_a_causal_mask_has_two_forms() -> None:
    usual, signed = meant(AlibiCausal)
    assert (usual.spec.alibi, signed.spec.alibi) == (Alibi(), Alibi(signed=True))


# --- empty rows -------------------------------------------------------------------------------------------------------


def says_zero(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A query that may attend to nothing gives zeros."""
    return q


def says_nan(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Fully masked rows are NaN."""
    return q


def says_mean(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A row with no keys gets the mean of all values."""
    return q


@pytest.mark.parametrize(("candidate", "rule"), [(says_zero, "zero"), (says_nan, "nan"), (says_mean, "uniform")])
def test_what_documentation_says_of_empty_rows_holds(candidate: Any, rule: str) -> None:
    for intention in meant(candidate):
        assert intention.spec.empty_row == rule
        assert "empty_row" in intention.stated
    assert the(meant(candidate, causal=False, empty_row="nan")).spec.empty_row == "nan"


def test_without_a_word_empty_rows_are_not_settled() -> None:
    assert all("empty_row" not in intention.stated for intention in meant(causal_attention))


# --- what a whole file settles ----------------------------------------------------------------------------------------


def test_a_whole_spec_settles_what_it_leaves_out_but_not_sizes() -> None:
    candidate = module("CausalAttention", n_head=4, softcap=30.0)
    (intention,) = intentions(facts_of(candidate), intention_from({}, whole=True))
    assert intention.spec == AttentionSpec()
    assert intention.assumptions == ()
    assert {"mask", "softcap", "num_heads", "rope"} <= intention.stated
    assert intention.stated.isdisjoint({"head_dim", "embed_dim", "out_proj", "empty_row"})


# --- windows ----------------------------------------------------------------------------------------------------------

WINDOWS = [
    ("q, k, v, window_size=4", "", 4, "from window_size=4"),
    ("q, k, v, w=3", "", 3, "from w=3"),
    ("q, k, v, *, left_window=3", "", 4, "from left_window=3"),
    ("q, k, v, window", "", 4, "asked for with its argument window"),
    ("q, k, v", "each query sees 5 keys", 5, "from 'sees 5 keys'"),
    ("q, k, v", "a window of size 3", 3, "from 'window of size 3'"),
    ("q, k, v", "an 8-token sliding window", 8, "from '8-token sliding window'"),
    ("q, k, v", "attends to the last 6 tokens", 6, "from 'attends to the last 6 tokens'"),
    ("q, k, v", "each token sees itself and the 3 tokens before it", 4, "from 'itself and the 3 tokens'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words", "size", "why"), WINDOWS, ids=[why for *_, why in WINDOWS])
def test_a_window_is_read_from_arguments_and_words(
    arguments: str, words: str, size: int, why: str, tmp_path: Any
) -> None:
    text = f"def attention({arguments}):\n    # causal; {words}\n    return q\n"
    intention = intentions(from_text(text, "attention", tmp_path), intention_from({}, whole=False))[0]
    assert intention.spec.mask == CAUSAL & SlidingWindow(size)
    assert f"within a window of {size}, {why}" in intention.assumptions[0]


@pytest.mark.parametrize(
    "arguments",
    ["q, k, v, window=None", "q, k, v, window=-1", "q, k, v, window_size=(-1, -1)", "q, k, v, w"],
)
@pytest.mark.parametrize("words", ["", "a window of 4, or a window of 5", "the last 3 tokens are padding"])
def test_what_says_no_window_or_several_is_none(arguments: str, words: str, tmp_path: Any) -> None:
    text = f"def attention({arguments}):\n    # causal; {words}\n    return q\n"
    intention = intentions(from_text(text, "attention", tmp_path), intention_from({}, whole=False))[0]
    assert intention.spec.mask == CAUSAL


def test_the_users_word_goes_before_an_arguments_default(tmp_path: Any) -> None:
    facts = from_text("def causal(q, k, v, window_size=4):\n    return q\n", "causal", tmp_path)
    assert intentions(facts, intention_from({"window": 6}, whole=False))[0].spec.mask == CAUSAL & SlidingWindow(6)
    assert intentions(facts, intention_from({"causal": True}, whole=False))[0].spec.mask == CAUSAL


class Scaled:
    def __init__(self, dim: int, num_heads: int, softmax_scale: float = 0.2, dropout: float = 0.1) -> None:
        self.scale = softmax_scale * dim**-0.5  # of its own making: no statement


@pytest.mark.parametrize("given", [{}, {"scale": 0.5}])
def test_a_number_for_the_scale_in_a_constructor_is_meant_or_the_usual_one_is(given: dict[str, Any]) -> None:
    found = intentions(Host().open(Scaled), intention_from({"causal": True, **given}, whole=False))
    assert [one.spec.scale for one in found] == ([0.5] if given else [0.2, None])
    assert given or "the scale is 0.2, from softmax_scale=0.2" in found[0].assumptions
