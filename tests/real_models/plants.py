"""Faults planted in the attentions of transformers and torch: the line that is changed, and the fault that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MODELS = "transformers.models"
MASKS = "transformers.masking_utils"


@dataclass(frozen=True)
class Plant:
    """One line changed.

    Attributes:
        fault: id of the fault that this makes.
        where: name of the class or function that is changed, or ``module:name``; without a module, the model's own.
        line: what stands there.
        instead: what is put there.
    """

    fault: str
    where: str
    line: str
    instead: str


@dataclass(frozen=True)
class Model:
    """A model's attention with the faults planted in it.

    Attributes:
        candidate: the adapter.
        module: the module that the attention comes from.
        plants: the faults.
        given: fields of the spec; without any, the spec is the model's config.
    """

    candidate: str
    module: str
    plants: list[Plant]
    given: dict[str, Any] = field(default_factory=dict)


EAGER = "eager_attention_forward"
ROPE = "apply_rotary_pos_emb"
MERGE = Plant("heads-merged-by-view", EAGER, "attn_output.transpose(1, 2).contiguous()", "attn_output.contiguous()")
UNSCALED = Plant("scale-missing", EAGER, " * scaling", "")
OVER_QUERIES = Plant("softmax-over-queries", EAGER, "dim=-1", "dim=-2")
OVER_HEADS = Plant("softmax-over-heads-or-batch", EAGER, "dim=-1", "dim=1")
UNMASKED = Plant("causal-missing", EAGER, "attn_weights + attention_mask", "attn_weights")
ONE_AHEAD = Plant("causal-one-ahead", f"{MASKS}:causal_mask_function", "kv_idx <= q_idx", "kv_idx <= q_idx + 1")
STRICT = Plant("causal-strict", f"{MASKS}:causal_mask_function", "kv_idx <= q_idx", "kv_idx < q_idx")
WIDER = Plant(
    "window-off-by-one", f"{MASKS}:sliding_window_overlay", "q_idx - sliding_window", "q_idx - sliding_window - 1"
)
NARROWER = Plant(
    "window-off-by-one", f"{MASKS}:sliding_window_overlay", "q_idx - sliding_window", "q_idx - sliding_window + 1"
)
NO_WINDOW = Plant("window-missing", f"{MASKS}:sliding_window_overlay", "kv_idx > q_idx - sliding_window", "kv_idx >= 0")
INTERLEAVED = Plant(
    "rope-layout-mixed",
    "rotate_half",
    "torch.cat((-x2, x1), dim=-1)",
    "torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)",
)
NO_MINUS = Plant("rope-minus-missing", "rotate_half", "(-x2, x1)", "(x2, x1)")
OTHER_WAY = Plant("rope-sign", "rotate_half", "(-x2, x1)", "(x2, -x1)")
QUERY_ONLY = Plant("rope-one-sided", ROPE, "return q_embed, k_embed", "return q_embed, k")
TILED = Plant(
    "kv-heads-tiled",
    "repeat_kv",
    "hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)",
    "hidden_states[:, None].expand(batch, n_rep, num_key_value_heads, slen, head_dim)",
)


def value_is_key(attention: str) -> Plant:
    return Plant("value-is-key", attention, "self.v_proj(hidden_states)", "self.k_proj(hidden_states)")


WRONG = [
    Model(
        "gpt2_attention.py",
        f"{MODELS}.gpt2.modeling_gpt2",
        [
            UNSCALED,
            OVER_QUERIES,
            OVER_HEADS,
            UNMASKED,
            ONE_AHEAD,
            STRICT,
            Plant(
                "heads-merged-by-view",
                EAGER,
                "attn_output.transpose(1, 2)",
                "attn_output.reshape(query.transpose(1, 2).shape)",
            ),
            Plant("scale-by-model-width", "GPT2Attention", "self.head_dim**-0.5", "self.embed_dim**-0.5"),
            Plant(
                "key-value-swapped",
                "GPT2Attention",
                "query_states, key_states, value_states = self.c_attn",
                "query_states, value_states, key_states = self.c_attn",
            ),
            Plant(
                "fused-qkv-layout",
                "GPT2Attention",
                "query_states, key_states, value_states = self.c_attn",
                "value_states, query_states, key_states = self.c_attn",
            ),
            Plant(
                "output-projection-missing",
                "GPT2Attention",
                "attn_output = self.c_proj(attn_output)",
                "attn_output = attn_output",
            ),
        ],
    ),
    Model(
        "llama_attention.py",
        f"{MODELS}.llama.modeling_llama",
        [
            UNSCALED,
            OVER_QUERIES,
            ONE_AHEAD,
            STRICT,
            INTERLEAVED,
            NO_MINUS,
            OTHER_WAY,
            QUERY_ONLY,
            TILED,
            MERGE,
            value_is_key("LlamaAttention"),
        ],
    ),
    Model(
        "mistral_attention.py",
        f"{MODELS}.mistral.modeling_mistral",
        [
            WIDER,
            NARROWER,
            NO_WINDOW,
            STRICT,
            UNSCALED,
            OVER_QUERIES,
            TILED,
            MERGE,
            INTERLEAVED,
            value_is_key("MistralAttention"),
        ],
    ),
    Model(
        "qwen3_attention.py",
        f"{MODELS}.qwen3.modeling_qwen3",
        [
            UNSCALED,
            TILED,
            MERGE,
            INTERLEAVED,
            ONE_AHEAD,
            Plant(
                "qk-norm-missing",
                "Qwen3Attention",
                "self.k_norm(self.k_proj(hidden_states).view(hidden_shape))",
                "self.k_proj(hidden_states).view(hidden_shape)",
            ),
            Plant(
                "qk-norm-missing",
                "Qwen3Attention",
                "self.q_norm(self.q_proj(hidden_states).view(hidden_shape))",
                "self.q_proj(hidden_states).view(hidden_shape)",
            ),
            Plant(
                "qk-norm-axis",
                "Qwen3RMSNorm",
                "hidden_states.pow(2).mean(-1, keepdim=True)",
                "hidden_states.pow(2).mean((-2, -1), keepdim=True)",
            ),
        ],
    ),
    Model(
        "gemma2_attention.py",
        f"{MODELS}.gemma2.modeling_gemma2",
        [
            UNSCALED,
            WIDER,
            TILED,
            MERGE,
            Plant("softcap-missing", "Gemma2Attention", "softcap=self.attn_logit_softcapping", "softcap=None"),
            Plant("scale-ignored", "Gemma2Attention", "config.query_pre_attn_scalar**-0.5", "self.head_dim**-0.5"),
            Plant(
                "softcap-other-constant",
                "Gemma2Attention",
                "softcap=self.attn_logit_softcapping",
                "softcap=2 * self.attn_logit_softcapping",
            ),
        ],
    ),
    Model(
        "gpt_neox_attention.py",
        f"{MODELS}.gpt_neox.modeling_gpt_neox",
        [
            UNSCALED,
            OVER_QUERIES,
            STRICT,
            INTERLEAVED,
            MERGE,
            Plant(
                "rope-partial-frequencies",
                "GPTNeoXRotaryEmbedding",
                "dtype=torch.float) / dim",
                "dtype=torch.float) / head_dim",
            ),
            Plant(
                "rope-partial-ignored",
                "GPTNeoXRotaryEmbedding",
                "dim = int(head_dim * partial_rotary_factor)",
                "dim = head_dim",
            ),
            Plant(
                "fused-qkv-layout",
                "GPTNeoXAttention",
                "self.query_key_value(hidden_states).view(hidden_shape).transpose(1, 2)",
                "self.query_key_value(hidden_states)"
                ".unflatten(-1, (3, -1, self.head_size)).transpose(2, 3).flatten(3).transpose(1, 2)",
            ),
        ],
    ),
    Model(
        "gpt_oss_attention.py",
        f"{MODELS}.gpt_oss.modeling_gpt_oss",
        [
            UNSCALED,
            WIDER,
            TILED,
            MERGE,
            Plant(
                "sink-missing",
                EAGER,
                "combined_logits = torch.cat([attn_weights, sinks], dim=-1)",
                "combined_logits = torch.cat([attn_weights, sinks - float('inf')], dim=-1)",
            ),
            Plant(
                "sink-of-other-head",
                EAGER,
                "module.sinks.reshape(1, -1, 1, 1)",
                "module.sinks.roll(1).reshape(1, -1, 1, 1)",
            ),
            Plant(
                "yarn-scale",
                "GptOssRotaryEmbedding",
                "return cos.to(x.dtype), sin.to(x.dtype)",
                "return (cos / self.attention_scaling).to(x.dtype), (sin / self.attention_scaling).to(x.dtype)",
            ),
        ],
    ),
    Model(
        "bert_attention.py:eager",
        f"{MODELS}.bert.modeling_bert",
        [
            UNSCALED,
            OVER_QUERIES,
            OVER_HEADS,
            MERGE,
            Plant("mask-not-applied", EAGER, "attn_weights + attention_mask", "attn_weights"),
            Plant("value-is-key", "BertSelfAttention", "value_layer = self.value(", "value_layer = self.key("),
        ],
    ),
    Model(
        "bert_attention.py:sdpa",
        "transformers.integrations.sdpa_attention",
        [
            Plant(
                "heads-merged-by-view",
                "sdpa_attention_forward",
                "attn_output.transpose(1, 2).contiguous()",
                "attn_output.contiguous()",
            ),
            Plant("scale-missing", "sdpa_attention_forward", "scale=scaling", "scale=1.0"),
            Plant("mask-not-applied", "sdpa_attention_forward", "attn_mask=attention_mask", "attn_mask=None"),
            Plant("dropout-in-eval", "sdpa_attention_forward", "dropout_p=dropout", "dropout_p=0.5"),
        ],
    ),
    Model(
        "phi3_attention.py",
        f"{MODELS}.phi3.modeling_phi3",
        [
            UNSCALED,
            TILED,
            MERGE,
            Plant(
                "value-is-key",
                "Phi3Attention",
                "value_states = qkv[..., query_pos + self.num_key_value_heads * self.head_dim :]",
                "value_states = qkv[..., query_pos : query_pos + self.num_key_value_heads * self.head_dim]",
            ),
        ],
    ),
    Model(
        "olmo2_attention.py",
        f"{MODELS}.olmo2.modeling_olmo2",
        [
            UNSCALED,
            TILED,
            MERGE,
            Plant(
                "qk-norm-missing",
                "Olmo2Attention",
                "self.k_norm(self.k_proj(hidden_states))",
                "self.k_proj(hidden_states)",
            ),
            Plant(
                "qk-norm-axis",
                "Olmo2RMSNorm",
                "hidden_states.pow(2).mean(-1, keepdim=True)",
                "hidden_states.unflatten(-1, (-1, 8)).pow(2).mean(-1).repeat_interleave(8, -1)",
            ),
        ],
    ),
    Model(
        "bloom_attention.py",
        f"{MODELS}.bloom.modeling_bloom",
        [
            Plant("scale-missing", "BloomAttention", "alpha=self.inv_norm_factor", "alpha=1.0"),
            Plant("alibi-missing", "BloomAttention", "beta=self.beta", "beta=0.0"),
            Plant(
                "alibi-sign",
                "build_alibi_tensor",
                "slopes[..., None] * arange_tensor",
                "-slopes[..., None] * arange_tensor",
            ),
            Plant("heads-merged-by-view", "BloomAttention", "x = x.permute(0, 2, 1, 3)", "x = x.contiguous()"),
        ],
    ),
    Model(
        "mpt_attention.py",
        f"{MODELS}.mpt.modeling_mpt",
        [
            Plant("scale-missing", "MptAttention", " * self.softmax_scale", ""),
            Plant("alibi-missing", "MptAttention", "attention_scores + position_bias", "attention_scores"),
            Plant(
                "alibi-slopes",
                "build_mpt_alibi_tensor",
                "[slopes[:, 1::2, ...], slopes[:, ::2, ...]]",
                "[slopes[:, ::2, ...], slopes[:, 1::2, ...]]",
            ),
            Plant(
                "heads-merged-by-view",
                "MptAttention",
                "context_states.permute(0, 2, 1, 3).contiguous()",
                "context_states.contiguous()",
            ),
        ],
    ),
    Model(
        "torch_attention.py:CausalMultiHead",
        "torch.nn.functional",
        [
            Plant(
                "heads-merged-by-view",
                "multi_head_attention_forward",
                "attn_output.permute(2, 0, 1, 3).reshape(bsz * tgt_len, embed_dim)",
                "attn_output.reshape(bsz, tgt_len, embed_dim).transpose(0, 1).reshape(bsz * tgt_len, embed_dim)",
            ),
            Plant(
                "scale-missing",
                "multi_head_attention_forward",
                "q, k, v, attn_mask, dropout_p, is_causal",
                "q, k, v, attn_mask, dropout_p, is_causal, scale=1.0",
            ),
            Plant(
                "causal-inverted",
                "multi_head_attention_forward",
                "q, k, v, attn_mask, dropout_p, is_causal",
                "q, k, v, attn_mask.mT, dropout_p, is_causal",
            ),
            Plant(
                "value-is-key", "multi_head_attention_forward", "v = v.view(bsz, num_heads, src_len, head_dim)", "v = k"
            ),
        ],
        {"num_heads": 6, "causal": True},
    ),
]
