"""Model families of transformers: an attention of each as a candidate, with one-line faults in its own module."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plants import (
    EAGER,
    INTERLEAVED,
    MERGE,
    NO_MINUS,
    OTHER_WAY,
    OVER_HEADS,
    OVER_QUERIES,
    QUERY_ONLY,
    ROPE,
    TILED,
    UNMASKED,
    UNSCALED,
    Plant,
    value_is_key,
)


@dataclass(frozen=True)
class Family:
    """A family's attention.

    Attributes:
        name: the family, as transformers names its folder.
        adapter: code that stands behind the module's own: ``CONFIG``, and ``Candidate``, which is judged.
        plants: the faults, each within one line of the module.
        given: fields of the spec; without any, the spec is ``CONFIG``.
    """

    name: str
    adapter: str
    plants: list[Plant]
    given: Mapping[str, Any] = field(default_factory=dict)

    def write(self, file: Path, plant: Plant | None) -> int:
        """The line that is changed; writes the module with a fault planted in it, and the adapter behind it.

        What it imports from its own package it imports from there still, so that lines keep their numbers.
        """
        home = f"transformers.models.{self.name}"
        found = importlib.util.find_spec(f"{home}.modeling_{self.name}")
        assert found is not None
        assert found.origin is not None
        lines = Path(found.origin).read_text().splitlines()
        changed = 0
        if plant is not None:
            changed = _line_of(plant, lines)
            lines[changed - 1] = f"{lines[changed - 1]}\n".replace(plant.line, plant.instead, 1).rstrip()
        for number, line in enumerate(lines):
            for dots, package in (("...", "transformers."), ("..", "transformers.models."), (".", f"{home}.")):
                line = re.sub(rf"^from {re.escape(dots)}(?=\w)", f"from {package}", line)
            lines[number] = line.replace("from ... import", "from transformers import")
        file.write_text("\n".join([*lines, self.adapter, ""]))
        return changed


def _line_of(plant: Plant, lines: list[str]) -> int:
    """The number of the first line in a class or function that has a text."""
    tree = ast.parse("\n".join(lines))
    where = next(
        node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == plant.where
    )
    assert where.end_lineno is not None
    for number in range(where.lineno, where.end_lineno + 1):
        if plant.line in f"{lines[number - 1]}\n":
            return number
    raise AssertionError(f"the library has changed: {plant.line!r} is on no line of {plant.where}")


# --- adapters ---------------------------------------------------------------------------------------------------------

SIZES = "hidden_size=48, num_attention_heads=6, num_hidden_layers=2, attn_implementation='eager'"

CALLED = """
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
CONFIG = {config}
class Candidate(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = {attention}
        {rope}
    def forward(self, x):
        {ready}
        return self.attention(x, {arguments})[0]
"""

MASK = "mask = {maker}(CONFIG, inputs_embeds=x, attention_mask=None, cache=None)"


def decoder(prefix: str, config: str = "", kv_heads: bool = True, window: bool = False, layer_type: str = "") -> str:
    """The adapter of a decoder with rope, whose model makes the rope and the mask for it."""
    maker = "create_sliding_window_causal_mask" if window else "create_causal_mask"
    grouped = "num_key_value_heads=2, " if kv_heads else ""
    positions = "torch.arange(x.shape[1])[None]"
    return CALLED.format(
        config=f"{prefix}Config({SIZES}, {grouped}{config})".replace("Gemma3Config", "Gemma3TextConfig"),
        attention=f"{prefix}Attention(CONFIG, layer_idx=0)",
        rope=f"self.rotary_emb = {prefix}RotaryEmbedding(CONFIG)",
        ready=MASK.format(maker=maker),
        arguments=f"position_embeddings=self.rotary_emb(x, {positions}{layer_type}), attention_mask=mask",
    )


def other(
    config: str, attention: str, *, causal: bool = False, rope: str = "", ready: str = "", arguments: str = ""
) -> str:
    """The adapter of another attention."""
    made = [MASK.format(maker="create_causal_mask")] if causal else []
    return CALLED.format(
        config=config,
        attention=attention,
        rope=rope,
        ready="\n        ".join([*made, ready]),
        arguments=arguments or ("attention_mask=mask" if causal else ""),
    )


# --- plants -----------------------------------------------------------------------------------------------------------

INVERSE = Plant("scale-inverted", EAGER, "* scaling", "/ scaling")
KEY_ONLY = Plant("rope-one-sided", ROPE, "return q_embed, k_embed", "return q, k_embed")
KEY_BACKWARDS = Plant(
    "rope-one-sided", ROPE, "(k * cos) + (rotate_half(k) * sin)", "(k * cos) - (rotate_half(k) * sin)"
)
MIX_OF_KEY = Plant("value-is-key", EAGER, "matmul(attn_weights, value_states)", "matmul(attn_weights, key_states)")


def handed(where: str, line: str, instead: str, fault: str) -> Plant:
    """Another array handed to the attention function: a line of the call."""
    return Plant(fault, where, f"            {line},\n", f"            {instead},\n")


# --- families ---------------------------------------------------------------------------------------------------------

ROPED = [UNSCALED, OVER_QUERIES, UNMASKED, MERGE, NO_MINUS, QUERY_ONLY]
BERT_LIKE = [UNSCALED, OVER_QUERIES, OVER_HEADS, MERGE]

FAMILIES = [
    Family(
        "llama",
        decoder("Llama", "head_dim=8"),
        [
            *ROPED,
            OTHER_WAY,
            INTERLEAVED,
            TILED,
            INVERSE,
            MIX_OF_KEY,
            KEY_ONLY,
            KEY_BACKWARDS,
            value_is_key("LlamaAttention"),
            Plant("scale-twice", "LlamaAttention", "self.head_dim**-0.5", "self.head_dim**-1.0"),
            handed("LlamaAttention", "value_states", "key_states", "value-is-key"),
            handed("LlamaAttention", "attention_mask", "attention_mask.mT", "causal-inverted"),
            handed("LlamaAttention", "attention_mask", "None", "causal-missing"),
            Plant("output-projection-missing", "LlamaAttention", "self.o_proj(attn_output)", "attn_output"),
        ],
    ),
    Family(
        "mistral",
        decoder("Mistral", "head_dim=8, sliding_window=5", window=True),
        [
            UNSCALED,
            TILED,
            OTHER_WAY,
            MIX_OF_KEY,
            handed("MistralAttention", "attention_mask", "attention_mask.triu(1 - 6)", "window-missing"),
            Plant(
                "heads-split-by-view",
                "MistralAttention",
                "self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)",
                "self.q_proj(hidden_states).view(*input_shape[:1], -1, *input_shape[1:], self.head_dim)",
            ),
        ],
    ),
    Family(
        "qwen2",
        decoder("Qwen2"),
        [
            UNSCALED,
            NO_MINUS,
            TILED,
            MERGE,
            Plant(
                "key-bias-missing",
                "Qwen2Attention",
                "self.k_proj(hidden_states)",
                "(hidden_states @ self.k_proj.weight.T)",
            ),
            Plant(
                "value-bias-missing",
                "Qwen2Attention",
                "self.v_proj(hidden_states)",
                "(hidden_states @ self.v_proj.weight.T)",
            ),
        ],
    ),
    Family(
        "qwen3",
        decoder("Qwen3", "head_dim=8"),
        [
            UNSCALED,
            QUERY_ONLY,
            TILED,
            Plant(
                "qk-norm-missing",
                "Qwen3Attention",
                "self.k_norm(self.k_proj(hidden_states).view(hidden_shape))",
                "self.k_proj(hidden_states).view(hidden_shape)",
            ),
            Plant(
                "qk-norm-axis",
                "Qwen3RMSNorm",
                "hidden_states.pow(2).mean(-1, keepdim=True)",
                "hidden_states.pow(2).mean((-2, -1), keepdim=True)",
            ),
            Plant("qk-norm-of-key", "Qwen3Attention", "self.q_norm(self.q_proj", "self.k_norm(self.q_proj"),
        ],
    ),
    Family("gemma", decoder("Gemma", "head_dim=8"), [UNSCALED, OVER_QUERIES, UNMASKED, OTHER_WAY, TILED]),
    Family(
        "gemma2",
        decoder(
            "Gemma2", "head_dim=8, sliding_window=5, attn_logit_softcapping=20.0, query_pre_attn_scalar=20", window=True
        ),
        [
            UNSCALED,
            TILED,
            MERGE,
            Plant("softcap-missing", EAGER, "torch.tanh(attn_weights)", "attn_weights"),
            Plant(
                "softcap-other-constant",
                "Gemma2Attention",
                "softcap=self.attn_logit_softcapping",
                "softcap=2 * self.attn_logit_softcapping",
            ),
            Plant("softcap-missing", "Gemma2Attention", "softcap=self.attn_logit_softcapping", "softcap=None"),
            Plant("scale-ignored", "Gemma2Attention", "config.query_pre_attn_scalar**-0.5", "self.head_dim**-0.5"),
            Plant("softcap-not-multiplied", EAGER, "attn_weights * softcap", "attn_weights"),
        ],
    ),
    Family(
        "gemma3",
        decoder(
            "Gemma3",
            "head_dim=8, sliding_window=5, query_pre_attn_scalar=20",
            window=True,
            layer_type=", 'sliding_attention'",
        ),
        [
            UNSCALED,
            NO_MINUS,
            TILED,
            Plant("scale-ignored", "Gemma3Attention", "config.query_pre_attn_scalar**-0.5", "self.head_dim**-0.5"),
            Plant("qk-norm-missing", "Gemma3Attention", "self.k_norm(key_states)", "key_states"),
            Plant("qk-norm-missing", "Gemma3RMSNorm", "(1.0 + self.weight.float())", "self.weight.float()"),
        ],
    ),
    Family(
        "phi",
        decoder("Phi", "partial_rotary_factor=0.5"),
        [
            UNSCALED,
            OVER_HEADS,
            NO_MINUS,
            Plant(
                "rope-one-sided",
                "PhiAttention",
                "(key_rot, key_pass), dim=-1)",
                "(key_states[..., : self.rotary_ndims], key_pass), dim=-1)",
            ),
            Plant(
                "rope-partial-order",
                "PhiAttention",
                "(query_rot, query_pass), dim=-1)",
                "(query_pass, query_rot), dim=-1)",
            ),
        ],
    ),
    Family(
        "phi3",
        decoder("Phi3", "pad_token_id=0, sliding_window=None"),
        [
            UNSCALED,
            UNMASKED,
            TILED,
            Plant("rope-one-sided", ROPE, "(k_rot * cos) + (rotate_half(k_rot) * sin)", "k_rot"),
            Plant(
                "fused-qkv-layout",
                "Phi3Attention",
                "qkv[..., query_pos + self.num_key_value_heads * self.head_dim :]",
                "qkv[..., query_pos : query_pos + self.num_key_value_heads * self.head_dim]",
            ),
        ],
    ),
    Family(
        "gpt_neox",
        decoder("GPTNeoX", "rotary_pct=0.5", kv_heads=False),
        [
            UNSCALED,
            OVER_QUERIES,
            INTERLEAVED,
            MERGE,
            Plant(
                "rope-partial-ignored",
                "GPTNeoXRotaryEmbedding",
                "dim = int(head_dim * partial_rotary_factor)",
                "dim = head_dim",
            ),
            Plant(
                "key-value-swapped",
                "GPTNeoXAttention",
                "query_states, key_states, value_states = qkv",
                "query_states, value_states, key_states = qkv",
            ),
        ],
    ),
    Family(
        "olmo2",
        decoder("Olmo2"),
        [
            UNSCALED,
            TILED,
            OTHER_WAY,
            Plant(
                "qk-norm-missing",
                "Olmo2Attention",
                "self.q_norm(self.q_proj(hidden_states))",
                "self.q_proj(hidden_states)",
            ),
            Plant(
                "qk-norm-missing",
                "Olmo2Attention",
                "self.k_norm(self.k_proj(hidden_states))",
                "self.k_proj(hidden_states)",
            ),
        ],
    ),
    Family(
        "cohere",
        decoder("Cohere", "use_qk_norm=False"),
        [
            UNSCALED,
            MERGE,
            TILED,
            Plant("rope-minus-missing", "rotate_half", "[-x2, x1]", "[x2, x1]"),
            Plant(
                "rope-layout-mixed",
                "rotate_half",
                "torch.stack([-x2, x1], dim=-1).flatten(-2)",
                "torch.cat([-x2, x1], dim=-1)",
            ),
        ],
    ),
    Family("starcoder2", decoder("Starcoder2", "sliding_window=None"), [UNSCALED, OVER_QUERIES, QUERY_ONLY, TILED]),
    Family(
        "granite",
        decoder("Granite", "attention_multiplier=0.2"),
        [
            UNSCALED,
            TILED,
            KEY_ONLY,
            Plant("scale-ignored", "GraniteAttention", "config.attention_multiplier", "self.head_dim**-0.5"),
        ],
    ),
    Family("stablelm", decoder("StableLm", "partial_rotary_factor=0.5"), [UNSCALED, UNMASKED, NO_MINUS, TILED]),
    Family(
        "gpt_oss",
        decoder("GptOss", "head_dim=8, sliding_window=5", window=True),
        [
            UNSCALED,
            TILED,
            MERGE,
            Plant(
                "sink-missing",
                EAGER,
                "torch.cat([attn_weights, sinks], dim=-1)",
                "torch.cat([attn_weights, sinks - float('inf')], dim=-1)",
            ),
            Plant(
                "sink-of-other-head",
                EAGER,
                "module.sinks.reshape(1, -1, 1, 1)",
                "module.sinks.roll(1).reshape(1, -1, 1, 1)",
            ),
            Plant("yarn-scale", "GptOssRotaryEmbedding", "emb.cos() * self.attention_scaling", "emb.cos()"),
        ],
    ),
    Family("smollm3", decoder("SmolLM3", "no_rope_layers=[1, 1], pad_token_id=0"), [UNSCALED, OTHER_WAY, TILED, MERGE]),
    Family(
        "gptj",
        other(
            f"GPTJConfig({SIZES}, rotary_dim=4)",
            "GPTJAttention(CONFIG, layer_idx=0)",
            causal=True,
            rope="self.table = create_sinusoidal_positions(64, 4)",
            arguments="position_embeddings=torch.split(self.table.to(x.dtype)[None, : x.shape[1]], 2, dim=-1), "
            "attention_mask=mask",
        ),
        [
            UNSCALED,
            OVER_QUERIES,
            Plant("rope-minus-missing", "rotate_every_two", "(-x2, x1)", "(x2, x1)"),
            Plant("rope-one-sided", "GPTJAttention", "apply_rotary_pos_emb(k_rot, sin, cos)", "k_rot"),
        ],
    ),
    Family(
        "gpt2",
        other(
            "GPT2Config(n_embd=48, n_head=6, n_layer=2, attn_implementation='eager')",
            "GPT2Attention(CONFIG, layer_idx=0)",
            causal=True,
        ),
        [
            UNSCALED,
            OVER_HEADS,
            UNMASKED,
            Plant("scale-by-model-width", "GPT2Attention", "self.head_dim**-0.5", "self.embed_dim**-0.5"),
            Plant(
                "key-value-swapped",
                "GPT2Attention",
                "query_states, key_states, value_states = self.c_attn",
                "query_states, value_states, key_states = self.c_attn",
            ),
            Plant("output-projection-missing", "GPT2Attention", "self.c_proj(attn_output)", "attn_output"),
        ],
    ),
    Family(
        "gpt_neo",
        other(
            "GPTNeoConfig(hidden_size=48, num_heads=6, num_layers=2, window_size=5, max_position_embeddings=64, "
            "attention_types=[[['global', 'local'], 1]])",
            "GPTNeoSelfAttention(CONFIG, 'global', 0)",
        ),
        [
            Plant(
                "scale-extra",
                "GPTNeoSelfAttention",
                "query = query.to(torch.float32)",
                "query = query.to(torch.float32) / self.head_dim**0.5",
            ),
            Plant(
                "causal-one-ahead",
                "GPTNeoSelfAttention",
                "torch.tril(torch.ones((max_positions, max_positions), dtype=bool))",
                "torch.tril(torch.ones((max_positions, max_positions), dtype=bool), 1)",
            ),
            Plant(
                "softmax-over-queries",
                "GPTNeoSelfAttention",
                "softmax(attn_weights, dim=-1)",
                "softmax(attn_weights, dim=-2)",
            ),
            Plant(
                "heads-merged-by-view",
                "GPTNeoSelfAttention",
                "tensor = tensor.permute(0, 2, 1, 3).contiguous()",
                "tensor = tensor.contiguous().view(tensor.shape[0], tensor.shape[2], tensor.shape[1], -1)",
            ),
            Plant(
                "causal-inverted",
                "GPTNeoSelfAttention",
                "torch.where(causal_mask, attn_weights, mask_value)",
                "torch.where(causal_mask, mask_value, attn_weights)",
            ),
        ],
    ),
    Family(
        "opt",
        other(f"OPTConfig({SIZES}, word_embed_proj_dim=48)", "OPTAttention(CONFIG, layer_idx=0)", causal=True),
        [
            UNMASKED,
            OVER_QUERIES,
            Plant(
                "scale-missing",
                "OPTAttention",
                "self.q_proj(hidden_states) * self.scaling",
                "self.q_proj(hidden_states)",
            ),
            Plant(
                "value-is-key",
                "OPTAttention",
                "value_states = self.v_proj(hidden_states)",
                "value_states = self.k_proj(hidden_states)",
            ),
            Plant("scale-twice", "OPTAttention", "scaling=1.0", "scaling=self.scaling"),
        ],
    ),
    Family(
        "falcon",
        decoder("Falcon", "new_decoder_architecture=True, num_kv_heads=2, alibi=False", kv_heads=False).replace(
            "position_embeddings=", "alibi=None, position_embeddings="
        ),
        [
            NO_MINUS,
            QUERY_ONLY,
            Plant(
                "scale-missing",
                "FalconAttention",
                "attention_scores /= math.sqrt(self.head_dim)",
                "attention_scores /= 1.0",
            ),
            Plant("causal-missing", "FalconAttention", "attention_scores + attention_mask", "attention_scores"),
            Plant(
                "heads-merged-by-view",
                "FalconAttention",
                "            attn_output = attn_output.permute(0, 2, 1, 3)",
                "            attn_output = attn_output.contiguous()",
            ),
        ],
    ),
    Family(
        "bloom",
        other(
            "BloomConfig(hidden_size=48, n_head=6, n_layer=2, attn_implementation='eager')",
            "BloomAttention(CONFIG, layer_idx=0)",
            causal=True,
            ready="alibi = build_alibi_tensor(torch.ones(x.shape[:2], dtype=torch.long), 6, x.dtype)",
            arguments="residual=torch.zeros_like(x), alibi=alibi, attention_mask=mask",
        ),
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
            Plant("value-is-key", "BloomAttention", "fused_qkv[..., 2, :]", "fused_qkv[..., 1, :]"),
        ],
    ),
    Family(
        "mpt",
        other(
            "MptConfig(d_model=48, n_heads=6, n_layers=2, attn_implementation='eager')",
            "MptAttention(CONFIG, layer_idx=0)",
            causal=True,
            arguments="position_bias=build_mpt_alibi_tensor(6, x.shape[1]), attention_mask=mask.bool()",
        ),
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
            Plant(
                "key-value-swapped",
                "MptAttention",
                "query_states, key_states, value_states = mixed_qkv",
                "query_states, value_states, key_states = mixed_qkv",
            ),
        ],
    ),
    Family(
        "bert",
        other(f"BertConfig({SIZES})", "BertSelfAttention(CONFIG)"),
        [
            *BERT_LIKE,
            Plant("value-is-key", "BertSelfAttention", "value_layer = self.value(", "value_layer = self.key("),
        ],
    ),
    Family(
        "roberta",
        other(f"RobertaConfig({SIZES})", "RobertaSelfAttention(CONFIG)"),
        [*BERT_LIKE, handed("RobertaSelfAttention", "key_layer", "query_layer", "key-is-query")],
    ),
    Family(
        "distilbert",
        other(
            "DistilBertConfig(dim=48, n_heads=6, n_layers=2, attn_implementation='eager')",
            "DistilBertSelfAttention(CONFIG)",
        ),
        [
            *BERT_LIKE,
            Plant("output-projection-missing", "DistilBertSelfAttention", "self.out_lin(attn_output)", "attn_output"),
        ],
    ),
    Family(
        "electra",
        other(f"ElectraConfig({SIZES})", "ElectraSelfAttention(CONFIG)"),
        [
            UNSCALED,
            OVER_QUERIES,
            MERGE,
            Plant(
                "scale-ignored", "ElectraSelfAttention", "self.attention_head_size**-0.5", "self.all_head_size**-0.5"
            ),
        ],
    ),
    Family(
        "vit",
        other(f"ViTConfig({SIZES})", "ViTAttention(CONFIG)"),
        [
            UNSCALED,
            OVER_HEADS,
            MERGE,
            value_is_key("ViTAttention"),
            Plant("key-is-query", "ViTAttention", "self.k_proj(hidden_states)", "self.q_proj(hidden_states)"),
        ],
    ),
    Family(
        "whisper",
        other("WhisperConfig(d_model=48, attn_implementation='eager')", "WhisperAttention(48, 6, config=CONFIG)"),
        [
            OVER_QUERIES,
            Plant(
                "scale-missing",
                "WhisperAttention",
                "(self.q_proj(hidden_states) * self.scaling)",
                "self.q_proj(hidden_states)",
            ),
            Plant("value-is-key", "WhisperAttention", "value_states = self.v_proj(", "value_states = self.k_proj("),
            MERGE,
        ],
        {"num_heads": 6},
    ),
]
