"""The spec: what an attention is meant to compute, and the forms it can be written in."""

from qkv.spec.attention_spec import AttentionSpec as AttentionSpec
