"""Givers: what each argument of a call gets that comes along with the tokens, by its role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from qkv.adapters.abilities import NotApplicable
from qkv.adapters.binding import LEAVE, Signature
from qkv.adapters.messages import Argument, Array
from qkv.adapters.packing import boundaries, tokens_of_texts
from qkv.adapters.written_masks import MaskForm
from qkv.errors import CandidateError
from qkv.masks import Causal, Everything, Prefix, sides_of
from qkv.oracle import Inputs
from qkv.oracle.run import Run
from qkv.oracle.stages import allowed
from qkv.spec import AttentionSpec


def extras(
    signature: Signature, spec: AttentionSpec, inputs: Inputs, form: MaskForm, padding_form: MaskForm
) -> Callable[[str], Any]:
    """A giver for everything that comes along with the tokens: masks, switches and numbers of the spec."""
    query_len, key_len = inputs.lengths

    def masked() -> Any:
        # One over the keys says what is padding; what positions hide, whoever takes such a mask hides himself.
        by_itself = form.axes == 1 and not any(spec.mask.varies)
        said = spec.but(mask=Everything()) if by_itself else spec
        may_attend = handed_mask(signature, said, inputs)
        argument = signature.roles["mask"]
        nothing_hidden = said.mask == Everything() and inputs.may_attend is None and inputs.is_token is None
        if nothing_hidden and not argument.required:
            return LEAVE
        return form.written(may_attend)

    def padded() -> Any:
        if inputs.is_token is None:
            return LEAVE if not signature.roles["padding"].required else padding_form.encoded(
                np.ones((inputs.batch, key_len), dtype=bool))  # fmt: skip
        return padding_form.encoded(inputs.is_token)

    def lengths() -> Any:
        if inputs.is_token is None:
            return np.full(inputs.batch, key_len) if signature.roles["lengths"].required else LEAVE
        return _right_padded_lengths(inputs.is_token)

    def of_texts() -> tuple[Array, Array]:
        return tokens_of_texts(spec, inputs, apart=signature.has("cu_seqlens_k"))

    givers: dict[str, Callable[[], Any]] = {
        "mask": masked,
        "padding": padded,
        "lengths": lengths,
        "documents": lambda: _documents(signature, inputs),
        "cu_seqlens": lambda: boundaries(of_texts()[0]),
        "cu_seqlens_k": lambda: boundaries(of_texts()[1]),
        "max_seqlen": lambda: int(of_texts()[0].max()),
        "max_seqlen_k": lambda: int(of_texts()[1].max()),
        "bias": lambda: _bias(signature, inputs),
        "prefix": lambda: _prefix(spec),
        "freqs_cis": lambda: _complex_table(spec, inputs),
        "causal": lambda: _causal(signature, spec),
        "scale": lambda: spec.scale if spec.scale is not None else _required(signature, "scale", spec.head_dim),
        "dropout": lambda: 0.0 if signature.roles["dropout"].required else LEAVE,
        "training": lambda: False if signature.roles["training"].required else LEAVE,
        "window": lambda: _window(signature, spec, inputs),
        "left_window": lambda: _side("left_window", signature, spec, inputs),
        "right_window": lambda: _side("right_window", signature, spec, inputs),
        "softcap": lambda: LEAVE if spec.softcap is None else spec.softcap,
        "sinks": lambda: LEAVE if inputs.sinks is None else inputs.sinks,
        "alibi_slopes": lambda: LEAVE if spec.alibi is None else np.array(spec.alibi.slopes_for(spec.num_heads)),
        "cos": lambda: _tables(spec, inputs)[0],
        "sin": lambda: _tables(spec, inputs)[1],
        "rope": lambda: tuple(table[None] for table in _tables(spec, inputs)),
        "position_ids": lambda: _position_ids(signature, spec, inputs),
        "cache_lens": lambda: _cache_lens(signature, inputs),
        "query_offset": lambda: spec.offset_for(query_len, key_len),
        "num_heads": lambda: spec.num_heads,
        "num_kv_heads": lambda: spec.kv_heads,
        "group_size": lambda: spec.group_size,
        "head_dim": lambda: LEAVE if spec.head_dim is None else spec.head_dim,
        "embed_dim": lambda: LEAVE if spec.embed_dim is None else spec.embed_dim,
        "enable_gqa": lambda: spec.group_size > 1,
    }
    return lambda role: givers[role]() if role in givers else _none_where_required(signature, role)


def _none_where_required(signature: Signature, role: str) -> Any:
    """None for a cache or the like that has no default; the default where there is one."""
    absent = {"cache": None, "k_cache": None, "v_cache": None, "return_weights": None, "use_cache": False}
    return absent[role] if role in absent and signature.roles[role].required else LEAVE


def _required(signature: Signature, role: str, head_dim: int | None) -> Any:
    return head_dim**-0.5 if signature.roles[role].required and head_dim else LEAVE


def handed_mask(signature: Signature, spec: AttentionSpec, inputs: Inputs) -> Array:
    """What a mask argument must say: all of the mask, but for the parts that have an argument of their own."""
    if signature.has("padding") or signature.has("lengths") or signature.counts_keys:
        inputs = inputs.but(is_token=None)
    if signature.has("causal") and spec.mask == Causal():
        spec = spec.but(mask=Everything())
    query_len, key_len = inputs.lengths
    heads = spec.num_heads if spec.mask.varies[1] else 1
    scores = np.broadcast_to(np.float64(0.0), (inputs.batch, heads, query_len, key_len))
    if inputs.may_attend is not None:
        inputs = inputs.but(may_attend=inputs.may_attend[:, :1])
    may_attend: Array = allowed(Run(spec, inputs, scores=scores))
    return may_attend


def _bias(signature: Signature, inputs: Inputs) -> Any:
    if inputs.bias is None and not signature.roles["bias"].required:
        return LEAVE
    bias = np.zeros((1, 1, *inputs.lengths)) if inputs.bias is None else inputs.bias
    if signature.bias_axes == 3 and len(bias) > 1:
        raise NotApplicable("a bias without an axis of sequences can't say what each of them gets")
    return bias[0] if signature.bias_axes == 3 else bias


def _prefix(spec: AttentionSpec) -> Any:
    lengths = [part.length for part in spec.mask.parts() if isinstance(part, Prefix)]
    return lengths[0] if lengths else LEAVE


def _position_ids(signature: Signature, spec: AttentionSpec, inputs: Inputs) -> Any:
    """Positions of the queries, ``(batch, query)``; left to the default where that can only be the same.

    The positions that gpt-fast and transformers write a cache at are the same for all sequences: ``(query,)``.
    """
    query_len, key_len = inputs.lengths
    argument = signature.roles["position_ids"]
    if not argument.required and query_len == key_len and not inputs.steps:
        return LEAVE
    at = np.arange(query_len) + spec.offset_for(query_len, key_len)
    if argument.annotation == "int" or type(argument.default) is int:
        return int(at[0])
    return at if argument.name in ("input_pos", "cache_position") else np.broadcast_to(at, (inputs.batch, query_len))


def _cache_lens(signature: Signature, inputs: Inputs) -> Any:
    """How many tokens the caches hold already, one number for each sequence; all of them where they are the keys."""
    query_len, key_len = inputs.lengths
    if signature.counts_keys and inputs.is_token is not None:
        return _right_padded_lengths(inputs.is_token).astype(np.int32)
    if not signature.roles["cache_lens"].required and not inputs.steps:
        return LEAVE
    held = key_len - query_len if signature.has("k_cache") else key_len
    return held if signature.roles["cache_lens"].annotation == "int" else np.full(inputs.batch, held, dtype=np.int32)


def _right_padded_lengths(is_token: Array) -> Array:
    lengths = is_token.sum(axis=1)
    if (is_token != (np.arange(is_token.shape[1]) < lengths[:, None])).any():
        raise NotApplicable("lengths can't say that padding stands on the left")
    counts: Array = lengths
    return counts


def _documents(signature: Signature, inputs: Inputs) -> Any:
    if inputs.document is not None:
        return inputs.document
    key_len = inputs.lengths[1]
    return np.zeros((inputs.batch, key_len), dtype=np.int64) if signature.roles["documents"].required else LEAVE


def _window(signature: Signature, spec: AttentionSpec, inputs: Inputs) -> Any:
    """Keys that a query sees, its own included; flash-attention's pair counts those on either side of its own."""
    argument, whole = signature.roles["window"], sum(inputs.lengths)
    before, after = sides_of(spec.mask)
    if _is_pair(argument):
        unsaid = before is None and (after is None or (after == 0 and signature.has("causal")))
        hides = argument.required or (isinstance(argument.default, tuple) and max(argument.default) >= 0)
        pair = whole if before is None else before, whole if after is None else after
        return LEAVE if unsaid and not hides else pair
    if before is None:
        narrow = type(argument.default) is int and argument.default > 0
        return whole if argument.required or narrow else LEAVE
    _must_be_even(argument, before, after)
    return before + 1


