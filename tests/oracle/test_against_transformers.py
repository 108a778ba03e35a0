"""The attentions of real models agree with the oracle, each with its rope, its window, its norms, its sinks.

They round in float32 inside (softmax, rope's table), even when they are doubled; hence the tolerance.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from transformers import masking_utils

from qkv.masks import Causal, SlidingWindow
from qkv.oracle import Inputs, Linear, Norm, Parameters, run_stages
from qkv.positions import Rope, RopeScaling
from qkv.spec import AttentionSpec

LENGTH, WINDOW = 13, 4
SIZES = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 16, "embed_dim": 48, "out_proj": True}
ROPE = Rope(base=500.0)


def llama(scaling: RopeScaling, **config: Any) -> Any:
    """A case of Llama's attention with rope scaled one way; ``config`` says the same in transformers' words."""
    spec = AttentionSpec(**SIZES, mask=Causal(), rope=Rope(base=500.0, scaling=scaling))
    scaled = {"rope_type": scaling.kind, "rope_theta": 500.0, "factor": scaling.factor, **config}
    return pytest.param("Llama", {"rope_parameters": scaled}, spec, id=f"llama {scaling}")


CASES = [
    pytest.param("Llama", {}, AttentionSpec(**SIZES, mask=Causal(), rope=ROPE), id="llama"),
    llama(RopeScaling("linear", 4.0)),
    llama(
        RopeScaling("llama3", 4.0, 64, low_freq_factor=1.0, high_freq_factor=4.0),
        original_max_position_embeddings=64,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    ),
    llama(RopeScaling("yarn", 4.0, 64), original_max_position_embeddings=64),
    llama(RopeScaling("yarn", 4.0, 64, truncate=False), original_max_position_embeddings=64, truncate=False),
    pytest.param("Qwen3", {}, AttentionSpec(**SIZES, mask=Causal(), rope=ROPE, qk_norm="head"), id="qwen3"),
    pytest.param("Olmo2", {}, AttentionSpec(**SIZES, mask=Causal(), rope=ROPE, qk_norm="width"), id="olmo2"),
    pytest.param(
        "Glm",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
        AttentionSpec(**SIZES, mask=Causal(), rope=Rope("adjacent", base=500.0, dims=8)),
        id="glm",
    ),
    pytest.param(
        "Gemma2",
        {"attn_logit_softcapping": 1.5, "query_pre_attn_scalar": 9, "layer_types": ["sliding_attention"]},
        AttentionSpec(**SIZES, mask=Causal() & SlidingWindow(WINDOW), rope=ROPE, softcap=1.5, scale=1 / 3),
        id="gemma2",
    ),
    pytest.param(
        "GptOss",
        {"layer_types": ["sliding_attention"]},
        AttentionSpec(**SIZES, mask=Causal() & SlidingWindow(WINDOW), rope=ROPE, sinks=True),
        id="gpt-oss",
    ),
]


@pytest.mark.parametrize(("name", "options", "spec"), CASES)
def test_the_attention_of_a_model(name: str, options: dict[str, Any], spec: AttentionSpec) -> None:
    torch.manual_seed(0)
    module, rotary = _build(name, options)
    x = torch.randn(2, LENGTH, SIZES["embed_dim"], dtype=torch.float64)
    positions = torch.arange(LENGTH)[None]
    make = masking_utils.create_causal_mask
    if spec.masks(SlidingWindow):
        make = masking_utils.create_sliding_window_causal_mask
    mask = make(module.config, x, None, None, position_ids=positions)
    with torch.no_grad():
        output, weights = module(x, position_embeddings=rotary(x, positions), attention_mask=mask)
        run = run_stages(spec, Inputs(x=x, parameters=_parameters(module), sinks=getattr(module, "sinks", None)))
    torch.testing.assert_close(run.weights, weights, rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(run.output, output, rtol=3e-6, atol=3e-6)


def _build(name: str, options: dict[str, Any]) -> tuple[torch.nn.Module, torch.nn.Module]:
    folder = {"GptOss": "gpt_oss"}.get(name, name.lower())
    code = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    settings: dict[str, Any] = {
        "hidden_size": SIZES["embed_dim"],
        "num_attention_heads": SIZES["num_heads"],
        "num_key_value_heads": SIZES["num_kv_heads"],
        "head_dim": SIZES["head_dim"],
        "num_hidden_layers": 1,
        "max_position_embeddings": 256,
        "sliding_window": WINDOW,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }
    config = getattr(code, f"{name}Config")(**(settings | options), attn_implementation="eager")
    module = getattr(code, f"{name}Attention")(config, layer_idx=0).double().eval()
    with torch.no_grad():  # biases and norms begin at values that hide faults
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module, getattr(code, f"{name}RotaryEmbedding")(config)


def _parameters(module: Any) -> Parameters:
    projections = (module.q_proj, module.k_proj, module.v_proj, module.o_proj)
    norms = (getattr(module, "q_norm", None), getattr(module, "k_norm", None))
    return Parameters(
        *(Linear(projection.weight, projection.bias) for projection in projections),
        *(norm and Norm(weight=norm.weight, eps=norm.variance_epsilon) for norm in norms),
    )
