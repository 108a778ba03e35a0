"""Specs and calls for property tests: hypothesis draws the configuration, and a drawn seed draws the numbers.

Every axis has sizes of its own, so that no two axes can be mistaken for each other and still fit.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from hypothesis import strategies as st

from qkv.masks import Causal, Dilated, Documents, Everything, GlobalTokens, Mask, Padding, Prefix, SlidingWindow
from qkv.oracle import Inputs, Linear, Norm, Parameters
from qkv.positions import Alibi, RelativeBias, Rope, RopeScaling
from qkv.spec import AttentionSpec

Form = Literal["heads", "tokens", "cross", "cross_value"]
"""What a call is made from: query, key and value; ``x`` alone; ``x`` and a source; ``x`` and two sources."""

Extra = Literal["may_attend", "is_token", "document", "bias"]
"""What a call may hand over beside them."""

EMBED, KEY_EMBED, VALUE_EMBED = 16, 18, 20
HEAD_DIM = 8


@dataclass(frozen=True)
class Call:
    """The sizes of a call, what it is made from, and the seed of its numbers."""

    form: Form = "heads"
    batch: int = 2
    query_len: int = 7
    key_len: int = 7
    extras: frozenset[Extra] = frozenset()
    seed: int = 0

    def inputs(self, spec: AttentionSpec) -> Inputs:
        """The inputs of this call, the same each time."""
        return inputs_for(
            spec,
            np.random.default_rng(self.seed),
            form=self.form,
            batch=self.batch,
            query_len=self.query_len,
            key_len=self.key_len,
            extras=self.extras,
        )


# --- what hypothesis draws --------------------------------------------------------------------------------------------


def drawn_masks() -> st.SearchStrategy[Mask]:
    """Every mask, and ``&``, ``|`` and ``~`` of them."""
    single = st.one_of(
        st.just(Causal()),
        st.builds(Causal, st.sampled_from([-2, -1, 1, 2])),
        st.builds(SlidingWindow, st.integers(1, 6)),
        st.builds(Prefix, st.integers(0, 4)),
        st.builds(Dilated, st.integers(1, 3)),
        st.builds(GlobalTokens, st.integers(0, 3)),
        st.just(Documents()),
        st.just(Padding()),
        st.just(Everything()),
    )
    return st.recursive(
        single,
        lambda masks: st.one_of(
            st.builds(lambda a, b: a & b, masks, masks),
            st.builds(lambda a, b: a | b, masks, masks),
            masks.map(lambda a: ~a),
        ),
        max_leaves=3,
    )


def drawn_scalings() -> st.SearchStrategy[RopeScaling]:
    """Every way to slow rope down, with original lengths so short that a few pairs show all parts of the ramps."""
    factor, length = st.sampled_from([2.0, 0.8]), st.sampled_from([8, 64, 1000, 8192])
    return st.one_of(
        st.builds(RopeScaling, st.just("linear"), factor),
        st.builds(
            RopeScaling,
            st.just("llama3"),
            factor,
            length,
            low_freq_factor=st.sampled_from([1.0, 0.5]),
            high_freq_factor=st.sampled_from([4.0, 9.0]),
        ),
        st.builds(
            RopeScaling,
            st.just("yarn"),
            factor,
            length,
            beta_fast=st.sampled_from([32.0, 3.0]),
            beta_slow=st.sampled_from([1.0, 0.3]),
            attention_factor=st.sampled_from([None, 1.25]),
            truncate=st.booleans(),
        ),
    )


def drawn_ropes(head_dim: int) -> st.SearchStrategy[Rope]:
    """Ropes that fit a head of that many channels."""
    parts = [4, 6] if head_dim % 2 else [None, 4, 6]
    return st.builds(
        Rope,
        pairing=st.sampled_from(["halves", "adjacent"]),
        base=st.sampled_from([10000.0, 500.0]),
        dims=st.sampled_from(parts),
        scaling=st.none() | drawn_scalings(),
    )


@st.composite
def drawn_specs(draw: st.DrawFn) -> AttentionSpec:
    """Specs that use every option, most of them a few at a time."""
    num_kv_heads, group_size = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (3, 2)]))
    num_heads = num_kv_heads * group_size
    head_dim = draw(st.sampled_from([None, HEAD_DIM, 9, 10]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with _random_state_kept():
        alibis = [None, Alibi(), Alibi(tuple(rng.uniform(0.05, 1, num_heads).tolist())), Alibi(signed=True)]
        relative_bias = RelativeBias(tuple(tuple(row) for row in rng.normal(size=(num_heads, 7)).tolist()))
    return AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=draw(st.sampled_from([None, num_kv_heads])) if group_size == 1 else num_kv_heads,
        head_dim=head_dim,
        value_dim=draw(st.sampled_from([None, 12, 14])),
        embed_dim=draw(st.sampled_from([None, EMBED])),
        scale=draw(st.sampled_from([None, 0.7])),
        mask=draw(drawn_masks()),
        query_offset=draw(st.sampled_from(["bottom_right", "top_left", -1, 2, 4])),
        rope=draw(st.none() | drawn_ropes(head_dim or HEAD_DIM)),
        alibi=draw(st.sampled_from(alibis)),
        relative_bias=draw(st.sampled_from([None, relative_bias])),
        softcap=draw(st.sampled_from([None, 1.5])),
        sinks=draw(st.booleans()),
        qk_norm=draw(st.sampled_from([None, "head", "width"])),
        dropout_p=draw(st.sampled_from([0.0, 0.1])),
        projection_bias=draw(st.booleans()),
        out_proj=draw(st.booleans()),
        empty_row=draw(st.sampled_from(["zero", "nan", "uniform"])),
    )


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """The tests' type checks look at random items of a tuple, and hypothesis wants no such draw inside a strategy."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