def _side(role: str, signature: Signature, spec: AttentionSpec, inputs: Inputs) -> Any:
    """Keys before, or after, its own that a query sees; more than there are where the call needs some number."""
    argument = signature.roles[role]
    before, after = sides_of(spec.mask)
    if role == "left_window" and before is not None and not signature.has("right_window"):
        _must_be_even(argument, before, after)
    side = before if role == "left_window" else None if after == 0 and signature.has("causal") else after
    return side if side is not None else sum(inputs.lengths) if argument.required else LEAVE


def _is_pair(argument: Argument) -> bool:
    """Whether a window's argument takes the keys before and the keys after a query's own."""
    if isinstance(argument.default, tuple) or "tuple" in argument.annotation.lower():
        return True
    scalar = argument.required or argument.default is not None or "int" in argument.annotation
    return argument.name == "window_size" and not scalar


def _must_be_even(argument: Argument, before: int, after: int | None) -> None:
    """Nothing.

    Raises:
        CandidateError: one number can't say how far both sides of the window reach.
    """
    if after not in (0, before):
        ahead = "all" if after is None else after
        raise CandidateError(
            f"its argument {argument.name!r} takes one number, and the window that is meant reaches {before} keys back "
            f"and {ahead} ahead",
            hint="a window that reaches as far ahead as back, or a causal one; or let it take a pair (left, right)",
        )


