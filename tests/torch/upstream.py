# SPDX-License-Identifier: BSD-3-Clause
"""upstream.py — parameters and defaults of the functions that fa3.compat stands in for.

FlashAttention-3: hopper/flash_attn_interface.py; FlashAttention-2: flash_attn/bert_padding.py,
flash_attn/flash_attn_interface.py and flash_attn/layers/rotary.py. All of
github.com/Dao-AILab/flash-attention at 0251105a2fb19d2957484b7f023cd8c115286ced.
A name without "=" has no default.
"""

_DESCALES = "q_descale=None k_descale=None v_descale=None"
_LENGTHS = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
_TAIL_3 = (
    "softcap=0.0 num_splits=1 pack_gqa=None deterministic=False sm_margin=0 return_attn_probs=False"
)
_TAIL_2 = (
    "dropout_p=0.0 softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 "
    "alibi_slopes=None deterministic=False return_attn_probs=False"
)

FLASH_ATTENTION_3 = {
    "flash_attn_func": f"q k v softmax_scale=None causal=False qv=None {_DESCALES} "
    f"window_size=(-1,-1) attention_chunk=0 {_TAIL_3}",
    "flash_attn_varlen_func": f"q k v {_LENGTHS} seqused_q=None seqused_k=None softmax_scale=None "
    f"causal=False qv=None {_DESCALES} window_size=(-1,-1) attention_chunk=0 {_TAIL_3}",
    "flash_attn_qkvpacked_func": f"qkv softmax_scale=None causal=False {_DESCALES} "
    "window_size=(-1,-1) attention_chunk=0 softcap=0.0 deterministic=False num_heads_q=None "
    "sm_margin=0 return_attn_probs=False",
    "flash_attn_with_kvcache": "q k_cache v_cache k=None v=None qv=None rotary_cos=None "
    "rotary_sin=None cache_seqlens=None cache_batch_idx=None cache_leftpad=None page_table=None "
    "cu_seqlens_q=None cu_seqlens_k_new=None max_seqlen_q=None rotary_seqlens=None "
    f"{_DESCALES} softmax_scale=None causal=False window_size=(-1,-1) attention_chunk=0 "
    "softcap=0.0 rotary_interleaved=True scheduler_metadata=None num_splits=0 pack_gqa=None "
    "sm_margin=0 return_softmax_lse=False",
    "_flash_attn_forward": "q k v k_new=None v_new=None qv=None out_=None cu_seqlens_q=None "
    "cu_seqlens_k=None cu_seqlens_k_new=None seqused_q=None seqused_k=None max_seqlen_q=None "
    "max_seqlen_k=None page_table=None kv_batch_idx=None leftpad_k=None rotary_cos=None "
    f"rotary_sin=None seqlens_rotary=None {_DESCALES} softmax_scale=None causal=False "
    "window_size_left=-1 window_size_right=-1 attention_chunk=0 softcap=0.0 "
    "rotary_interleaved=True scheduler_metadata=None num_splits=1 pack_gqa=None sm_margin=0",
    "_flash_attn_backward": "dout q k v out softmax_lse cu_seqlens_q=None cu_seqlens_k=None "
    "sequed_q=None sequed_k=None max_seqlen_q=None max_seqlen_k=None dq=None dk=None dv=None "
    "softmax_scale=None is_causal=False window_size_left=-1 window_size_right=-1 softcap=0.0 "
    "deterministic=False sm_margin=0",
    "flash_attn_combine": "out_partial lse_partial out=None out_dtype=None",
    "get_scheduler_metadata": "batch_size max_seqlen_q max_seqlen_k num_heads_q num_heads_kv "
    "headdim cache_seqlens qkv_dtype=bfloat16 headdim_v=None cu_seqlens_q=None "
    "cu_seqlens_k_new=None cache_leftpad=None page_size=None max_seqlen_k_new=0 causal=False "
    "window_size=(-1,-1) attention_chunk=0 has_softcap=False num_splits=0 pack_gqa=None "
    "sm_margin=0",
}
FLASH_ATTENTION_2 = {
    "flash_attn_func": f"q k v {_TAIL_2}",
    "flash_attn_kvpacked_func": f"q kv {_TAIL_2}",
    "flash_attn_qkvpacked_func": f"qkv {_TAIL_2}",
    "flash_attn_varlen_func": f"q k v {_LENGTHS} {_TAIL_2} block_table=None",
    "flash_attn_varlen_kvpacked_func": f"q kv {_LENGTHS} {_TAIL_2}",
    "flash_attn_varlen_qkvpacked_func": f"qkv cu_seqlens max_seqlen {_TAIL_2}",
    "flash_attn_with_kvcache": "q k_cache v_cache k=None v=None rotary_cos=None rotary_sin=None "
    "cache_seqlens=None cache_batch_idx=None cache_leftpad=None block_table=None "
    "softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 rotary_interleaved=True "
    "alibi_slopes=None num_splits=0 return_softmax_lse=False",
    "_flash_attn_forward": "q k v dropout_p softmax_scale causal window_size_left "
    "window_size_right softcap alibi_slopes return_softmax",
    "_flash_attn_backward": "dout q k v out softmax_lse dq dk dv dropout_p softmax_scale causal "
    "window_size_left window_size_right softcap alibi_slopes deterministic rng_state=None",
    "_flash_attn_varlen_forward": f"q k v {_LENGTHS} dropout_p softmax_scale causal "
    "window_size_left=-1 window_size_right=-1 softcap=0.0 alibi_slopes=None return_softmax=False "
    "block_table=None leftpad_k=None seqused_k=None zero_tensors=False num_splits=0",
    "_flash_attn_varlen_backward": f"dout q k v out softmax_lse dq dk dv {_LENGTHS} dropout_p "
    "softmax_scale causal window_size_left window_size_right softcap alibi_slopes deterministic "
    "rng_state=None zero_tensors=False",
}
BERT_PADDING = {
    "index_first_axis": "input indices",
    "index_first_axis_residual": "input indices",
    "index_put_first_axis": "values indices first_axis_dim",
    "pad_input": "hidden_states indices batch seqlen",
    "unpad_input": "hidden_states attention_mask unused_mask=None",
    "unpad_input_for_concatenated_sequences": "hidden_states attention_mask_in_length",
}
_OFFSETS = "interleaved=False seqlen_offsets=0"
ROTARY = {
    "RotaryEmbedding": "dim base=10000.0 interleaved=False scale_base=None device=None",
    "apply_rotary_emb": "x cos sin interleaved=False inplace=False seqlen_offsets=0 "
    "cu_seqlens=None max_seqlen=None",
    "apply_rotary_emb_kv_": f"kv cos sin {_OFFSETS}",
    "apply_rotary_emb_qkv_": f"qkv cos sin cos_k=None sin_k=None {_OFFSETS} num_heads_q=None",
    "apply_rotary_emb_torch": "x cos sin interleaved=False",
    "rotate_half": "x interleaved=False",
}

# What fa3.compat's functions take beyond those, as keywords alone: names that descendants of the
# originals have, SGLang's and vLLM's, or that transformers passes where it finds them.
_SINKS = "sinks=None s_aux=None learnable_sink=None"
ADDED = {
    "flash_attn_interface.flash_attn_func": _SINKS,
    "flash_attn.flash_attn_func": _SINKS,
    "flash_attn_interface.flash_attn_varlen_func": "return_softmax_lse=False out=None "
    f"page_table=None block_table=None {_SINKS}",
    "flash_attn.flash_attn_varlen_func": f"return_softmax_lse=False out=None {_SINKS}",
    "flash_attn_interface.flash_attn_with_kvcache": f"out=None block_table=None {_SINKS}",
    "flash_attn.flash_attn_with_kvcache": f"out=None {_SINKS}",
}
