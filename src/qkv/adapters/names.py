"""The names that the field gives to the same thing, by role. Exact lists: a name that stands in none has no role.

Two tables, since a name can mean two things: ``mask`` handed to a constructor asks for a causal mask, ``mask`` handed
to a call is one; ``bias`` is a switch for the projections there and a number added to the scores here.

A new spelling is one more word in one of the two tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(**roles: str) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({role: _words(names) for role, names in roles.items()})


ROLES: Mapping[str, tuple[str, ...]] = _table(
    # Channels of a token; for the names it begins with see INCOMING.
    embed_dim="d_in in_features input_dim in_dim input_size dim_in in_channels din n_in query_size query_dim q_dim "
    "embed_dim embedding_dim embed_size embedding_size emb_dim emb_size emb d_embed d_embedding n_embd "
    "n_embed hidden_size hidden_dim hidden d_hidden d_model dim_model model_dim model_size model_width "
    "dim width channels n_state n_channels num_channels features num_features feature_dim n_features "
    "token_dim units num_units size d c e k hid_dim nx",
    # Channels of all heads together: what q_proj puts out.
    out_dim="d_out out_features output_dim out_dim dim_out output_size out_channels dout num_hiddens inner_dim "
    "attn_dim attention_dim d_attn qkv_dim qk_dim proj_dim all_head_size hidden_size_out n_out",
    # Channels of a token of the sequence that key and value come from.
    source_dim="kdim vdim key_size value_size kv_dim context_dim cross_attention_dim encoder_dim d_context "
    "memory_dim encoder_hidden_size dim_context d_memory d_cross d_in_kv",
    num_heads="num_heads n_heads n_head heads head nhead nheads h num_attention_heads n_attention_heads num_head "
    "n_q_heads num_q_heads num_query_heads n_query_heads q_heads query_heads attention_heads attn_heads "
    "heads_num encoder_attention_heads decoder_attention_heads n_local_heads num_attn_heads no_of_heads "
    "number_of_heads n_h",
    num_kv_heads="num_kv_heads n_kv_heads n_kv_head num_key_value_heads kv_heads n_key_value_heads num_kv_head "
    "n_kvheads kv_head multi_query_group_num n_query_groups num_query_groups kv_n_heads n_local_kv_heads "
    "num_kv_groups num_groups n_groups n_kv_groups kv_groups groups",
    group_size="group_size num_key_value_groups n_rep num_queries_per_kv q_per_kv queries_per_group "
    "num_queries_per_group n_rep_kv heads_per_group kv_repeat num_heads_per_kv",
    head_dim="head_dim d_out_kq d_out_qk d_head dim_head head_size d_k dk d_key d_kq d_qk d_q dim_k key_dim "
    "qk_head_dim dim_per_head d_kv attention_head_size hidden_size_per_attention_head head_width "
    "head_channels per_head_dim size_per_head head_features dim_heads head_hidden_dim kv_channels "
    "num_head_channels single_head_dim dim_of_head depth",
    value_dim="value_dim d_out_v d_v dv d_value v_dim dim_v v_head_dim value_head_dim head_dim_v dim_value head_v_dim",
    context_length="context_length context_len block_size max_seq_len max_seq_length max_sequence_length max_len "
    "max_length max_position_embeddings max_positions max_tokens max_context_length max_context seq_len "
    "seq_length sequence_length seqlen ctx_len ctx_length n_ctx ctx context_size context_window "
    "n_positions n_tokens num_tokens maxlen max_t max_pos max_target_positions t cw_size",
    max_batch="max_batch_size batch_size max_batch max_bs bsz",
    dropout="dropout dropout_p dropout_rate dropout_prob drop drop_rate drop_prob drop_p p p_drop p_dropout pdrop "
    "attn_dropout attn_dropout_p attn_pdrop attn_drop attention_dropout attention_dropout_p "
    "attn_dropout_rate attention_probs_dropout_prob attn_dropout_prob att_drop attention_drop "
    "dropout_attn resid_pdrop resid_dropout residual_dropout res_dropout proj_drop proj_dropout "
    "out_dropout output_dropout hidden_dropout hidden_dropout_prob dropout_proj",
    bias="bias qkv_bias use_bias add_bias attn_bias attention_bias has_bias with_bias enable_bias bias_qkv "
    "use_qkv_bias add_qkv_bias proj_bias out_bias out_proj_bias use_attention_bias qkv_proj_bias "
    "linear_bias bias_flag query_bias key_bias value_bias in_proj_bias qk_bias projection_bias kv_bias "
    "q_bias k_bias v_bias o_bias add_bias_linear",
    causal="causal is_causal causal_mask use_causal_mask apply_causal_mask masked mask use_mask with_mask "
    "apply_mask autoregressive decoder is_decoder unidirectional mask_future add_mask causal_attention "
    "masking",
    window="window window_size sliding_window sliding_window_size attn_window attention_window local_window "
    "window_length local_window_size swa_window sliding_window_length",
    # How many keys before its own a query sees, and how many after it.
    left_window="left_window window_left left_window_size window_size_left look_back lookback left_context n_left",
    right_window="right_window window_right right_window_size window_size_right right_context n_right",
    softcap="softcap soft_cap logit_cap logits_soft_cap logit_soft_cap logit_softcap attn_logit_softcapping "
    "attn_softcap attention_softcap softcap_value softcapping attn_logit_softcap attn_logits_soft_cap "
    "scores_softcap logits_softcap",
    rope_base="rope_theta rope_base theta base theta_base rotary_base rotary_emb_base rope_freq_base freq_base",
    rotary_dims="rotary_dims rotary_dim rope_dim rotary_ndims rope_dims rotary_embedding_dim rot_dim",
    rotary_fraction="partial_rotary_factor rotary_pct rotary_percent rotary_percentage rope_percentage rope_pct",
    rope="rope use_rope rotary use_rotary apply_rope rotary_embedding use_rotary_emb rotary_embeddings",
    scale="scale softmax_scale sm_scale scaling attn_scale attention_scale scale_factor scaling_factor qk_scale "
    "softmax_scaling attention_multiplier norm_factor inv_norm_factor",
    # What scores are divided by.
    temperature="temperature",
    query_pre_attn_scalar="query_pre_attn_scalar",
    qk_norm="qk_norm use_qk_norm qk_layernorm use_qk_layernorm qk_normalization normalize_qk qknorm use_qknorm",
    sinks="sinks sink use_sinks use_sink attention_sinks attn_sinks attention_sink add_sink",
    alibi="alibi use_alibi alibi_bias attn_alibi has_alibi",
    layer_idx="layer_idx layer_id layer_index layer layer_number layer_num block_idx idx",
    device="device",
    dtype="dtype torch_dtype param_dtype",
    batch_first="batch_first",
    eps="eps rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps variance_epsilon "
    "rms_norm_epsilon norm_epsilon layernorm_eps qk_norm_eps",
    out_proj="out_proj use_out_proj with_out_proj output_projection use_output_projection project_out",
)
"""What a constructor's argument, or an attribute, is called, by what it is."""