def _causal(signature: Signature, spec: AttentionSpec) -> bool:
    """Whether a query sees nothing after its own key.

    Raises:
        CandidateError: the mask hides some of what comes after it, and no argument can say how much.
    """
    if not spec.masks(Causal) or Causal() in spec.mask.parts():
        return spec.masks(Causal)
    window = signature.roles.get("window")
    if not (signature.has("right_window") or signature.has("mask") or (window and _is_pair(window))):
        name = signature.roles["causal"].name
        raise CandidateError(
            f"its argument {name!r} says whether it's causal or not, and can't say the mask {spec.mask}",
            hint="--causal, or a mask argument",
        )
    return False


def _complex_table(spec: AttentionSpec, inputs: Inputs) -> Any:
    """``exp(i * position * frequency)``, ``(query, pair)``, as Meta's Llama hands it over."""
    if spec.rope is None:
        return LEAVE
    cos, sin = _tables(spec.but(rope=replace(spec.rope, pairing="adjacent")), inputs)
    return cos[:, ::2] + 1j * sin[:, ::2]


def _tables(spec: AttentionSpec, inputs: Inputs) -> tuple[Array, Array]:
    """Cosines and sines of the keys' positions, ``(token, rotary_dims)``, as libraries hand them over."""
    if spec.rope is None or spec.head_dim is None:
        raise CandidateError(
            "the call takes tables of cosines and sines, and the spec has no rope",
            hint="say which rope is meant, for instance --rope halves",
        )
    query_len, key_len = inputs.lengths
    at = np.arange(query_len) + spec.offset_for(query_len, key_len)
    angles = at[:, None] * np.array(spec.rope.frequencies(spec.head_dim))
    angles = np.concatenate([angles, angles], -1) if spec.rope.pairing == "halves" else np.repeat(angles, 2, -1)
    return np.cos(angles) * spec.rope.attention_factor, np.sin(angles) * spec.rope.attention_factor
