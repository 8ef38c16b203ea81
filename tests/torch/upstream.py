# SPDX-License-Identifier: BSD-3-Clause
"""upstream.py — parameters and defaults of the functions that fa3.compat stands in for.

FlashAttention-3: hopper/flash_attn_interface.py at 01afd16d248c4c7d0f9aed1914084f16c490eaed;
FlashAttention-2: flash_attn/flash_attn_interface.py at 005300258a22e5fc6be621063c3d5704e82b89d9;
both of github.com/Dao-AILab/flash-attention. A name without "=" has no default.
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
}
