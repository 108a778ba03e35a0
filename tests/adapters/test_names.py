"""The vocabulary: no name in two roles, every spelling found."""

from __future__ import annotations

from collections import Counter

import pytest

from qkv.adapters.names import (
    CALL_ROLES,
    INCOMING,
    KV_HEADS_OR_GROUP_SIZE,
    ROLES,
    bare,
    call_role_of,
    is_config,
    projection_role,
    role_of,
)


@pytest.mark.parametrize("table", [ROLES, CALL_ROLES], ids=["constructor", "call"])
def test_each_name_has_one_role_and_stands_in_its_bare_form(table):
    names = [name for names in table.values() for name in names]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [name for name in names if bare(name) != name] == []


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("d_in", "embed_dim"),
        ("n_embd", "embed_dim"),
        ("config.hidden_size", "embed_dim"),
        ("cfg.n_head", "num_heads"),
        ("h", "num_heads"),
        ("_num_heads", "num_heads"),
        ("d_out", "out_dim"),
        ("num_key_value_heads", "num_kv_heads"),
        ("num_key_value_groups", "group_size"),
        ("d_k", "head_dim"),
        ("d_v", "value_dim"),
        ("block_size", "context_length"),
        ("qkv_bias", "bias"),
        ("mask", "causal"),
        ("attn_logit_softcapping", "softcap"),
        ("rope_theta", "rope_base"),
        ("query_pre_attn_scalar", "query_pre_attn_scalar"),
        ("hid_dim", "embed_dim"),
        ("nx", "embed_dim"),
        ("n_in", "embed_dim"),
        ("n_out", "out_dim"),
        ("n_h", "num_heads"),
        ("n", None),
        ("temperature", "temperature"),
        ("colour", None),
        ("attn.num_heads", None),
    ],
)
def test_role_of_a_constructor_argument(name, role):
    assert role_of(name) == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("X", "x"),
        ("Q", "query"),
        ("mask", "mask"),
        ("attention_mask", "mask"),
        ("key_padding_mask", "padding"),
        ("memory_padding_mask", "padding"),
        ("enc_mask", "padding"),
        ("decoder_self_mask", "mask"),
        ("head_mask", None),
        ("bias", "bias"),
        ("W_query", "w_q"),
        ("Wq", "w_q"),
        ("W_o", "w_o"),
        ("b_q", "b_q"),
        ("past_key_values", "cache"),
        ("position_embeddings", "rope"),
        ("start_pos", "query_offset"),
        ("prefix_len", "prefix"),
        ("num_prefix", "prefix"),
        ("colour", None),
    ],
)
def test_role_of_a_call_argument(name, role):
    assert call_role_of(name) == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("q_layers", "q"),
        ("k_projs", "k"),
        ("v_layers", "v"),
        ("query_heads", "q"),
        ("P_q", "q"),
        ("P_o", "out"),
        ("w_concat", "out"),
        ("kqv", "kqv"),
        ("mixer", None),
    ],
)
def test_role_of_an_array(name, role):
    assert projection_role(name) == role


def test_names_singled_out_belong_to_the_role_they_qualify():
    assert {role_of(name) for name in INCOMING} == {"embed_dim"}
    assert {role_of(name) for name in KV_HEADS_OR_GROUP_SIZE} == {"num_kv_heads"}


@pytest.mark.parametrize(
    ("name", "annotation", "expected"),
    [
        ("config", "", True),
        ("cfg", "dict", True),
        ("c", "GPTConfig", True),
        ("x", "model.ModelArgs", True),
        ("d_in", "int", False),
    ],
)
def test_config_objects_are_known_by_name_or_class(name, annotation, expected):
    assert is_config(name, annotation) is expected
