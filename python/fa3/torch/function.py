# SPDX-License-Identifier: BSD-3-Clause
"""fa3.torch.attention: arguments by name → those of the operator, with gradients."""

import operator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._attention import PRECISIONS
from .append import append
from .autograd import attend, is_eager, refuse_forward_mode, refuse_gradient, transform
from .fitting import cast, check_block, mask_for


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    cu_seqlens_new: Tensor | None = None,
    rotary: tuple[Tensor, Tensor] | None = None,
    rotary_layout: str = "halves",
    rotary_position: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sequence_ids_q: Tensor | None = None,
    sequence_ids_kv: Tensor | None = None,
    attn_mask: Tensor | None = None,
    sinks: Tensor | None = None,
    attention_chunk: int = 0,
    tree_mask: Tensor | None = None,
    top_left: bool = False,
    num_splits: int = 0,
    sm_margin: int = 0,
    batch_invariant: bool = False,
    precision: str = "default",
    seed: int = 0,
    fp8_block: int = 0,
    deterministic: bool | None = None,
    return_lse: bool = False,
    return_max_logit: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """softmax(softmax_scale · q·kᵀ + mask) · v, with gradients of q, k, v, attn_mask, sinks and
    softmax_scale.

    Args:
      q: (batch, seqlen_q, heads_q, head_dim), or (total_q, heads_q, head_dim) with cu_seqlens_q.
        float32 (CPU), float16, bfloat16; float64 (CPU), slowly, for gradcheck. Under autocast it
        is cast, as k and v are. Tensors whose last dimension is not contiguous are copied; on a GPU
        also those whose address or strides are not multiples of 16 bytes, and head dims are padded
        to multiples of 8.
      k, v: (batch, seqlen_kv, heads_kv, …) or (total_kv, …); heads_q is a multiple of heads_kv.
      causal … batch_invariant: as in fa3.attention. tree_mask: without gradients. page_table,
        kv_batch_idx, kv_begin and k_new: the same, and k and v must lie as the library takes them:
        a cache is not copied.
        With k_new the call writes k and v: operator torch.ops.fa3.append.
        attn_mask: a type that differs from q's becomes float32; its gradient has its shape. On a
        GPU with 16-bit tensors. The gradient of sinks has their type.
      softmax_scale: 0, too: all keys that a query sees count alike. A tensor of one element that
        requires a gradient gets Σ dq∘q / softmax_scale, from dq before it is rounded to 16 bits;
        such a backward takes another 8 bytes for each element of q.
      softmax_scale, softcap, max_seqlen_q, max_seqlen_kv: numbers or tensors of one element, which
        are read when the operator runs; to read one on a GPU waits for it, and cannot be captured
        in a CUDA graph. softcap has no gradient.
      precision, seed: as in fa3.attention; gradients are those of the inputs before rounding.
      fp8_block: with precision "fp8": a scale for each token and so many columns; 0 = its own.
      deterministic: gradients of the same bits in every run; None = what
        torch.are_deterministic_algorithms_enabled() says. On the CPU always so.
      return_lse: return the logarithms, too; they have gradients.
      return_max_logit: return the greatest score of each head, too, float32 (heads_q), as
        fa3.attention's max_logit: for clipping the weights of q and k. Without a gradient.

    Returns:
      out, or a tuple of out, lse where it is asked for, and max_logit likewise: as fa3.attention.

    Raises:
      ValueError, TypeError, NotImplementedError, RuntimeError: as fa3.attention.
    """
    if precision not in PRECISIONS:
        raise ValueError(f'precision: "{precision}", need one of {", ".join(PRECISIONS)}')
    check_tensors(q, k, v)
    if fp8_block:
        check_block(fp8_block, precision, q, v)
    kind = q.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        q, k, v = (cast(x, dtype) for x in (q, k, v))
    scale = longest_q = longest_kv = None
    if softmax_scale is not None:
        scale, softmax_scale = number_or_tensor("softmax_scale", softmax_scale)
    cap, softcap = number_or_tensor("softcap", softcap)
    if max_seqlen_q is not None:
        longest_q, max_seqlen_q = number_or_tensor("max_seqlen_q", max_seqlen_q, whole=True)
    if max_seqlen_kv is not None:
        longest_kv, max_seqlen_kv = number_or_tensor("max_seqlen_kv", max_seqlen_kv, whole=True)
    if alibi_slopes is not None:
        refuse_gradient("alibi_slopes", alibi_slopes)
    if cap is not None:
        refuse_gradient("softcap", cap)
    if attn_mask is not None:
        attn_mask = mask_for(q, attn_mask)
    if forward_ad._current_level >= 0:
        refuse_forward_mode(q, k, v, attn_mask, sinks, alibi_slopes, scale, cap)
    left = right = None
    if window is not None:
        causal, left, right = sides(causal, window)
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    if page_table is not None or kv_batch_idx is not None or kv_begin is not None:
        refuse_cache(q, k, v, attn_mask, sinks, scale)
    if tree_mask is not None:
        refuse_cache(q, k, v, sinks, scale, name="tree_mask: trees")
    rest = (
        cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, page_table, kv_batch_idx, kv_begin,
        alibi_slopes, sequence_ids_q, sequence_ids_kv, tree_mask, sinks, attn_mask, scale, cap,
        longest_q, longest_kv, max_seqlen_q, max_seqlen_kv, causal, left, right, top_left,
        attention_chunk, softmax_scale, 0.0 if softcap is None else softcap, num_splits, sm_margin,
        batch_invariant, deterministic,
    )  # fmt: skip
    if return_max_logit:
        check_max_logit(precision)
    if k_new is not None:
        if precision != "default":
            raise NotImplementedError(f'k_new with precision "{precision}", need "default"')
        out, lse, *most = append(
            q, k, v, k_new, v_new, cu_seqlens_new, rotary, rotary_layout, rotary_position, rest,
            return_max_logit,
        )  # fmt: skip
        return _chosen(out, lse, most, return_lse)
    for name, given in (
        ("v_new", v_new), ("cu_seqlens_new", cu_seqlens_new), ("rotary", rotary),
        ("rotary_position", rotary_position),
    ):  # fmt: skip
        if given is not None:
            raise ValueError(f"{name}: given without k_new, need the keys that are appended")
    if return_max_logit:
        out, lse, most = torch.ops.fa3.forward_max_logit(q, k, v, *rest)
        return _chosen(out, lse, [most.detach()], return_lse)
    take = attend if is_eager(q, k, v, sinks, attn_mask, scale) else torch.ops.fa3.forward
    out, lse = take(q, k, v, *rest, precision, seed, fp8_block)
    return (out, lse) if return_lse else out