CALL_ROLES: Mapping[str, tuple[str, ...]] = _table(
    x="x hidden_states hidden_state hidden inputs input tokens token_embeddings embeddings embedded embeds "
    "input_embeddings inputs_embeds embedding emb seq sequence sequences src tgt inp input_tensor "
    "input_embedding x_in in_tensor xs data features input_x src_seq tokens_embeddings input_seq states "
    "words sentence h inputs_q x_q",
    query="query q queries xq query_states query_layer q_states qs query_tensor query_vectors",
    key="key k keys xk key_states key_layer k_states ks key_tensor key_vectors",
    value="value v values xv value_states value_layer v_states vs val value_tensor value_vectors vals",
    source="context memory encoder_hidden_states encoder_output encoder_outputs kv source x_kv mem enc_out cond "
    "key_value_states encoder_out enc_output kv_states inputs_kv context_embeddings xa kv_input kv_source "
    "y enc_x encoder_states kv_x x_context encoder_x conditioning",
    mask="mask attn_mask attention_mask masks src_mask tgt_mask causal_mask look_ahead_mask attend_mask "
    "visible allowed may_attend mask_tensor x_mask memory_mask block_mask m input_mask self_attn_mask "
    "att_mask bool_mask",
    padding="key_padding_mask padding_mask pad_mask src_key_padding_mask is_token valid_mask tgt_key_padding_mask "
    "memory_key_padding_mask key_mask kv_mask token_mask is_padding pad valid context_mask "
    "encoder_attention_mask key_padding seq_mask sequence_mask",
    lengths="lengths valid_lens valid_len valid_length valid_lengths seq_lens seqlens lens seq_lengths length "
    "key_lengths key_lens kv_lens input_lengths kv_seqlens actual_seq_lengths",
    documents="document_ids document_id doc_ids doc_id segment_ids segment_id seq_idx sequence_ids sequence_id "
    "seq_ids documents document docs segments",
    # Where each of the texts begins that are packed into one sequence: of the queries, or of both; of the keys.
    cu_seqlens="cu_seqlens cu_seqlens_q cu_seqlens_query cu_seq_lens cu_seq_lens_q cu_lens cu_lens_q cu_q_lens "
    "cu_query_lens cu_seq_len cu_seqlen cu_seqlen_q cu_q seqstart seqstart_q seq_offsets offsets q_offsets",
    cu_seqlens_k="cu_seqlens_k cu_seqlens_kv cu_seqlens_key cu_seq_lens_k cu_seq_lens_kv cu_lens_k cu_lens_kv "
    "cu_k_lens cu_kv_lens cu_key_lens cu_seqlen_k cu_seqlen_kv cu_k cu_kv seqstart_k seqstart_kv k_offsets kv_offsets",
    max_seqlen="max_seqlen max_seqlen_q max_seq_len_q max_seqlen_query max_q_len max_query_len max_seqlen_in_batch "
    "max_length_q max_len_q max_q",
    max_seqlen_k="max_seqlen_k max_seqlen_kv max_seq_len_k max_seq_len_kv max_seqlen_key max_k_len max_kv_len "
    "max_key_len max_length_k max_length_kv max_len_k max_len_kv max_k max_kv max_seqlen_in_batch_k",
    bias="bias attn_bias position_bias relative_bias score_bias attention_bias additive_bias rel_pos_bias "
    "pos_bias relative_position_bias rpb rel_bias att_bias",
    causal="causal is_causal use_causal_mask apply_causal_mask masked mask_future autoregressive use_mask",
    scale="scale softmax_scale sm_scale scaling attn_scale scale_factor scaling_factor qk_scale",
    dropout="dropout dropout_p dropout_rate attn_dropout p attention_dropout attn_dropout_p drop_rate dropout_prob",
    window="window window_size sliding_window attn_window local_window attention_window sliding_window_size "
    "window_length local_window_size swa_window sliding_window_length",
    left_window="left_window window_left left_window_size window_size_left look_back lookback left_context n_left",
    right_window="right_window window_right right_window_size window_size_right right_context n_right",
    softcap="softcap soft_cap logit_cap logits_soft_cap logit_soft_cap attn_logit_softcapping logit_softcap "
    "attn_softcap cap",
    sinks="sink sinks s_aux attention_sinks attn_sinks attention_sink learnable_sink sink_logits",
    alibi_slopes="alibi_slopes slopes alibi alibi_slope",
    cos="cos rotary_cos rope_cos freqs_cos cos_cached cosine",
    sin="sin rotary_sin rope_sin freqs_sin sin_cached sine",
    position_ids="position_ids positions input_pos position pos pos_ids position_id token_positions cache_position",
    # The pair (cos, sin).
    rope="position_embeddings rope rotary_pos_emb rotary_emb cos_sin rotary_embeddings rope_cache rotary rope_emb",
    # One complex array, or the angles.
    freqs_cis="freqs_cis freqs_complex freqs freq_cis rope_freqs frequencies pos_cis",
    # How many tokens at the beginning everybody sees; for each sequence, or one for all.
    prefix="prefix_len prefix_length prefix num_prefix n_prefix prefix_lens",
    query_offset="query_offset start_pos offset q_offset start position_offset cache_len past_len past_length "
    "pos_offset",
    num_heads="num_heads n_heads n_head heads nhead nheads num_attention_heads n_q_heads num_q_heads num_query_heads",
    num_kv_heads="num_kv_heads n_kv_heads n_kv_head num_key_value_heads kv_heads num_kv_groups num_groups n_groups",
    group_size="group_size n_rep num_key_value_groups",
    head_dim="head_dim d_out_kq d_out_qk d_head dim_head head_size d_k dk key_dim",
    value_dim="value_dim d_out_v d_v dv",
    embed_dim="embed_dim d_model n_embd hidden_size dim emb_dim embed_size",
    enable_gqa="enable_gqa use_gqa gqa",
    return_weights="need_weights return_weights output_attentions return_attention return_attn return_attn_weights "
    "return_attention_weights output_attention with_weights return_scores return_weight return_att "
    "get_attention average_attn_weights",
    # Keys and values of the tokens before, in one argument or in two.
    cache="past_key_value past_key_values layer_past kv_cache cache past_kv past past_kvs cache_params kvcache "
    "layer_cache past_cache kv_state prev_kv cached_kv attn_cache static_cache dynamic_cache kv_pair past_state",
    k_cache="k_cache cache_k key_cache past_k past_key prev_k k_past kcache cached_k cached_key cached_keys past_keys "
    "prev_key prev_keys keys_cache cache_keys k_buffer",
    v_cache="v_cache cache_v value_cache past_v past_value prev_v v_past vcache cached_v cached_value cached_values "
    "past_values prev_value prev_values values_cache cache_values v_buffer",
    # How many tokens of each sequence they hold before the call.
    cache_lens="cache_seqlens cache_lens cache_lengths kv_cache_lens cache_seq_lens past_lens cached_lens",
    # A switch: keep keys and values, by oneself or in what is returned.
    use_cache="use_cache use_kv_cache using_cache return_cache return_kv return_present use_past incremental "
    "incremental_state is_decoding decoding with_cache kv_caching enable_cache caching",
    training="training train is_training deterministic",
    eps="eps",
    w_q="w_q wq w_query q_weight q_proj query_weight q_proj_weight weight_q query_proj w_queries weights_q "
    "wq_weight q_w w_q_weight query_weights q_mat",
    w_k="w_k wk w_key k_weight k_proj key_weight k_proj_weight weight_k key_proj w_keys weights_k wk_weight "
    "k_w w_k_weight key_weights k_mat",
    w_v="w_v wv w_value v_weight v_proj value_weight v_proj_weight weight_v value_proj w_values weights_v "
    "wv_weight v_w w_v_weight value_weights v_mat",
    w_o="w_o wo w_out o_weight o_proj out_proj out_weight out_proj_weight w_output weight_o output_weight "
    "weights_o wo_weight o_w w_proj proj_weight c_proj output_proj output_weights w_0 w_o_weight",
    w_qkv="w_qkv wqkv qkv_weight qkv_proj in_proj_weight c_attn qkv_w weight_qkv w_attn qkv_weights "
    "qkv_proj_weight fused_weight",
    w_kv="w_kv wkv kv_weight kv_proj",
    b_q="b_q bq q_bias bias_q query_bias b_query q_b",
    b_k="b_k bk k_bias bias_k key_bias b_key k_b",
    b_v="b_v bv v_bias bias_v value_bias b_value v_b",
    b_o="b_o bo o_bias bias_o out_bias out_proj_bias output_bias b_out o_b proj_bias b_proj",
    b_qkv="b_qkv bqkv qkv_bias in_proj_bias bias_qkv qkv_b",
)
"""What a call's argument is called, by what it is."""

