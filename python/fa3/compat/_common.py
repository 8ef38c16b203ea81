# SPDX-License-Identifier: BSD-3-Clause
"""What both families of functions need: refusals, windows, and the call itself."""

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
    scales = {
        f"{name}_scale": None if scale is None else scale.contiguous()
        for name, scale in zip("qkv", descales, strict=True)
    }
    q, k, v = (x.detach() if x.stride(-1) == 1 else x.detach().contiguous() for x in (q, k, v))
    return fa3.attention(q, k, v, return_lse=True, **scales, **arguments)


def cached_lengths(
    cache_seqlens: Tensor | int | None, batch: int, device: torch.device
) -> Tensor | None:
    if isinstance(cache_seqlens, int):
        return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)
    return None if cache_seqlens is None else cache_seqlens.contiguous()


SERVING = "paged, appending and rotary KV caches are not offered yet"
