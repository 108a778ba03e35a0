"""What must be there for a fault to show, by name."""

from __future__ import annotations

from qkv.faults.fault import Need
from qkv.masks import Causal, Documents, Everything, Prefix, SlidingWindow
from qkv.oracle import Inputs, Run
from qkv.spec import AttentionSpec

SEVERAL_HEADS = Need("one head", lambda spec, inputs: spec.num_heads > 1)
GROUPED_HEADS = Need("no grouped heads", lambda spec, inputs: 1 < spec.kv_heads < spec.num_heads)
SHARED_HEADS = Need("no shared key/value heads", lambda spec, inputs: spec.kv_heads < spec.num_heads)
SEVERAL_SEQUENCES = Need("one sequence", lambda spec, inputs: inputs.batch > 1)
PROJECTIONS = Need("no projections", lambda spec, inputs: inputs.parameters is not None)
FUSED = Need(
    "no fused projections", lambda spec, inputs: inputs.parameters is not None and inputs.parameters.fused is not None
)
OUT_PROJ = Need(
    "no output projection",
    lambda spec, inputs: spec.out_proj and inputs.parameters is not None and inputs.parameters.out_proj is not None,
)


def _has_biases(spec: AttentionSpec, inputs: Inputs) -> bool:
    parameters = inputs.parameters
    if parameters is None:
        return False
    projections = (parameters.q_proj, parameters.k_proj, parameters.v_proj, parameters.out_proj)
    return any(projection is not None and projection.bias is not None for projection in projections)


BIASES = Need("no biases", _has_biases)
QK_NORM = Need("no q/k norm", lambda spec, inputs: spec.qk_norm is not None)
ROPE = Need("no rope", lambda spec, inputs: spec.rope is not None)
PARTIAL_ROPE = Need("no partial rope", lambda spec, inputs: spec.rope is not None and spec.rope.dims is not None)
SOFTCAP = Need("no softcap", lambda spec, inputs: spec.softcap is not None)
ALIBI = Need("no alibi", lambda spec, inputs: spec.alibi is not None)
BIAS = Need(
    "no additive bias",
    lambda spec, inputs: spec.alibi is not None or spec.relative_bias is not None or inputs.bias is not None,
)
CAUSAL = Need("not causal", lambda spec, inputs: spec.masks(Causal))
WINDOW = Need("no window", lambda spec, inputs: spec.masks(SlidingWindow))
PREFIX = Need("no prefix", lambda spec, inputs: spec.masks(Prefix))
DOCUMENTS = Need("no packed documents", lambda spec, inputs: spec.masks(Documents) and inputs.document is not None)
PADDING = Need("no padding", lambda spec, inputs: inputs.is_token is not None)
MASK = Need(
    "no mask",
    lambda spec, inputs: spec.mask != Everything() or inputs.may_attend is not None or inputs.is_token is not None,
)
SINKS = Need("no sinks", lambda spec, inputs: spec.sinks and inputs.sinks is not None)
UNEQUAL_LENGTHS = Need(
    "as many queries as keys", lambda spec, inputs: inputs.lengths[0] != inputs.lengths[1] or len(inputs.steps) > 1
)

# needs of the projections, heads and positions
SEVERAL_KV_HEADS = Need("one key/value head", lambda spec, inputs: spec.kv_heads > 1)
SOURCE = Need(
    "key and value come from x itself",
    lambda spec, inputs: inputs.source is not None or inputs.value_source is not None,
)
ROPE_SCALING = Need("no rope scaling", lambda spec, inputs: spec.rope is not None and spec.rope.scaling is not None)
YARN = Need(
    "no yarn",
    lambda spec, inputs: spec.rope is not None and spec.rope.scaling is not None and spec.rope.scaling.kind == "yarn",
)


def _has_empty_row(spec: AttentionSpec, inputs: Inputs) -> bool:
    run = Run(spec, inputs)
    at = run.positions()
    may_attend = spec.mask.allows(at) & at.everywhere
    for also in (at.key_is_token, inputs.may_attend):
        may_attend = may_attend if also is None else may_attend & also
    return not bool(run.xp.all(run.xp.any(may_attend, axis=-1)))


CACHE = Need("no cache", lambda spec, inputs: len(inputs.steps) > 1)
EMPTY_ROW = Need("no row without keys", _has_empty_row)


def _masked_unlike(spec: AttentionSpec, inputs: Inputs) -> bool:
    documents = inputs.document if spec.masks(Documents) else None
    own = [array for array in (inputs.is_token, inputs.may_attend, documents) if array is not None]
    return any(array.ndim > 1 and bool((array != array[:1]).any()) for array in own)


MASKED_UNLIKE = Need("all sequences are masked alike", _masked_unlike)
