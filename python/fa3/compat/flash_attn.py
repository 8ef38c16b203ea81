# SPDX-License-Identifier: BSD-3-Clause
"""The functions of FlashAttention-2's flash_attn on fa3. Its commit and every parameter:
docs/guide/python.md. Tensors on a CPU work, too."""

from typing import Any

import torch
from torch import Tensor

from ._common import (
    Window,
    attend,
    cache_of,
    new_keys,
    refuse,
    sinks_of,
    unpacked,
    varlen_cache,
)
from ._private_2 import (
    DROPOUT,
    _flash_attn_backward,
    _flash_attn_forward,
    _flash_attn_varlen_backward,
    _flash_attn_varlen_forward,
)

__version__ = "2.8.3"  # the version whose functions these are; programs compare it
__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
PRIVATE = [  # which others import all the same
    _flash_attn_forward,
    _flash_attn_backward,
    _flash_attn_varlen_forward,
    _flash_attn_varlen_backward,
]


def _attend(
    function: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    return_attn_probs: bool,
    **lengths: Any,
) -> Tensor | tuple[Tensor, Tensor, None]:
    refuse(function, dropout_p=(dropout_p, *DROPOUT))
    out, lse = attend(
        q,
        k,
        v,
        causal=causal,
        window_size=window_size,
        softmax_scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
        **lengths,
    )
    return (out, lse, None) if return_attn_probs else out


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """Attention of (batch, seqlen, heads, head_dim). With return_attn_probs: (out, lse, None); the
    original returns the mask of its dropout as the third."""
    sinks = sinks_of("flash_attn_func", sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    return _attend(
        "flash_attn_func", q, k, v, dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs, sinks=sinks,
    )  # fmt: skip


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """The same with k and v in one tensor, (batch, seqlen, 2, heads_kv, head_dim)."""
    return _attend(
        "flash_attn_kvpacked_func", q, *unpacked("kv", kv, 2, 5), dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """The same with q, k and v in one tensor, (batch, seqlen, 3, heads, head_dim)."""
    return _attend(
        "flash_attn_qkvpacked_func", *unpacked("qkv", qkv, 3, 5), dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    return_softmax_lse: bool = False,
    out: Tensor | None = None,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """Attention of (total, heads, head_dim), cut by cu_seqlens, int32 (batch + 1). out: a tensor to
    write to. With return_softmax_lse: (out, lse). block_table: of keys in pages, whose lengths are
    those of cu_seqlens_k."""
    name = "flash_attn_varlen_func"
    sinks = sinks_of(name, sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    found = _attend(
        name, q, k, v, dropout_p, softmax_scale, causal, window_size, softcap,
        alibi_slopes, deterministic, return_attn_probs or return_softmax_lse,
        cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, max_seqlen_kv=max_seqlen_k, out=out,
        sinks=sinks,
        **varlen_cache(k, block_table, cu_seqlens_k, None, "block_table"),
    )  # fmt: skip
    return found[:2] if return_softmax_lse and not return_attn_probs else found


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """The same with k and v in one tensor, (total, 2, heads_kv, head_dim)."""
    return flash_attn_varlen_func(
        q, *unpacked("kv", kv, 2, 4), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
        return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, None]:
    """The same with q, k and v in one tensor, (total, 3, heads, head_dim)."""
    return flash_attn_varlen_func(
        *unpacked("qkv", qkv, 3, 4), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p,
        softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    out: Tensor | None = None,
    sinks: Tensor | None = None,
    s_aux: Tensor | None = None,
    learnable_sink: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention on a cache of which the first cache_seqlens rows of each sequence count, less
    cache_leftpad in front; cache_batch_idx: its sequences in another order; block_table: in pages.
    k and v are first written behind these rows, k and q rotated. No gradients. out: a tensor to
    write to."""
    name = "flash_attn_with_kvcache"
    sinks = sinks_of(name, sinks=sinks, s_aux=s_aux, learnable_sink=learnable_sink)
    names = ("block_table", "cache_batch_idx", "cache_leftpad")
    cache = cache_of(cache_seqlens, k_cache, block_table, cache_batch_idx, cache_leftpad, names)
    rotary = (rotary_cos, rotary_sin)
    with torch.no_grad():
        out, lse = attend(
            q,
            k_cache,
            v_cache,
            out=out,
            causal=causal,
            window_size=window_size,
            softmax_scale=softmax_scale,
            softcap=softcap,
            alibi_slopes=alibi_slopes,
            sinks=sinks,
            num_splits=max(num_splits, 0),
            **cache,
            **new_keys(name, k, v, rotary, rotary_interleaved, cache_seqlens, cache),
        )
    return (out, lse) if return_softmax_lse else out
