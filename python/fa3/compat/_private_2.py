# SPDX-License-Identifier: BSD-3-Clause
"""What libraries of context parallelism import of FlashAttention-2 although its name begins with an
underscore. Parameters as in the original's head: most have no defaults."""

from typing import Any

import torch
from torch import Tensor

from ._common import attend, differentiate, refuse, varlen_cache

LEFTPAD = ("keys that begin later are not offered here", "take flash_attn_with_kvcache")
DROPOUT = ("dropout is not offered yet", "pass 0.0")


def _outputs(
    function: str, q: Tensor, k: Tensor, v: Tensor, dropout_p: float, return_softmax: bool,
    **arguments: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    refuse(
        function,
        dropout_p=(dropout_p, *DROPOUT),
        return_softmax=(return_softmax, "its mask of dropout is not offered yet", "pass False"),
    )
    out, lse = attend(q, k, v, **arguments)
    mask = torch.empty(0, dtype=q.dtype, device=q.device)
    return out, lse, mask, torch.zeros(2, dtype=torch.int64, device=q.device)


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, lse, empty, zeros): the mask of dropout and the state of its random numbers, which are
    not needed."""
    return _outputs(
        "_flash_attn_forward", q, k, v, dropout_p, return_softmax, softmax_scale=softmax_scale,
        causal=causal, window_size=(window_size_left, window_size_right), softcap=softcap,
        alibi_slopes=alibi_slopes,
    )  # fmt: skip


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same of sequences cut by cu_seqlens; lse (heads, total_q). block_table: of keys in pages,
    of which seqused_k, or else cu_seqlens_k, has the lengths."""
    name = "_flash_attn_varlen_forward"
    refuse(name, leftpad_k=(leftpad_k, *LEFTPAD))
    return _outputs(
        name, q, k, v, dropout_p, return_softmax, softmax_scale=softmax_scale, causal=causal,
        window_size=(window_size_left, window_size_right), softcap=softcap,
        alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_k, num_splits=max(num_splits, 0),
        **varlen_cache(k, block_table, cu_seqlens_k, seqused_k, "block_table"),
    )  # fmt: skip


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Writes the gradients to those of dq, dk, dv that are given; returns the sums of dout · out,
    float32 (batch, heads, seqlen_q), which the original pads."""
    refuse("_flash_attn_backward", dropout_p=(dropout_p, *DROPOUT))
    return differentiate(
        dout, q, k, v, out, softmax_lse, (dq, dk, dv), softmax_scale=softmax_scale, causal=causal,
        window_size=(window_size_left, window_size_right), softcap=softcap,
        deterministic=deterministic, alibi_slopes=alibi_slopes,
    )  # fmt: skip


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """The same of sequences cut by cu_seqlens; softmax_lse and the sums (heads, total_q)."""
    refuse("_flash_attn_varlen_backward", dropout_p=(dropout_p, *DROPOUT))
    return differentiate(
        dout, q, k, v, out, softmax_lse, (dq, dk, dv), softmax_scale=softmax_scale, causal=causal,
        window_size=(window_size_left, window_size_right), softcap=softcap,
        deterministic=deterministic, alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_kv=max_seqlen_k,
    )  # fmt: skip
