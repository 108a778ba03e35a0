"""qkv's own judges on `attend`: `qkv.check` finds it right under drawn specs, and `qkv.identify` reads them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.black_boxes import Drawn, drawn_from
from benchmarks.black_boxes.tensors import added, positions_of
from benchmarks.black_boxes.truths import answers
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from torch import Tensor

import qkv
from qkv.compute import attend
from qkv.masks import (
    And,
    Documents,
    Mask,
    Padding,
    dilated,
    documents,
    everything,
    padding,
    parse_mask,
    rule,
)
from qkv.positions import Alibi
from qkv.spec import AttentionSpec, spec_from_mapping
from qkv.vocabulary import DType

Attention = Callable[..., Tensor]

# --- check ------------------------------------------------------------------------------------------------------------


def attention_of(spec: AttentionSpec) -> Attention:
    """What a spec says, computed by `attend`; numbers of documents and lengths come with each call."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        sinks: Tensor | None = None,
        document_ids: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        mask = rules(spec.mask)
        if document_ids is not None:
            mask = mask & documents(document_ids)
        if lengths is not None:
            mask = mask & padding(lengths)
        output: Tensor = attend(
            query,
            key,
            value,
            mask=mask,
            bias=joined(bias, distance_bias(spec, query.shape[2], key.shape[2])),
            scale=spec.scale,
            softcap=spec.softcap,
            sinks=sinks,
            alibi=None if spec.alibi is None else spec.alibi.slopes_for(spec.num_heads),
            query_offset=spec.query_offset,
            empty_row=spec.empty_row,
        )
        return output

    return attention


def rules(mask: Mask) -> Mask:
    """A mask without the documents and padding that are joined to it, whose numbers come with a call."""
    if isinstance(mask, And):
        return rules(mask.left) & rules(mask.right)
    return everything() if mask in (Documents(), Padding()) else mask


def distance_bias(spec: AttentionSpec, query_len: int, key_len: int) -> Tensor | None:
    if spec.relative_bias is None:
        return None
    table = torch.tensor(spec.relative_bias.table)
    reach = table.shape[1] // 2
    distance = torch.arange(key_len) - torch.arange(query_len)[:, None] - spec.offset_for(query_len, key_len)
    return table[:, distance.clamp(-reach, reach) + reach][None]


def joined(bias: Tensor | None, other: Tensor | None) -> Tensor | None:
    given = [x for x in (bias, other) if x is not None]
    return sum(given[1:], given[0]) if given else None


def assert_right(spec: AttentionSpec, dtype: DType, gradients: bool) -> None:
    report = qkv.check(attention_of(spec), spec, dtype=dtype, gradients=gradients)
    assert report.verdict == "right", qkv.as_text(report)


CHECKED: list[tuple[DType, str, AttentionSpec]] = [
    ("float32", "causal & window(4) | prefix(2)", AttentionSpec(4, 2, 8, 5, softcap=3.0, sinks=True)),
    ("float64", "causal & documents", AttentionSpec(6, 2, 8, alibi=Alibi(), query_offset="top_left")),
    ("bfloat16", "window(3) & padding", AttentionSpec(3, 3, 6, scale=0.3, empty_row="uniform")),
    ("float16", "causal & dilated(2)", AttentionSpec(4, 1, 8, query_offset=2, empty_row="nan")),
]


@pytest.mark.parametrize(("dtype", "mask", "spec"), CHECKED, ids=str)
def test_check_finds_it_right(dtype: DType, mask: str, spec: AttentionSpec) -> None:
    assert_right(spec.but(mask=parse_mask(mask)), dtype, gradients=dtype == "float32")


