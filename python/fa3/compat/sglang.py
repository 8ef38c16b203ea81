# SPDX-License-Identifier: BSD-3-Clause
"""What SGLang calls of its own build of FlashAttention, sgl_kernel.flash_attn, on fa3: parameters
as in SGLang 0.5.23. ver and scheduler_metadata have no effect: fa3 schedules on the device.
Scales beside tensors of 16 bits have no effect, as there."""

from typing import Any

import torch
from torch import Tensor

from . import flash_attn_interface as _three

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache", "get_scheduler_metadata"]

_SCALES = ("q_descale", "k_descale", "v_descale")


def _call(function: Any, q: Tensor, *tensors: Tensor, **arguments: Any) -> Any:
    if arguments.pop("only_qv", False):
        raise NotImplementedError(
            f"{function.__name__}: only_qv: a second query is not offered; concatenate it with q, "
            "and v with k"
        )
    arguments.pop("ver", None)
    arguments["attention_chunk"] = arguments.get("attention_chunk") or 0
    of_keys = tensors[0].dtype if tensors else arguments["k_cache"].dtype
    for name in _SCALES:
        dtype = q.dtype if name == "q_descale" else of_keys
        if dtype != torch.float8_e4m3fn:
            arguments.pop(name, None)
    return function(q, *tensors, **arguments)


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    qv: Tensor | None = None, **arguments: Any,
) -> Any:  # fmt: skip
    """flash_attn_interface's, with only_qv and ver, and an attention_chunk of None. With
    return_softmax_lse: (out, lse, …)."""
    return _call(_three.flash_attn_with_kvcache, q, k_cache, v_cache, k=k, v=v, qv=qv, **arguments)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, **arguments: Any,
) -> Any:  # fmt: skip
    """flash_attn_interface's, with only_qv and ver, and an attention_chunk of None. Without bounds
    of lengths: any."""
    arguments.setdefault("num_splits", 1)
    return _call(
        _three.flash_attn_varlen_func, q, k, v, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
        **arguments,
    )  # fmt: skip


def get_scheduler_metadata(*sizes: Any, **named: Any) -> None:
    """None: fa3 needs nothing prepared. flash_attn_with_kvcache takes it, and any tensor."""
    return None