# --- names of arrays ------------------------------------------------------------------------------------------------

_AS_MODULE = _words(
    "{} {}_proj proj_{} {}proj w_{} w{} {}_w to_{} to{} {}_lin lin_{} {}_linear linear_{} {}linear {}_projection "
    "projection_{} {}_layer layer_{} fc_{} {}_fc {}_net {}_transform {}_map {}_dense dense_{} {}_matrix matrix_{} "
    "{}_mat mat_{} attn_{} att_{} {}_attn self_{} {}_weight weight_{} {}_weights weights_{} {}_proj_weight "
    "w_{}_weight {}_transformation {}_conv conv_{} {}_kernel {}_param {}_fn {}_embed mixed_{} fused_{} c_{} {}_head "
    "p_{} p{} {}_layers {}_projs {}_linears {}_heads {}_lins {}_nets {}_projections {}_matrices layers_{} projs_{} "
    "linears_{} heads_{} {}s_proj to_{}s w_{}s"
)
_AS_BIAS = _words("b_{} b{} {}_b bias_{} {}_bias {}_proj_bias b_{}_proj w_{}_bias")
_AS_NORM = _words(
    "{}_norm norm_{} {}norm {}_layernorm {}_layer_norm {}_ln ln_{} layernorm_{} layer_norm_{} {}_rmsnorm "
    "{}_rms_norm rms_norm_{} {}_normalization normalize_{} {}_normalizer {}_ln_norm {}_l2norm {}_head_norm"
)
_WORDS_FOR: Mapping[str, tuple[str, ...]] = _table(
    q="q query queries qs qry", k="k key keys ks", v="v value values vs val vals", out="o out output outputs"
)
_FUSED: Mapping[str, tuple[str, ...]] = _table(
    qkv="qkv query_key_value queries_keys_values q_k_v querykeyvalue qkvs c_attn in_proj w_pack in_projection",
    kqv="kqv key_query_value k_q_v",
    kvq="kvq key_value_query",
    qvk="qvk query_value_key",
    vqk="vqk",
    vkq="vkq",
    kv="kv key_value k_v keyvalue keys_values kvs",
    vk="vk",
    qk="qk query_key q_k queries_keys",
)


