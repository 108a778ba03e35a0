"""The spec: what an attention is meant to compute, and the forms it can be written in."""

from qkv.spec.attention_spec import AttentionSpec as AttentionSpec, QueryOffset as QueryOffset
from qkv.spec.field_table import (
    FIELDS as FIELDS,
    ROPE_FIELDS as ROPE_FIELDS,
    SCALING_FIELDS as SCALING_FIELDS,
    Field as Field,
)
from qkv.spec.fields import (
    GROUP_SIZE as GROUP_SIZE,
    spec_from_mapping as spec_from_mapping,
    spec_to_mapping as spec_to_mapping,
)
from qkv.spec.files import read_spec as read_spec
from qkv.spec.huggingface import spec_from_config as spec_from_config
from qkv.spec.sentence import describe as describe, differences as differences