@st.composite
def drawn_calls(draw: st.DrawFn) -> Call:
    """Calls of every form, with more, fewer and as many queries as keys."""
    form: Form = draw(st.sampled_from(get_args(Form)))
    key_len = draw(st.sampled_from([5, 7]))
    return Call(
        form=form,
        query_len=key_len if form == "tokens" else draw(st.sampled_from([1, 3, key_len, key_len + 2])),
        key_len=key_len,
        extras=draw(st.frozensets(st.sampled_from(get_args(Extra)))),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


# --- what the seed draws ----------------------------------------------------------------------------------------------


def inputs_for(
    spec: AttentionSpec,
    rng: np.random.Generator,
    *,
    form: Form = "heads",
    batch: int = 2,
    query_len: int = 7,
    key_len: int = 7,
    extras: Collection[Extra] = (),
) -> Inputs:
    """Random float64 inputs that fit the spec; sinks come along where it has them."""
    head_dim = spec.head_dim or HEAD_DIM
    value_dim = spec.value_dim or head_dim
    inputs = Inputs(sinks=rng.normal(size=spec.num_heads) if spec.sinks else None)
    if form == "heads":
        inputs = inputs.but(
            query=rng.normal(size=(batch, spec.num_heads, query_len, head_dim)),
            key=rng.normal(size=(batch, spec.kv_heads, key_len, head_dim)),
            value=rng.normal(size=(batch, spec.kv_heads, key_len, value_dim)),
            parameters=parameters_for(spec, rng) if _happens(rng) else None,
        )
    else:
        key_width, value_width = {
            "tokens": (EMBED, EMBED), "cross": (KEY_EMBED, KEY_EMBED), "cross_value": (KEY_EMBED, VALUE_EMBED)
        }[form]  # fmt: skip
        inputs = inputs.but(
            x=rng.normal(size=(batch, query_len, EMBED)),
            source=None if form == "tokens" else rng.normal(size=(batch, key_len, key_width)),
            value_source=rng.normal(size=(batch, key_len, value_width)) if form == "cross_value" else None,
            parameters=parameters_for(spec, rng, key_width, value_width),
        )
    return inputs.but(**{extra: _extra(extra, spec, rng, batch, query_len, key_len) for extra in sorted(extras)})


def parameters_for(
    spec: AttentionSpec, rng: np.random.Generator, key_width: int = EMBED, value_width: int = EMBED
) -> Parameters:
    """Random parameters that fit the spec. An output projection may come even where the spec asks for none."""
    head_dim = spec.head_dim or HEAD_DIM
    value_dim = spec.value_dim or head_dim
    together = spec.qk_norm == "width"
    return Parameters(
        q_proj=_linear(rng, EMBED, spec.num_heads * head_dim, spec.projection_bias),
        k_proj=_linear(rng, key_width, spec.kv_heads * head_dim, spec.projection_bias),
        v_proj=_linear(rng, value_width, spec.kv_heads * value_dim, spec.projection_bias),
        out_proj=_linear(rng, spec.num_heads * value_dim, EMBED, _happens(rng))
        if spec.out_proj or _happens(rng)
        else None,
        q_norm=_norm(rng, head_dim * (spec.num_heads if together else 1)),
        k_norm=_norm(rng, head_dim * (spec.kv_heads if together else 1)),
    )


def _linear(rng: np.random.Generator, width: int, out: int, bias: bool) -> Linear:
    return Linear(rng.normal(size=(out, width)) / width**0.5, rng.normal(size=out) if bias else None)


def _norm(rng: np.random.Generator, width: int) -> Norm | None:
    if rng.random() < 0.2:
        return None
    return Norm(
        kind=("rms", "layer", "l2")[rng.integers(3)],
        weight=rng.normal(size=width) if _happens(rng) else None,
        bias=rng.normal(size=width) if _happens(rng) else None,
        eps=(1e-6, 3.0)[rng.integers(2)],  # so large that it decides the size of an l2 norm
        plus_one=_happens(rng),
    )


def _extra(
    extra: Extra, spec: AttentionSpec, rng: np.random.Generator, batch: int, query_len: int, key_len: int
) -> Any:
    match extra:
        case "is_token":
            return rng.random((batch, key_len)) < 0.7
        case "document":
            return np.sort(rng.integers(0, 3, size=(batch, key_len)), axis=1)
        case "may_attend":
            return rng.random(_broadcastable(rng, batch, spec.num_heads, query_len, key_len)) < 0.7
        case "bias":
            return rng.normal(size=_broadcastable(rng, batch, spec.num_heads, query_len, key_len))


def _broadcastable(rng: np.random.Generator, *shape: int) -> tuple[int, ...]:
    """The shape with some axes 1 long and some of the first ones left out."""
    shape = tuple(1 if rng.random() < 0.25 else size for size in shape)
    return shape[rng.integers(3) :]


def _happens(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)
