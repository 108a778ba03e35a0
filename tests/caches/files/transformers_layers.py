"""Attentions of transformers with its DynamicCache, masks and rope, as the models call them."""

import torch
from torch import nn
from transformers import DynamicCache, Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2RotaryEmbedding

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 1,
    "attn_implementation": "eager",
}


class _CausalLayer(nn.Module):
    """One layer's attention as a function of the tokens and the cache."""

    def __init__(self, config, attention, rotary_embedding, mask):
        super().__init__()
        self.config = config
        self.attention = attention(config, layer_idx=0)
        self.rotary_emb = rotary_embedding(config)
        self.make_mask = mask

    def forward(self, x, past_key_values: DynamicCache | None = None):
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        positions = torch.arange(past, past + x.shape[1])[None]
        mask = self.make_mask(
            self.config, inputs_embeds=x, attention_mask=None, cache=past_key_values, position_ids=positions
        )
        rope = self.rotary_emb(x, positions)
        return self.attention(x, position_embeddings=rope, attention_mask=mask, cache=past_key_values)


class CausalLlama(_CausalLayer):
    def __init__(self):
        super().__init__(LlamaConfig(**SIZES), LlamaAttention, LlamaRotaryEmbedding, create_causal_mask)


class CausalQwen2(_CausalLayer):
    def __init__(self):
        super().__init__(Qwen2Config(**SIZES), Qwen2Attention, Qwen2RotaryEmbedding, create_causal_mask)


class WindowedMistral(_CausalLayer):
    def __init__(self):
        config = MistralConfig(**SIZES, sliding_window=5)
        super().__init__(config, MistralAttention, MistralRotaryEmbedding, create_sliding_window_causal_mask)

    def make_cache(self):
        return DynamicCache(config=self.config)


class WindowedGemma2(_CausalLayer):
    def __init__(self):
        config = Gemma2Config(**SIZES, sliding_window=5, query_pre_attn_scalar=20, attn_logit_softcapping=20.0)
        super().__init__(config, Gemma2Attention, Gemma2RotaryEmbedding, create_sliding_window_causal_mask)
