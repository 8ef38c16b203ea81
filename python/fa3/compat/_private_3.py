# SPDX-License-Identifier: BSD-3-Clause
"""What others import of FlashAttention-3 although its name begins with an underscore: libraries of
context parallelism, Megatron-LM, Transformer Engine. Parameters as in the original's head."""

import torch
from torch import Tensor

from ._common import attend, cache_of, differentiate, new_keys, refuse


def refuse_qv(function: str, qv: Tensor | None) -> None:
    lacking = "a second query is not offered"
    refuse(function, qv=(qv, lacking, "concatenate it with q, and v with k"))


def no_splits(out: Tensor) -> tuple[Tensor, Tensor]:
    """In place of what the original's splits leave, which it may return, too."""
    nothing = torch.empty(0, dtype=torch.float32, device=out.device)
    return nothing, nothing


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    qv: Tensor | None = None,
    out_: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    page_table: Tensor | None = None,
    kv_batch_idx: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    seqlens_rotary: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, lse, empty, empty), where the original returns parts of its splits. out_: a tensor to
    write to."""
    name = "_flash_attn_forward"
    refuse_qv(name, qv)
    keys = {"seqused_kv": seqused_k}
    if not (page_table is kv_batch_idx is leftpad_k is k_new is None):
        names = ("page_table", "kv_batch_idx", "leftpad_k")
        keys = cache_of(seqused_k, k, page_table, kv_batch_idx, leftpad_k, names)
    rotary = (rotary_cos, rotary_sin)
    appended = new_keys(
        name, k_new, v_new, rotary, rotary_interleaved, seqused_k, keys, cu_seqlens_k_new,
        seqlens_rotary,
    )  # fmt: skip
    out, lse = attend(
        q,
        k,
        v,
        descales=(q_descale, k_descale, v_descale),
        out=out_,
        causal=causal,
        window_size=(window_size_left, window_size_right),
        attention_chunk=attention_chunk,
        softmax_scale=softmax_scale,
        softcap=softcap,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_k,
        seqused_q=seqused_q,
        **keys,
        **appended,
        num_splits=max(num_splits, 0),
        sm_margin=sm_margin,
    )
    return out, lse, *no_splits(out)


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    sequed_q: Tensor | None = None,  # so they are spelled there
    sequed_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    softmax_scale: float | None = None,
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool = False,
    sm_margin: int = 0,
) -> Tensor:
    """Writes the gradients to those of dq, dk, dv that are given; returns the sums of dout · out,
    float32 (batch, heads, seqlen_q) or (heads, total_q), which the original pads."""
    return differentiate(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        (dq, dk, dv),
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softmax_scale=softmax_scale,
        softcap=softcap,
        deterministic=deterministic,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_k,
        seqused_q=sequed_q,
        seqused_kv=sequed_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_k,
    )
