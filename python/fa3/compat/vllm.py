# SPDX-License-Identifier: BSD-3-Clause
"""What vLLM calls of its own build of FlashAttention, vllm.vllm_flash_attn, on fa3: parameters as
in vLLM 0.33. fa_version and scheduler_metadata have no effect: fa3 schedules on the device.
Scales of 8-bit tensors have none beside q of 16 bits, as there."""

from typing import Any

import torch
from torch import Tensor

from ._common import Window, attend, refuse, varlen_cache
from .flash_attn_interface import get_scheduler_metadata

__all__ = ["flash_attn_varlen_func", "get_scheduler_metadata"]

_SPARSE = ("sparse and custom masks are not offered", "use fa3.torch.attention with attn_mask")


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: Tensor,
    max_seqlen_k: int,
    cu_seqlens_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    q_v: Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool | Tensor = False,
    window_size: Window | list[int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    return_softmax_lse: bool = False,
    out: Tensor | None = None,
    scheduler_metadata: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    num_splits: int = 0,
    output_scale: Tensor | None = None,
    fa_version: int = 3,
    s_aux: Tensor | None = None,
    cp_world_size: int = 1,
    cp_rank: int = 0,
    cp_tot_seqused_k: Tensor | None = None,
    mask_mod: Any = None,
    block_sparse_tensors: Any = None,
    aux_tensors: Any = None,
    aux_tensor_leading_dims: Any = None,
    dynamic_causal: Tensor | None = None,
    gather_kv_indices: Tensor | None = None,
    gather_kv_valid_length: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of (total, heads, head_dim), with keys of the same form, or in pages: block_table,
    (batch, pages of a sequence), whose lengths are seqused_k. num_splits: the most parts of a
    sequence's keys, 0 = any. With return_softmax_lse or return_attn_probs: (out, lse)."""
    name = "flash_attn_varlen_func"
    parallel = ("context parallelism is not offered yet", "merge parts by fa3.torch.combine")
    refuse(
        name,
        q_v=(q_v, "a second query is not offered", "concatenate it with q, and v with k"),
        dropout_p=(dropout_p, "dropout is not offered yet", "pass 0"),
        output_scale=(output_scale, "outputs of 8 bits are not offered", "quantise out"),
        cp_world_size=(cp_world_size - 1, *parallel),
        cp_tot_seqused_k=(cp_tot_seqused_k, *parallel),
        dynamic_causal=(dynamic_causal, "masks of each sequence are not offered", "pass a bool"),
        mask_mod=(mask_mod, *_SPARSE),
        block_sparse_tensors=(block_sparse_tensors, *_SPARSE),
        aux_tensors=(aux_tensors, *_SPARSE),
        gather_kv_indices=(gather_kv_indices, *_SPARSE),
        gather_kv_valid_length=(gather_kv_valid_length, *_SPARSE),
    )
    if isinstance(causal, Tensor):
        raise NotImplementedError(
            f"{name}: causal: a tensor: masks of each sequence are not offered; pass a bool"
        )
    if block_table is None and cu_seqlens_k is None:
        raise ValueError(f"{name}: need cu_seqlens_k, or seqused_k with block_table")
    # Scales of 1 stand beside 16 bits, too.
    q_descale = q_descale if q.dtype == torch.float8_e4m3fn else None
    descales = (q_descale, k_descale, v_descale)
    found = attend(
        q, k, v, descales=descales if k.dtype == torch.float8_e4m3fn else (None,) * 3, out=out,
        causal=causal, window_size=window_size, softmax_scale=softmax_scale, softcap=softcap,
        alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_k, sinks=s_aux, num_splits=max(num_splits, 0),
        deterministic=deterministic,
        **varlen_cache(k, block_table, cu_seqlens_k, seqused_k, "block_table"),
    )  # fmt: skip
    return found if return_softmax_lse or return_attn_probs else found[0]
