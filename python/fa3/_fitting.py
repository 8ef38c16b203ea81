# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of PyTorch in a form that the library takes: copies where need be, codes of 8 bits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._plan import QUANTIZE


def fit(x: Tensor) -> Tensor:
    """x, or a copy that the library takes: the last dimension contiguous; on a GPU addresses and
    strides of whole 16 bytes, and columns in multiples of 8."""
    if x.is_neg():
        x = x.resolve_neg()
    if x.is_contiguous():
        if not x.is_cuda or (x.shape[-1] % 8 == 0 and x.data_ptr() % 16 == 0):
            return x
    elif not x.is_cuda:
        return x if x.stride(-1) == 1 else x.contiguous()
    if x.shape[-1] % 8 != 0:
        return torch.nn.functional.pad(x, (0, -x.shape[-1] % 8))
    whole = 16 // x.element_size()
    if x.stride(-1) == 1 and x.data_ptr() % 16 == 0:
        if all(s % whole == 0 for s, n in zip(x.stride()[:-1], x.shape, strict=False) if n > 1):
            if x.numel() <= 1 or any(x.stride()):
                return x
    return x.clone(memory_format=torch.contiguous_format)


def check_block(columns: int, precision: str, q: Tensor, v: Tensor) -> None:
    """Refuses an fp8_block of fa3.torch.attention that is none."""
    if precision != "fp8":
        raise ValueError(f'fp8_block: {columns} with precision "{precision}", need "fp8"')
    for name, x in (("q", q), ("v", v)):
        if columns < 0 or x.shape[-1] % columns != 0:
            raise ValueError(
                f"fp8_block: {columns}, need a divisor of {name}'s {x.shape[-1]} columns"
            )
    if q.dim() != 4:
        raise NotImplementedError(
            'fp8_block: need 4 dimensions, (batch, seqlen, heads, head_dim); take precision "fp8" '
            "without it for sequences cut by cu_seqlens"
        )


def in_blocks(fields: dict[str, Any], columns: int, execute: Callable) -> dict[str, Any]:
    """The fields of E4M3 codes for the q, k and v of `fields`: a scale for each token and `columns`
    columns. execute: of fa3.torch, runs an operation on a device."""
    found: dict[str, Any] = {}
    for name in "qkv":
        x = fields[name]
        batch, rows, heads, d = x.shape
        codes = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
        scale = x.new_empty((batch, heads, rows, -(-d // columns)), dtype=torch.float32)
        block = (1, columns)
        execute(QUANTIZE, {"x": x, "codes": codes, "scale": scale, "block": block}, x.device)
        found.update({name: codes, f"{name}_scale": scale, f"{name}_block": block})
    mask = fields.get("attn_mask")
    if mask is not None and mask.is_floating_point():  # of q's type, which is another now
        found["attn_mask"] = mask.float()
    return found