def test_check_finds_boolean_tensors_right() -> None:
    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return attend(query, key, value, mask=attn_mask)

    report = qkv.check(attention, AttentionSpec(4, 2, 8, mask=parse_mask("causal & padding")))
    assert report.verdict == "right", qkv.as_text(report)
    assert "in its mask argument 'attn_mask', True may attend" in report.assumptions


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a spec as in its JSON form."""
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 4), (2, 3)]))
    few = st.integers(1, 6)
    masks = st.one_of(
        st.sampled_from(["causal", "documents", "padding", "~window(2)"]),
        *(few.map(f"{name}({{}})".format) for name in ("window", "prefix", "dilated", "global_tokens")),
        st.builds("causal & window({}) | prefix({})".format, few, few),
    )
    distances: dict[str, Any] = {
        "": {},
        "alibi": {"alibi": True},
        "slopes": {"alibi": [0.1 * (head + 1) for head in range(kv_heads * group)]},
        "table": {"relative_bias": [[0.5 * head, 1.0, -head, 0.0, 0.3] for head in range(kv_heads * group)]},
    }
    return {
        "num_heads": kv_heads * group,
        "num_kv_heads": kv_heads,
        "head_dim": draw(st.sampled_from([4, 8, 20])),
        "value_dim": draw(st.sampled_from([None, 3])),
        "out_proj": False,
        "mask": " & ".join(f"({mask})" for mask in draw(st.lists(masks, min_size=1, max_size=2))),
        "scale": draw(st.sampled_from([None, 0.3, 1.0])),
        "softcap": draw(st.sampled_from([None, None, 3.0, 30.0])),
        "sinks": draw(st.booleans()),
        "query_offset": draw(st.sampled_from(["bottom_right", "top_left", 2])),
        "empty_row": draw(st.sampled_from(["zero", "nan", "uniform"])),
        **distances[draw(st.sampled_from(list(distances)))],
    }


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(fields(), st.sampled_from(["float64", "float32", "bfloat16", "float16"]), st.booleans())
def test_check_finds_a_drawn_one_right(drawn: dict[str, Any], dtype: DType, gradients: bool) -> None:
    spec = spec_from_mapping(drawn)
    assume(spec.mask.dense(9, 9, query_offset=spec.query_offset).any())  # else there is nothing to judge
    assert_right(spec, dtype, gradients)


# --- identify ---------------------------------------------------------------------------------------------------------


def box_from(seed: int) -> Drawn:
    """A box that is drawn for `qkv.identify` elsewhere, with those of its options that `attend` has."""
    return replace(
        drawn_from(seed), rope=None, softmax_base="e", half_inside=False, tiled=False, signed=False,
        head_order=None, channel_order=None,
    )  # fmt: skip


def mask_of(drawn: Drawn) -> Mask:
    """Who may attend to whom in a box, as a mask."""
    visible = drawn.visible
    if visible.prefix and not visible.causal:
        return qkv.prefix(visible.prefix)
    mask = qkv.causal() if visible.causal else everything()
    if visible.window:
        mask = mask & qkv.window(visible.window)
    if visible.starts:
        # Texts of these lengths, the last one without an end: no numbers, since a query may stand after all keys.
        mask = mask & rule(lambda query, key: text_at(visible.starts, query) == text_at(visible.starts, key))
    if visible.step:
        mask = mask & dilated(visible.step)
    return mask | qkv.prefix(visible.prefix) if visible.prefix else mask


def text_at(starts: tuple[int, ...], position: Any) -> Any:
    return sum((position >= start) * 1 for start in starts)


def box_of(drawn: Drawn, dtype: torch.dtype) -> Attention:
    """The box, computed by `attend`."""

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = (x.to(dtype) for x in (query, key, value))
        if drawn.layout == "BTHD":
            query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        pairs, bias = drawn.visible.pairs, added(replace(drawn, slopes=None), *positions_of(drawn, query, key))
        output: Tensor = attend(
            query,
            key,
            value,
            mask=mask_of(drawn) if pairs is None else torch.from_numpy(pairs)[: query.shape[2], : key.shape[2]],
            bias=None if bias is None else bias[None],
            scale=drawn.scale,
            softcap=drawn.softcap,
            sinks=None if drawn.sinks is None else torch.tensor(drawn.sinks),
            alibi=drawn.slopes,
            query_offset=drawn.offset,
            dropout_p=drawn.dropout_p,
            empty_row=drawn.empty_row,
        )
        return output.transpose(1, 2) if drawn.layout == "BTHD" else output

    return attention


def assert_read(seed: int, dtype: torch.dtype) -> None:
    drawn = box_from(seed)
    identity = qkv.identify(box_of(drawn, dtype), drawn.given, layout=drawn.layout)
    wrong = [answer for answer in answers(drawn, identity) if answer.verdict != "right"]
    assert not wrong, (str(drawn), wrong)


QUICK = [0, 2, 5, 7, 9, 20]
"""Boxes that are read in under a second: with sinks, slopes, a prefix, a window, documents."""


@pytest.mark.parametrize("seed", QUICK)
def test_identify_reads_it(seed: int) -> None:
    assert_read(seed, torch.float32 if seed % 2 else torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", [seed for seed in range(40) if seed not in QUICK])
def test_identify_reads_more_of_them(seed: int, dtype: torch.dtype) -> None:
    assert_read(seed, dtype)
