# SPDX-License-Identifier: BSD-3-Clause
"""Attention on codes of 8 bits as an operator, torch.ops.fa3.forward_codes."""

import operator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._attention import _unpack, lse_shape
from .._plan import FORWARD
from .._quantize import V_IMAGE_SM90, Quantized
from . import fake
from .autograd import is_eager, is_plain, refuse_forward_mode, refuse_gradient, transform
from .fitting import fit, mask_for
from .function import check_tensors, number_or_tensor, sides
from .operators import LENGTHS, fields_of, in_cache, library, schedule_of
from .operators import out_dtype as of_q
from .run import execute

library.define(
    f"forward_codes(Tensor q, Tensor k, Tensor v, {LENGTHS}, Tensor? q_scale, Tensor? k_scale, "
    "Tensor? v_scale, Tensor? k_offset, Tensor? v_offset, Tensor? v_image, int[] blocks, "
    "ScalarType dtype) -> (Tensor, Tensor)"
)
_SCALES = ("q_scale", "k_scale", "v_scale", "k_offset", "v_offset", "v_image")
_BLOCKS = ("q_block", "k_block", "v_block")


def attention_on_codes(
    q: Tensor | Quantized,
    k: Tensor | Quantized,
    v: Tensor | Quantized,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softmax_scale: float | Tensor | None = None,
    softcap: float | Tensor = 0.0,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_kv: Tensor | None = None,
    max_seqlen_q: int | Tensor | None = None,
    max_seqlen_kv: int | Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_kv: Tensor | None = None,
    page_table: Tensor | None = None,
    kv_batch_idx: Tensor | None = None,
    kv_begin: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sequence_ids_q: Tensor | None = None,
    sequence_ids_kv: Tensor | None = None,
    attn_mask: Tensor | None = None,
    sinks: Tensor | None = None,
    attention_chunk: int = 0,
    top_left: bool = False,
    num_splits: int = 0,
    sm_margin: int = 0,
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    k_offset: Tensor | None = None,
    v_offset: Tensor | None = None,
    q_block: tuple[int, int] | None = None,
    k_block: tuple[int, int] | None = None,
    v_block: tuple[int, int] | None = None,
    v_image: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """fa3.attention of 8-bit codes as an operator: under torch.compile, in CUDA graphs, with memory
    of PyTorch's allocator and on its current stream.

    Args:
      q, k, v: float8_e4m3fn or int8 codes, v also of 16 bits beside int8, q also of 16 bits or
        float32 (CPU) beside float8_e4m3fn; or what fa3.quantize returns. Tensors whose last
        dimension is not contiguous are copied; on a GPU also those whose address or strides are not
        multiples of 16 bytes, but k and v of a cache.
      page_table, kv_batch_idx, kv_begin: k and v are a cache of float8_e4m3fn, whose scales are of
        one element or (batch, heads_kv), on a CPU with k_block=(page_size, 0) also (pages,
        heads_kv). On a GPU any q then goes the way of few queries.
      q_scale … v_image: as in fa3.attention.
      out_dtype: of out: torch.float32, torch.float16 or torch.bfloat16; None: that of q, of codes
        torch.bfloat16.
      The others as in fa3.torch.attention.

    Returns:
      out, or (out, lse): as fa3.attention. Codes have no gradients: where one of them requires
      one, so does out, and its backward raises NotImplementedError.

    Raises:
      as fa3.torch.attention; ValueError for another argument that requires a gradient.
    """
    given = {
        "q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale, "k_offset": k_offset,
        "v_offset": v_offset, "q_block": q_block, "k_block": k_block, "v_block": v_block,
        "v_image": v_image,
    }  # fmt: skip
    if type(q) is Quantized or type(k) is Quantized or type(v) is Quantized:
        found: dict[str, Any] = {"q": q, "k": k, "v": v}
        q, k, v = _unpack(found, **given)
        given |= found
    check_tensors(q, k, v)
    if k.dtype not in (torch.float8_e4m3fn, torch.int8):
        raise TypeError(
            f"k: {k.dtype}, need codes of torch.float8_e4m3fn or torch.int8; others are for "
            "fa3.torch.attention"
        )
    scale, softmax_scale = number_or_tensor("softmax_scale", softmax_scale)
    cap, softcap = number_or_tensor("softcap", softcap)
    longest_q, max_seqlen_q = number_or_tensor("max_seqlen_q", max_seqlen_q, whole=True)
    longest_kv, max_seqlen_kv = number_or_tensor("max_seqlen_kv", max_seqlen_kv, whole=True)
    scales = [given[name] for name in _SCALES]
    named = {"alibi_slopes": alibi_slopes, "attn_mask": attn_mask, "sinks": sinks,
             "softmax_scale": scale, "softcap": cap,
             **dict(zip(_SCALES, scales, strict=True))}  # fmt: skip
    for name, x in named.items():
        refuse_gradient(name, x)
    if forward_ad._current_level >= 0:
        refuse_forward_mode(q, k, v, *named.values())
    if attn_mask is not None:
        attn_mask = mask_for(q, attn_mask)
    left = right = None
    if window is not None:
        causal, left, right = sides(causal, window)
    blocks = [n for name in _BLOCKS for n in _block(name, given[name])]
    if out_dtype is None:
        out_dtype = of_q(q)
    recorded = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    # Gradients that are to be refused are PyTorch's to find.
    direct = (
        not recorded
        and is_eager(q, k, v, sinks, attn_mask, scale)
        and all(map(is_plain, scales))
        and transform() is None
    )
    out, lse = (forward if direct else torch.ops.fa3.forward_codes)(
        q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, page_table, kv_batch_idx,
        kv_begin,
        alibi_slopes, sequence_ids_q, sequence_ids_kv, None, sinks, attn_mask, scale, cap,
        longest_q, longest_kv, max_seqlen_q, max_seqlen_kv, causal, left, right, top_left,
        attention_chunk, softmax_scale, 0.0 if softcap is None else softcap, num_splits, sm_margin,
        False, False, *scales, blocks, out_dtype,
    )  # fmt: skip
    return (out, lse) if return_lse else out


def _block(name: str, block: Any) -> tuple[int, int]:
    try:
        rows, columns = (0, 0) if block is None else map(operator.index, block)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: need a tuple of rows and columns") from None
    return rows, columns


def _named(others: tuple) -> dict[str, Any]:
    """Fields of what LENGTHS does not list."""
    *scales, blocks, _ = others
    fields = {name: x for name, x in zip(_SCALES, scales, strict=True) if x is not None}
    if "v_image" in fields:
        fields["v_image_layout"] = V_IMAGE_SM90
    for i, name in enumerate(_BLOCKS):
        if blocks[2 * i] or blocks[2 * i + 1]:
            fields[name] = (blocks[2 * i], blocks[2 * i + 1])
    return fields


def _fit_codes(x: Tensor) -> Tensor:
    """Not padded: scales and offsets are of the columns that there are."""
    if x.shape[-1] % 8 == 0:
        return fit(x)
    return x if x.stride(-1) == 1 else x.contiguous()


def _fit_scale(x: Tensor) -> Tensor:
    """One element that is expanded in every dimension is one for the tensor."""
    if x.numel() > 1 and not any(x.stride()):
        return x.as_strided((1,), (1,))
    return x if x.dim() == 2 and x.stride(1) in (0, 1) else x.contiguous()


def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    others = rest[-len(_SCALES) - 2 :]
    fields = fields_of(rest) | schedule_of(rest)
    named = _named(others)
    for name in _SCALES[:-1]:
        if name in named:
            named[name] = _fit_scale(named[name])
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=others[-1], device=q.device)
    lse = torch.empty(lse_shape(tuple(q.shape)), dtype=torch.float32, device=q.device)
    q = _fit_codes(q)
    if not in_cache(fields):
        k, v = _fit_codes(k), _fit_codes(v)
    fields.update(q=q, k=k, v=v, o=out, lse=lse, **named)
    execute(FORWARD, fields, q.device)
    return out, lse


for _key in ("CPU", "CUDA"):
    library.impl("forward_codes", forward, _key)


@torch.library.register_fake("fa3::forward_codes", lib=library)
def _fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    others = rest[-len(_SCALES) - 2 :]
    made = fake.outputs(q, v, others[-1])
    fake.check_forward((q, k, v), rest, made, False, **_named(others))
    return tuple(q.new_empty(shape, dtype=dtype) for shape, dtype in made.values())


def _refuse(ctx: Any, *gradients: Tensor) -> tuple:
    raise NotImplementedError(
        "fa3::forward_codes: 8-bit q, k and v have no gradients; pass them detached, or train with "
        'fa3.torch.attention on 16-bit tensors and precision="fp8"'
    )


torch.library.register_autograd(
    "fa3::forward_codes", _refuse, setup_context=lambda ctx, inputs, output: None, lib=library
)