def _chosen(
    out: Tensor, lse: Tensor, most: list[Tensor], return_lse: bool
) -> Tensor | tuple[Tensor, ...]:
    made = (out, *([lse] if return_lse else []), *most)
    return made if len(made) > 1 else out


def check_max_logit(precision: str) -> None:
    for name, given in (
        ("precision", precision != "default"),
        ("a function transform", not torch.compiler.is_compiling() and transform() is not None),
    ):
        if given:
            raise NotImplementedError(
                f"return_max_logit with {name}: not offered; call without one of them"
            )


def attention_qkvpacked(qkv: Tensor, **arguments: Any) -> Tensor | tuple[Tensor, Tensor]:
    """fa3.torch.attention of views of one tensor, without a copy.

    qkv: (batch, seqlen, 3, heads, head_dim), or (total, 3, heads, head_dim) with cu_seqlens=: for
      queries and keys. Its gradient is one tensor of the same shape.
    arguments: as of attention; cu_seqlens and max_seqlen are those of both.
    """
    if qkv.dim() not in (4, 5) or qkv.shape[-3] != 3:
        raise ValueError(
            f"qkv: shape {tuple(qkv.shape)}, need (batch, seqlen, 3, heads, head_dim) or "
            "(total, 3, heads, head_dim)"
        )
    for name in ("cu_seqlens", "max_seqlen"):
        if name in arguments:
            both = arguments.pop(name)
            arguments[f"{name}_q"] = arguments[f"{name}_kv"] = both
    return attention(*qkv.unbind(-3), **arguments)


