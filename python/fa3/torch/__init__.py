# SPDX-License-Identifier: BSD-3-Clause
"""fa3.torch: attention as operators of PyTorch, with gradients.

    from fa3.torch import attention
    out = attention(q, k, v, causal=True)      # (batch, seqlen, heads, head_dim), CPU or CUDA

Operators carry it, torch.ops.fa3.forward, forward_codes, backward and combine: torch.compile does
not break its graph at them, activation checkpointing and CUDA graphs work, autocast is followed.
Memory comes from PyTorch's allocator, work goes to its current stream, CPU runs use at most
torch.get_num_threads() threads. Second derivatives and forward mode are refused. PyTorch 2.4 or
newer; nothing of it is linked.
"""

from .codes import attention_on_codes
from .combine import combine
from .function import attention, attention_qkvpacked
from .module import (
    FlashAttention3,
    FlashAttention3Core,
    TransformerLayer,
    is_flash_attention_3_available,
)
from .sdpa import scaled_dot_product_attention

__all__ = [
    "FlashAttention3",
    "FlashAttention3Core",
    "TransformerLayer",
    "attention",
    "attention_on_codes",
    "attention_qkvpacked",
    "combine",
    "is_flash_attention_3_available",
    "scaled_dot_product_attention",
]