def _spelled(templates: tuple[str, ...], words: tuple[str, ...], more: str = "") -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(shape.format(word) for word in words for shape in templates), *_words(more)]))


_OUTPUTS = "c_proj w0 w_0 w_out wout unify_heads unifyheads proj_out w_concat wconcat"

PROJECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {role: _spelled(_AS_MODULE, _WORDS_FOR[role]) for role in "qkv"}
    | {"out": _spelled(_AS_MODULE, _WORDS_FOR["out"], _OUTPUTS)}
    | {role: _spelled(_AS_MODULE, words) for role, words in _FUSED.items()}
)
"""What projections are called in a state dict: q, k, v, the output's, and arrays that hold several in that order."""

LOOSE_OUTPUTS: tuple[str, ...] = _words(
    "proj dense fc linear projection final_linear final_proj last_linear final final_layer resid_proj "
    "merge combine_heads combine concat_linear head_proj merge_heads ff w mix_proj post projector "
    "last_layer fc_final"
)
"""Names that an output projection can have, and other layers too: only beside q, k and v are they taken for it."""

BIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {role: _spelled(_AS_BIAS, words) for role, words in {**_WORDS_FOR, **_FUSED}.items()}
)
"""What the biases of projections are called where they are parameters of their own."""

NORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {role: _spelled(_AS_NORM, _WORDS_FOR[role]) for role in "qk"}
    | {"qk": _words("qk_norm norm_qk qk_layernorm qknorm qk_layer_norm qk_ln")}
)
"""What normalisations of query and key are called; ``qk`` is one for both."""

