# SPDX-License-Identifier: BSD-3-Clause
"""The functions of FlashAttention-3's flash_attn_interface on fa3. Its commit and every parameter:
docs/guide/python.md. Tensors on a CPU work, too."""

import torch
from torch import Tensor

import fa3.torch

from ._common import (
    Window,
    attend,
    cache_of,
    check,
    new_keys,
    sinks_of,
    varlen_cache,
)
from ._private_3 import _flash_attn_backward, _flash_attn_forward, no_splits, refuse_qv

__version__ = "3.0.0"  # the version whose functions these are; programs compare it
__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]
PRIVATE = [_flash_attn_forward, _flash_attn_backward]  # which others import all the same


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of (batch, seqlen, heads, head_dim); with return_attn_probs also the logarithms of
    the softmax's sums. pack_gqa is a hint that fa3 does not need."""
    refuse_qv("flash_attn_func", qv)
    sinks = sinks_of("flash_attn_func", sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    out, lse = attend(
        q,
        k,
        v,
        descales=(q_descale, k_descale, v_descale),
        causal=causal,
        window_size=window_size,
        attention_chunk=attention_chunk,
        softmax_scale=softmax_scale,
        softcap=softcap,
        sinks=sinks,
        num_splits=max(num_splits, 0),
        sm_margin=sm_margin,
        deterministic=deterministic,
    )
    return (out, lse) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
    out: Tensor | None = None,
    page_table: Tensor | None = None,
    block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of (total, heads, head_dim), cut by cu_seqlens, int32 (batch + 1). out: a tensor to
    write to; return_softmax_lse: another name of return_attn_probs. page_table, block_table: of
    keys in pages, of which seqused_k, or else cu_seqlens_k, has the lengths."""
    name = "flash_attn_varlen_func"
    refuse_qv(name, qv)
    sinks = sinks_of(name, sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    of_pages = "page_table" if block_table is None else "block_table"
    table = page_table if block_table is None else block_table
    out, lse = attend(
        q,
        k,
        v,
        descales=(q_descale, k_descale, v_descale),
        out=out,
        causal=causal,
        window_size=window_size,
        attention_chunk=attention_chunk,
        softmax_scale=softmax_scale,
        softcap=softcap,
        sinks=sinks,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_k,
        seqused_q=seqused_q,
        **varlen_cache(k, table, cu_seqlens_k, seqused_k, of_pages),
        num_splits=max(num_splits, 0),
        sm_margin=sm_margin,
        deterministic=deterministic,
    )
    return (out, lse) if return_attn_probs or return_softmax_lse else out


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of views of one tensor: (batch, seqlen, 3, heads, head_dim), or (batch, seqlen,
    num_heads_q + 2 · heads_kv, head_dim)."""
    if qkv.dim() == 5 and qkv.shape[-3] == 3:
        q, k, v = qkv.unbind(-3)
    elif (
        qkv.dim() == 4
        and num_heads_q is not None
        and 0 < num_heads_q < qkv.shape[2]
        and (qkv.shape[2] - num_heads_q) % 2 == 0
    ):
        rest = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, rest, rest], dim=2)
    else:
        raise ValueError(
            f"qkv: shape {tuple(qkv.shape)} with num_heads_q={num_heads_q}, need (batch, seqlen, "
            "3, heads, head_dim), or (batch, seqlen, num_heads_q + 2 · heads_kv, head_dim)"
        )
    return flash_attn_func(
        q,
        k,
        v,
        softmax_scale,
        causal,
        None,
        q_descale,
        k_descale,
        v_descale,
        window_size,
        attention_chunk,
        softcap,
        deterministic=deterministic,
        sm_margin=sm_margin,
        return_attn_probs=return_attn_probs,
    )


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    *,
    out: Tensor | None = None,
    block_table: Tensor | None = None,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention on a cache of which the first cache_seqlens rows of each sequence count, less
    cache_leftpad in front; cache_batch_idx: its sequences in another order; page_table,
    block_table: in pages. k and v, packed where cu_seqlens_k_new is given, are first written behind
    these rows, k and q rotated. No gradients. With return_softmax_lse: (out, lse, empty, empty),
    where the original may return the parts of its splits. out: a tensor to write to."""
    name = "flash_attn_with_kvcache"
    refuse_qv(name, qv)
    sinks = sinks_of(name, sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    table = page_table if block_table is None else block_table
    of_pages = "page_table" if block_table is None else "block_table"
    names = (of_pages, "cache_batch_idx", "cache_leftpad")
    cache = cache_of(cache_seqlens, k_cache, table, cache_batch_idx, cache_leftpad, names)
    rotary = (rotary_cos, rotary_sin)
    with torch.no_grad():
        out, lse = attend(
            q,
            k_cache,
            v_cache,
            descales=(q_descale, k_descale, v_descale),
            out=out,
            causal=causal,
            window_size=window_size,
            attention_chunk=attention_chunk,
            softmax_scale=softmax_scale,
            softcap=softcap,
            sinks=sinks,
            num_splits=max(num_splits, 0),
            sm_margin=sm_margin,
            cu_seqlens_q=cu_seqlens_q,
            max_seqlen_q=max_seqlen_q,
            **cache,
            **new_keys(
                name, k, v, rotary, rotary_interleaved, cache_seqlens, cache, cu_seqlens_k_new,
                rotary_seqlens,
            ),
        )
    return (out, lse, *no_splits(out)) if return_softmax_lse else out


def flash_attn_combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(out, lse) of all keys from those of parts of them: out_partial (parts, batch, seqlen, heads,
    head_dim), lse_partial (parts, batch, seqlen, heads), of any strides. out: a tensor to write to;
    out_dtype: its type, that of out_partial where neither is given. lse is (batch, seqlen, heads),
    in the memory of a tensor (batch, heads, seqlen). No gradients."""
    if not isinstance(lse_partial, Tensor):
        raise TypeError(f"lse_partial: {type(lse_partial).__name__}, need a torch.Tensor")
    if out is not None:
        kind = out_dtype or getattr(out, "dtype", out_partial.dtype)
        check("out", out, tuple(out_partial.shape[1:]), kind, out_partial.device)
        out_dtype = kind
    with torch.no_grad():
        merged, lse = fa3.torch.combine(
            out_partial, lse_partial.transpose(-1, -2), out_dtype=out_dtype
        )
    return (merged if out is None else out.copy_(merged)), lse.transpose(-1, -2)


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_size: int | None = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> None:
    """None: fa3 schedules on the device and needs nothing prepared. flash_attn_with_kvcache takes
    it."""
    return None