# ---- Arguments ----------------------------------------------------------------------------------


def refuse_cache(
    *tensors: Tensor | None, name: str = "page_table, kv_batch_idx, kv_begin: keys in a cache"
) -> None:
    """Refuses gradients where keys are those of a cache, say."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        raise NotImplementedError(
            f"{name} have no gradients; call under torch.no_grad(), or pass detached tensors"
        )


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: {type(tensor).__name__}, need a torch.Tensor")
        if tensor.dim() not in (3, 4):
            raise ValueError(
                f"{name}: {tensor.dim()} dimensions, need 4, (batch, seqlen, heads, head_dim), or "
                "3, (total tokens, heads, head_dim), with cu_seqlens"
            )
    if q.device.type not in ("cpu", "cuda", "meta"):
        raise NotImplementedError(f"q: on {q.device}, need the CPU or a CUDA GPU")


# Before, torch.compile made floats constants, or did not let what it traces ask whether they are.
TELLS_CONSTANTS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 9)
_SYMBOLS = (torch.SymInt, torch.SymFloat)


def number_or_tensor(name: str, x: Any, whole: bool = False) -> tuple[Tensor | None, Any]:
    """(tensor, None), or (None, what else a number was given as). A compiler's symbols stay what
    they are: float() and operator.index() of one would have it compile for each value."""
    if x is None:
        return None, None
    if isinstance(x, Tensor):
        known = not x.is_complex() and not (whole and x.is_floating_point())
        if x.numel() != 1 or not known:
            kind = "a whole number" if whole else "a number"
            raise ValueError(
                f"{name}: {x.dtype}, shape {tuple(x.shape)}, need {kind}, or a tensor of one"
            )
        return x, None
    if type(x) is int or isinstance(x, torch.SymInt):
        number = x
    elif not whole and (type(x) is float or isinstance(x, torch.SymFloat)):
        number = x
    else:
        number = _converted(name, x, whole)
    if whole or not torch.compiler.is_compiling() or _is_constant(number):
        return None, number
    if number == 0:  # one guard: of a default that a compiler takes for one that changes
        return None, 0.0
    return torch.ones((), dtype=torch.float64) * number, None


def _converted(name: str, x: Any, whole: bool) -> float | int:
    """Of NumPy's numbers, say."""
    try:
        if not whole and not hasattr(x, "__float__"):  # which text has not, but float() takes
            raise TypeError
        return operator.index(x) if whole else float(x)
    except TypeError:
        kind = "an integer in range" if whole else "a number"
        raise TypeError(f"{name}: {x!r}, need {kind}") from None


def _is_constant(x: Any) -> bool:
    """Of a number under a compiler. Inductor compiles anew for each value of one that changes and
    is no tensor."""
    if not TELLS_CONSTANTS:
        return True
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return has_static_value(x)


def sides(causal: bool, window: tuple[int | None, int | None]) -> tuple[bool, int, int]:
    """causal, left and right of the operators: the keys that both let through are a window."""
    try:
        left, right = (
            -1 if n is None else n if type(n) is int or isinstance(n, _SYMBOLS) else
            operator.index(n) for n in window
        )  # fmt: skip
    except (TypeError, ValueError):
        raise TypeError(
            f"window: {window!r}, need a tuple (left, right) of numbers or None"
        ) from None
    if causal and (right > 0 or right == -1):
        right = 0
    return False, left, right
