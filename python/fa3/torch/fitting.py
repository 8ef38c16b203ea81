# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of PyTorch in a form that the library takes: copies where need be, codes of 8 bits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._plan import QUANTIZE


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


def row_major(x: Tensor, fields: dict[str, Any]) -> Tensor:
    """x, or where sequences have lengths a copy whose rows of all heads lie together, as those of
    the tensors that are made for results do: a GPU wants sequences as many rows apart in both."""
    if not x.is_cuda or x.dim() != 4 or x.shape[0] <= 1 or x.shape[1] <= 1:
        return x
    lengths = ("seqused_q", "seqused_kv", "cu_seqlens_q", "cu_seqlens_kv")
    if x.stride(0) == x.shape[1] * x.stride(1) or not any(name in fields for name in lengths):
        return x
    return x.contiguous()


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
    columns. execute: of run.py."""
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


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """As autocast does: float64 stays."""
    return x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x


def mask_for(q: Tensor, mask: Tensor) -> Tensor:
    """attn_mask with four dimensions and a type that goes with q."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"attn_mask: {type(mask).__name__}, need a torch.Tensor")
    if mask.dim() > 4:
        raise ValueError(
            f"attn_mask: {mask.dim()} dimensions, need (batch, heads_q, seqlen_q, seqlen_kv), or "
            "what broadcasts to it"
        )
    if mask.dtype != torch.bool:
        if not mask.is_floating_point():
            raise TypeError(f"attn_mask: {mask.dtype}, need torch.bool or a type of numbers to add")
        if mask.dtype not in (torch.float32, q.dtype):
            mask = mask.to(torch.float32)
    return mask[(None,) * (4 - mask.dim())] if mask.dim() < 4 else mask


def fit_mask(x: Tensor) -> Tensor:
    """attn_mask with extents of 1 where it is expanded, and contiguous rows."""
    for d in range(x.dim()):
        if x.shape[d] > 1 and x.stride(d) == 0:
            x = x.narrow(d, 0, 1)
    if x.is_neg():
        x = x.resolve_neg()
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()
