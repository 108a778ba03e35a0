"""What a tensor in a dump is, by its name; and which tensors belong to one layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from qkv.adapters.names import CALL_ROLES

_AS_IN_CALLS = {
    "query": "q_proj q_heads query_heads q_in qs_in query_in",
    "key": "k_proj k_heads key_heads k_in key_in",
    "value": "v_proj v_heads value_heads v_in value_in",
    "mask": "attend masking",
    "padding": "",
    "documents": "",
    "bias": "",
    "sinks": "",
    "scale": "",
}
_OWN = {
    "output": "output outputs out o y attn_output attn_out attention_output attention_out attn_outputs result res ret "
    "out_heads sdpa_out sdpa_output sdpa attn_result outs xo attended attn_y",
    "context": "context ctx context_layer context_vectors context_vector context_vecs all_context_vecs contexts z "
    "attn_context heads_out",
    "weights": "weights attn_weights attention_weights attn_weight attention_weight probs attn_probs attention_probs p "
    "attn_p attention_probabilities attn_probabilities softmax softmax_out softmax_output a alpha alphas "
    "att_weights att_probs attn_w att_mat attention_matrix attn_matrix pattern attn_pattern",
    "scores": "scores attn_scores attention_scores logits attn_logits attention_logits qk qkt qk_t energy energies "
    "dots sim similarity s raw_scores scaled_scores masked_scores att_scores score attn_score qk_scores qk_logits",
    "lse": "lse logsumexp softmax_lse log_sum_exp lse_out attn_lse",
    "query_turned": "q_rope q_rot q_rotated q_embed query_rot query_rotated query_rope q_roped q_turned query_turned "
    "rotated_q rotated_query q_after_rope",
    "key_turned": "k_rope k_rot k_rotated k_embed key_rot key_rotated key_rope k_roped k_turned key_turned rotated_k "
    "rotated_key k_after_rope",
    "grad_query": "dq grad_q q_grad dquery grad_query query_grad d_query",
    "grad_key": "dk grad_k k_grad dkey grad_key key_grad d_key",
    "grad_value": "dv grad_v v_grad dvalue grad_value value_grad d_value",
    "grad_output": "dout do grad_out grad_output out_grad output_grad doutput d_out grad_o o_grad",
    "attn": "attn attention att",
    "x": "x hidden_states hidden_state inputs input tokens embeddings",
}
ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {role: (*CALL_ROLES[role], *more.split()) for role, more in _AS_IN_CALLS.items()}
    | {role: tuple(names.split()) for role, names in _OWN.items()}
)
"""What the tensors of a dump are called, by role. A new spelling is one more word here.

``attn`` names the output in some programs and the weights in others.
"""

INSIDE = ("query_turned", "key_turned", "scores", "lse", "weights", "context")
"""Roles of what is made on the way, in the order it is made."""

_ROLE_OF = {name: role for role, names in reversed(list(ROLES.items())) for name in names}
_CUT = re.compile(r"[./:\\_-]|(?<=[a-z])(?=[A-Z])")


def grouped(names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """The names by what stands around the word for their role (``layers.3.``), then by role."""
    groups: dict[str, dict[str, list[str]]] = {}
    for name in names:
        found = role_and_place(name)
        if found is not None:
            role, place = found
            groups.setdefault(place, {}).setdefault(role, []).append(name)
    return groups


def role_and_place(name: str) -> tuple[str, str] | None:
    """The role that a name ends with, and what stands around the word: ``layers.3.attn.q_states`` is a query.

    A number behind it tells the layer too (``q_3``). None where no word of the field is found.
    """
    word, number = _without_number(re.sub(r"\.grad$", "_grad", name))
    for start in _starts(word):
        role = _ROLE_OF.get(word[start:].lower().replace("-", "_").removesuffix(".output"))
        if role is not None:
            return role, (word[:start].strip("._-/: ") + number)
    return None


def _starts(name: str) -> Iterator[int]:
    yield 0
    yield from (match.end() for match in _CUT.finditer(name))


def _without_number(name: str) -> tuple[str, str]:
    whole = name.lower()
    match = re.fullmatch(r"(.*?[A-Za-z])[._-]?(\d+)", name)
    return (name, "") if match is None or whole in _ROLE_OF else (match[1], match[2])