LISTS: tuple[str, ...] = _words(
    "linears linear_layers projections linear projs proj_layers qkvo layers_qkv linear_list"
)
"""Lists whose items are q, k, v and perhaps the output, in that order."""

SINKS: tuple[str, ...] = _words(
    "sinks sink attention_sinks attn_sinks attn_sink attention_sink sink_logits s_aux learnable_sink"
)
"""What the learned scores of a sink are called."""


def projection_role(name: str) -> str | None:
    """The role of a projection's name (without ``.weight``): q, k, v, out or letters in the order of a fused array."""
    return _PROJECTION_ROLE_OF.get(bare(name))


def bias_role(name: str) -> str | None:
    """The role of a bias that is a parameter of its own."""
    return _BIAS_ROLE_OF.get(bare(name))


def norm_role(name: str) -> str | None:
    """Whose normalisation this is: q, k or qk."""
    return _NORM_ROLE_OF.get(bare(name))


# --- constructors -----------------------------------------------------------------------------------------------------

INCOMING: tuple[str, ...] = _words(
    "d_in in_features input_dim in_dim input_size dim_in in_channels din n_in query_size query_dim q_dim"
)
"""Names of ``embed_dim`` that say "what comes in": another name of that role beside one means ``out_dim``."""

KV_HEADS_OR_GROUP_SIZE: tuple[str, ...] = _words("num_kv_groups num_groups n_groups n_kv_groups kv_groups groups")
"""Names that are the number of key/value heads in some code, and how many queries share one in other code."""

