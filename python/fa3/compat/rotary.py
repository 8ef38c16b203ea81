# SPDX-License-Identifier: BSD-3-Clause
"""The functions of FlashAttention-2's flash_attn.layers.rotary in plain PyTorch: rotary embeddings
of q and k, computed in float32.

Pairs of the first rotary_dim columns are turned by the angles of a table with a row for each
position: column i goes with i + rotary_dim / 2 (GPT-NeoX), or, interleaved, column 2i with 2i + 1
(GPT-J).
"""

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "RotaryEmbedding",
    "apply_rotary_emb",
    "apply_rotary_emb_func",
    "apply_rotary_emb_kv_",
    "apply_rotary_emb_qkv_",
    "apply_rotary_emb_torch",
    "rotate_half",
]


def rotate_half(x: Tensor, interleaved: bool = False) -> Tensor:
    """Each pair (a, b) of columns becomes (−b, a)."""
    a, b = _pairs(x, interleaved)
    return _columns(-b, a, interleaved)


def apply_rotary_emb_torch(
    x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False
) -> Tensor:
    """x: (batch, seqlen, heads, head_dim); cos, sin: (seqlen, rotary_dim / 2), or with a batch in
    front. Computed in the type that x and cos have together."""
    cos, sin = cos[..., None, :], sin[..., None, :]
    rotary = 2 * cos.shape[-1]
    a, b = _pairs(x[..., :rotary], interleaved)
    turned = _columns(a * cos - b * sin, a * sin + b * cos, interleaved)
    return torch.cat([turned, x[..., rotary:]], -1)


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """x with its first rotary_dim columns turned, with gradients of x, and, unless inplace, of cos
    and sin.

    x: (batch, seqlen, heads, head_dim), or (total, heads, head_dim) with cu_seqlens.
    cos, sin: (positions, rotary_dim / 2); rotary_dim ≤ head_dim.
    inplace: x itself is turned and returned.
    seqlen_offsets: position of the first token, or of that of each sequence, integers (batch).
      Tokens behind the last position of the table stay as they are.
    cu_seqlens: integers (batch + 1): where each sequence begins, last its end.
    max_seqlen: an upper bound of the lengths, which is not needed.
    """
    table = _table(x, cos, sin, seqlen_offsets, cu_seqlens)
    if not inplace:
        return _turned(x, *table, interleaved)
    return _InPlace.apply(x, *table, interleaved, lambda whole: (whole, None))


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Tensor | None = None,
    sin_k: Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
    num_heads_q: int | None = None,
) -> Tensor:
    """qkv with q and k turned in place: (batch, seqlen, 3, heads, head_dim), or (batch, seqlen,
    num_heads_q + 2 · heads_kv, head_dim). cos_k, sin_k: of k, where they are others."""
    if qkv.dim() == 5 and qkv.shape[2] == 3:

        def split(whole: Tensor) -> tuple[Tensor, Tensor]:
            return whole[:, :, 0], whole[:, :, 1]

    elif qkv.dim() == 4 and num_heads_q is not None and (qkv.shape[2] - num_heads_q) % 2 == 0:
        behind = num_heads_q + (qkv.shape[2] - num_heads_q) // 2

        def split(whole: Tensor) -> tuple[Tensor, Tensor]:
            return whole[:, :, :num_heads_q], whole[:, :, num_heads_q:behind]

    else:
        raise ValueError(
            f"qkv: shape {tuple(qkv.shape)} with num_heads_q={num_heads_q}, need (batch, seqlen, "
            "3, heads, head_dim), or (batch, seqlen, num_heads_q + 2 · heads_kv, head_dim)"
        )
    cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
    q, k = split(qkv)
    table = _table(q, cos, sin, seqlen_offsets, None)
    table_k = _table(k, cos_k, sin_k, seqlen_offsets, None)
    return _InPlace.apply(qkv, *table, interleaved, split, *table_k)


