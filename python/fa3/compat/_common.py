# SPDX-License-Identifier: BSD-3-Clause
"""What both families of functions need: refusals, windows, and the call itself."""

import operator
from typing import Any

import torch
from torch import Tensor

import fa3
import fa3.torch


def refuse(function: str, **given: Any) -> None:
    """Raises for arguments that fa3 does not compute with. given: name = (value, what is lacking,
    what to do); a value that is None, False or 0 is no wish."""
    for name, (value, lacking, remedy) in given.items():
        if (
            value is not None
            and value is not False
            and not (isinstance(value, (int, float)) and value == 0)
        ):
            raise NotImplementedError(f"{function}: {name}: {lacking}; {remedy}")


def window(sides: tuple[int, int]) -> tuple[int | None, int | None] | None:
    """fa3's, from one in which −1 stands for no bound."""
    left, right = sides
    if left < 0 and right < 0:
        return None
    return (None if left < 0 else left, None if right < 0 else right)


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, descales: tuple = (None,) * 3, **arguments: Any
) -> tuple[Tensor, Tensor]:
    """(out, lse). Codes of FP8 go the way without gradients, with a scale for each KV head."""
    if q.dtype != torch.float8_e4m3fn:
        if any(d is not None for d in descales):
            raise ValueError(f"q_descale: given with q of {q.dtype}, need torch.float8_e4m3fn")
        return fa3.torch.attention(q, k, v, return_lse=True, **arguments)
    arguments.pop("deterministic", None)
    scales = {f"{name}_scale": scale for name, scale in zip("qkv", descales, strict=True)}
    return fa3.torch.attention_on_codes(q, k, v, return_lse=True, **scales, **arguments)


def unpacked(name: str, packed: Tensor, count: int, dims: int) -> tuple[Tensor, ...]:
    """The `count` tensors that lie in one of `dims` dimensions, before heads and head_dim."""
    if packed.dim() != dims or packed.shape[-3] != count:
        rows = "batch, seqlen" if dims == 5 else "total"
        raise ValueError(
            f"{name}: shape {tuple(packed.shape)}, need ({rows}, {count}, heads, head_dim)"
        )
    return packed.unbind(-3)


def cached_lengths(cache_seqlens: Tensor | int | None, cache: Tensor) -> Tensor | None:
    """How many rows of each sequence of a cache (batch, seqlen, …) count."""
    batch, rows = cache.shape[:2]
    need = f"need int32 ({batch}), or a whole number from 0 to {rows}, the cache's length"
    if cache_seqlens is None:
        return None
    is_number = hasattr(cache_seqlens, "__index__")  # NumPy's, too
    if is_number and not isinstance(cache_seqlens, (Tensor, bool)):
        if not torch.compiler.is_compiling():  # whose symbols it would make constants
            cache_seqlens = operator.index(cache_seqlens)
        if not 0 <= cache_seqlens <= rows:
            raise ValueError(f"cache_seqlens: {cache_seqlens}, {need}")
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=cache.device)
    if not isinstance(cache_seqlens, Tensor):
        raise TypeError(f"cache_seqlens: {type(cache_seqlens).__name__}, {need}")
    if cache_seqlens.dtype != torch.int32 or tuple(cache_seqlens.shape) != (batch,):
        shape = tuple(cache_seqlens.shape)
        raise ValueError(f"cache_seqlens: {cache_seqlens.dtype} {shape}, {need}")
    return cache_seqlens.contiguous()


SERVING = "paged, appending and rotary KV caches are not offered yet"