KV_HEADS_BESIDE_HEADS: tuple[str, ...] = _words("n_local_heads")
"""Names of the query heads of one rank (Llama) that are the key/value heads beside ``n_head`` alone (gpt-fast)."""

SIZES_OF_HEADS: Mapping[str, str] = MappingProxyType({"k": "head_dim", "v": "value_dim"})
"""Letters that are the sizes of one head where another argument is the embedding's."""

HEADS_IF_WHOLE: tuple[str, ...] = _words("n")
"""Names that are the number of heads where a constructor needs them as an int, beside one for the embedding."""

WINDOW_IF_WHOLE: tuple[str, ...] = _words("w win")
"""Names that are a window where the default of a call's argument is an int."""

CONFIGS: tuple[str, ...] = _words(
    "config cfg args params hparams conf model_args opt configuration model_config options settings hp "
    "gpt_config model_cfg attn_config attention_config"
)
"""Constructor arguments that hold all the others."""

_PREFIXES = tuple(f"{name}." for name in (*CONFIGS, "self"))


def _by_name(table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: role for role, names in table.items() for name in names}


_ROLE_OF = _by_name(ROLES)
_CALL_ROLE_OF = _by_name(CALL_ROLES)
_PROJECTION_ROLE_OF = _by_name(PROJECTIONS)
_BIAS_ROLE_OF = _by_name(BIASES)
_NORM_ROLE_OF = _by_name(NORMS)


def bare(name: str) -> str:
    """The name in lower case, without ``config.`` before it, leading underscores and stars."""
    name = name.lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.lstrip("_*")


def role_of(name: str, beside: Collection[str] = ()) -> str | None:
    """The role of a constructor's argument or of an attribute; None for a name that isn't in ``ROLES``.

    Args:
        name: the name.
        beside: the names that it stands with, itself included: arguments of one call, attributes of one object.
    """
    role = _ROLE_OF.get(bare(name))
    if bare(name) in KV_HEADS_BESIDE_HEADS:
        others = {_ROLE_OF.get(bare(other)) for other in beside if bare(other) != bare(name)}
        return "num_kv_heads" if "num_heads" in others and "num_kv_heads" not in others else role
    return role


def call_role_of(name: str) -> str | None:
    """The role of an argument of a call, by ``CALL_ROLES``, or by the words of a mask's name; None for others."""
    role = _CALL_ROLE_OF.get(bare(name))
    return role or next((of for of, words in _MASKS_BY_WORDS if re.search(words, bare(name))), None)


_MASKS_BY_WORDS = (
    ("padding", r"(^|_)(pad|padding)_?masks?$|^(k|kv|key|keys|source|context|encoder|enc|mem)_(\w+_)?masks?$"),
    ("mask", r"(^|_)(attn|attention|cross|self|causal|src|tgt|memory)_masks?$"),
)
"""Names of masks that stand in no table: ``memory_padding_mask``, ``enc_mask``, ``decoder_self_mask``."""


def is_config(name: str, annotation: str = "") -> bool:
    """Whether a constructor's argument is a config object, by its own name or by that of its class."""
    annotated = annotation.strip("\"' ").rpartition(".")[2]
    return bare(name) in CONFIGS or annotated.endswith(("Config", "Args", "Configuration", "Hyperparameters"))