def apply_rotary_emb_kv_(
    kv: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
) -> Tensor:
    """kv, (batch, seqlen, 2, heads_kv, head_dim), with k turned in place."""
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise ValueError(
            f"kv: shape {tuple(kv.shape)}, need (batch, seqlen, 2, heads_kv, head_dim)"
        )
    table = _table(kv[:, :, 0], cos, sin, seqlen_offsets, None)
    return _InPlace.apply(kv, *table, interleaved, lambda whole: (whole[:, :, 0], None))


class RotaryEmbedding(torch.nn.Module):
    """Rotary embeddings with tables that grow with the sequences; with scale_base XPos's.

    dim: columns that are turned. base: of the angles, base^(−2i / dim) a position. scale_base:
    None, or after how many positions the scale of XPos has changed by its factor.
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.base = float(base)
        self.interleaved = interleaved
        self.scale_base = scale_base
        self.register_buffer("inv_freq", self._frequencies(device), persistent=False)
        scale = None
        if scale_base is not None:
            column = torch.arange(0, dim, 2, device=device, dtype=torch.float32)
            scale = (column + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached = self._sin_cached = None
        self._cos_k_cached = self._sin_k_cached = None

    def _frequencies(self, device: torch.device | None) -> Tensor:
        column = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)
        return 1.0 / self.base ** (column / self.dim)

    def _update_cos_sin_cache(
        self, seqlen: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        known = self._cos_cached
        if (
            known is not None
            and seqlen <= self._seq_len_cached
            and known.device == device
            and known.dtype == dtype
            and not (self.training and known.is_inference())
        ):
            return
        self._seq_len_cached = seqlen
        # A module cast to 16 bits has lost what the angles of late positions need.
        exact = self.inv_freq.dtype == torch.float32
        frequencies = self.inv_freq.to(device) if exact else self._frequencies(device)
        position = torch.arange(seqlen, device=device, dtype=torch.float32)
        angles = position[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        if self.scale is not None:
            power = (position - seqlen // 2) / self.scale_base
            scale = self.scale.to(device, torch.float32) ** power[:, None]
            self._cos_k_cached = (cos / scale).to(dtype)
            self._sin_k_cached = (sin / scale).to(dtype)
            cos, sin = cos * scale, sin * scale
        self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: int | Tensor = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Turns in place, and returns, qkv as of apply_rotary_emb_qkv_; or, with kv, q in its place
        and kv as of apply_rotary_emb_kv_. seqlen_offset: as seqlen_offsets there; a tensor needs
        max_seqlen, how many positions the table is to have."""
        if max_seqlen is None and isinstance(seqlen_offset, Tensor) and self._cos_cached is None:
            raise ValueError("max_seqlen: None, need the table's length beside a tensor of offsets")
        if max_seqlen is not None or not isinstance(seqlen_offset, Tensor):
            rows = qkv.shape[1] + seqlen_offset if max_seqlen is None else max_seqlen
            self._update_cos_sin_cache(rows, qkv.device, qkv.dtype)
        cos, sin = self._cos_cached, self._sin_cached
        cos_k, sin_k = (self._cos_k_cached, self._sin_k_cached) if self.scale is not None else (
            cos,
            sin,
        )
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, cos, sin, cos_k, sin_k, self.interleaved, seqlen_offset, num_heads_q
            )
        q = apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset)
        return q, apply_rotary_emb_kv_(kv, cos_k, sin_k, self.interleaved, seqlen_offset)


# ---- Tables and pairs ---------------------------------------------------------------------------


