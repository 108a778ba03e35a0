"""Right attentions to use, in PyTorch: a ladder from four lines to many heads, one rung a file.

Rung by rung: `simplified`, `self_attention`, `causal`, `multi_head`. To build with: `Attention`, which has every
option, `LatentAttention`, and caches.
"""

from qkv.layers.attention_layer import Attention as Attention
from qkv.layers.cache import (
    Cache as Cache,
    FixedCache as FixedCache,
    GrowingCache as GrowingCache,
    RingCache as RingCache,
)
from qkv.layers.causal import CausalAttention as CausalAttention
from qkv.layers.conversion import (
    from_module as from_module,
    from_torch as from_torch,
    into_module as into_module,
    to_torch as to_torch,
)
from qkv.layers.latent_attention import LatentAttention as LatentAttention
from qkv.layers.masked_softmax import softmax_over_keys as softmax_over_keys
from qkv.layers.multi_head import MultiHeadAttention as MultiHeadAttention
from qkv.layers.rope import rotate as rotate
from qkv.layers.self_attention import SelfAttention as SelfAttention
from qkv.layers.simplified import (
    attention_weights as attention_weights,
    context_vector as context_vector,
    context_vectors as context_vectors,
)