def _table(
    x: Tensor, cos: Tensor, sin: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """cos and sin of each token of x, (…, 1, rotary_dim / 2)."""
    dims = 4 if cu_seqlens is None else 3
    if x.dim() != dims:
        need = "(batch, seqlen, heads, head_dim)" if dims == 4 else "(total, heads, head_dim)"
        raise ValueError(f"x: shape {tuple(x.shape)}, need {need}")
    if cos.dim() != 2 or cos.shape != sin.shape or 2 * cos.shape[1] > x.shape[-1]:
        raise ValueError(
            f"cos, sin: shapes {tuple(cos.shape)} and {tuple(sin.shape)}, need twice (positions, "
            f"rotary_dim / 2), with a rotary_dim of at most {x.shape[-1]}, the head_dim"
        )
    rows = cos.shape[0]
    if cu_seqlens is None:
        length = x.shape[1]
        if not isinstance(offsets, Tensor):
            if not 0 <= offsets <= rows - length:
                raise ValueError(
                    f"seqlen_offsets: {offsets}, need 0 to {rows - length}: {length} tokens behind "
                    f"it, and cos has {rows} positions"
                )
            return tuple(t[offsets : offsets + length, None] for t in (cos, sin))
        _check_offsets(offsets, x.shape[0])
        position = offsets[:, None] + torch.arange(length, device=x.device)
    else:
        token = torch.arange(x.shape[0], device=x.device)
        batch = cu_seqlens.shape[0] - 1
        place = torch.searchsorted(cu_seqlens.contiguous(), token, right=True) - 1
        place = place.clamp(0, batch - 1)
        position = token - cu_seqlens[place]
        if isinstance(offsets, Tensor):
            _check_offsets(offsets, batch)
            offsets = offsets[place]
        # Tokens behind the last sequence are of none.
        position = torch.where(token < cu_seqlens[-1], position + offsets, rows)
    position = torch.where(position < rows, position, rows)
    still = cos.new_ones(1, cos.shape[1]), sin.new_zeros(1, sin.shape[1])
    return tuple(
        torch.cat([t, last])[position][..., None, :]
        for t, last in zip((cos, sin), still, strict=True)
    )


def _check_offsets(offsets: Tensor, batch: int) -> None:
    whole = offsets.dtype in (torch.int32, torch.int64)
    if tuple(offsets.shape) != (batch,) or not whole:
        raise ValueError(
            f"seqlen_offsets: {offsets.dtype} {tuple(offsets.shape)}, need int32 or int64 "
            f"({batch}), one for each sequence"
        )


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, ...]:
    return (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)


def _columns(a: Tensor, b: Tensor, interleaved: bool) -> Tensor:
    return torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """cos, sin: of each token, (…, 1, rotary_dim / 2)."""
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    rotary = 2 * cos.shape[-1]
    a, b = _pairs(x[..., :rotary].to(wide), interleaved)
    turned = _columns(a * cos - b * sin, a * sin + b * cos, interleaved).to(x.dtype)
    return turned if rotary == x.shape[-1] else torch.cat([turned, x[..., rotary:]], -1)


class _InPlace(torch.autograd.Function):
    """Of one tensor one part, or two with tables of their own. As in the original, and other than
    with operations in place, the tensor may be a leaf of the graph."""

    @staticmethod
    def forward(
        ctx: Any, whole: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, split: Any,
        cos_k: Tensor | None = None, sin_k: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if any(ctx.needs_input_grad[i] for i in (1, 2, *range(5, len(ctx.needs_input_grad)))):
            raise ValueError(
                "cos, sin: require a gradient, which is not recorded in place; take "
                "apply_rotary_emb without inplace, or pass cos.detach()"
            )
        ctx.save_for_backward(cos, sin, cos_k, sin_k)
        ctx.interleaved, ctx.split = interleaved, split
        _turn(whole, split, ((cos, sin), (cos_k, sin_k)), interleaved)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        cos, sin, cos_k, sin_k = ctx.saved_tensors
        back = (cos, -sin), (cos_k, None if sin_k is None else -sin_k)
        gradient = gradient.clone()
        _turn(gradient, ctx.split, back, ctx.interleaved)
        return gradient, *(None,) * (len(ctx.needs_input_grad) - 1)


def _turn(whole: Tensor, split: Any, tables: tuple, interleaved: bool) -> None:
    for part, table in zip(split(whole), tables, strict=True):
        if part is not None:
            part.copy_(_turned(part, *table, interleaved))
