# SPDX-License-Identifier: BSD-3-Clause
"""fa3.torch: attention as operators of PyTorch, with gradients.

    from fa3.torch import attention
    out = attention(q, k, v, causal=True)      # (batch, seqlen, heads, head_dim), CPU or CUDA

Two operators, torch.ops.fa3.forward and torch.ops.fa3.backward, carry it: torch.compile does not
break its graph at them, activation checkpointing and CUDA graphs work, autocast is followed. Memory
comes from PyTorch's allocator, work goes to its current stream, CPU runs use at most
torch.get_num_threads() threads. Second derivatives and forward mode are refused. PyTorch 2.4 or
newer; nothing of it is linked.
"""

import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ._attention import PRECISIONS, _mask, lse_shape
from ._fa3 import Context, Reading
from ._fa3 import run as _run
from ._fitting import cast, check_block, fit_mask, in_blocks, mask_for
from ._fitting import fit as _fit
from ._module import (
    FlashAttention3,
    FlashAttention3Core,
    TransformerLayer,
    is_flash_attention_3_available,
)
from ._plan import BACKWARD, FORWARD, QUANTIZE
from ._sdpa import scaled_dot_product_attention

__all__ = [
    "FlashAttention3",
    "FlashAttention3Core",
    "TransformerLayer",
    "attention",
    "attention_qkvpacked",
    "is_flash_attention_3_available",
    "scaled_dot_product_attention",
]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_kv: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    seqused_q: Tensor | None = None,
    seqused_kv: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sequence_ids_q: Tensor | None = None,
    sequence_ids_kv: Tensor | None = None,
    attn_mask: Tensor | None = None,
    top_left: bool = False,
    precision: str = "default",
    seed: int = 0,
    fp8_block: int = 0,
    deterministic: bool | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(softmax_scale · q·kᵀ + mask) · v, with gradients of q, k, v and attn_mask.

    Args:
      q: (batch, seqlen_q, heads_q, head_dim), or (total_q, heads_q, head_dim) with cu_seqlens_q.
        float32 (CPU), float16, bfloat16; float64 (CPU), slowly, for gradcheck. Under autocast it
        is cast, as k and v are. Tensors whose last dimension is not contiguous are copied; on a GPU
        also those whose address or strides are not multiples of 16 bytes, and head dims are padded
        to multiples of 8.
      k, v: (batch, seqlen_kv, heads_kv, …) or (total_kv, …); heads_q is a multiple of heads_kv.
      causal … top_left: as in fa3.attention. attn_mask: a type that differs from q's becomes
        float32; its gradient has its shape. On a GPU with 16-bit tensors.
      precision, seed: as in fa3.attention; gradients are those of the inputs before rounding.
      fp8_block: with precision "fp8": a scale for each token and so many columns; 0 = its own.
      deterministic: gradients of the same bits in every run; None = what
        torch.are_deterministic_algorithms_enabled() says. On the CPU always so.
      return_lse: return the logarithms, too; they have gradients.

    Returns:
      out, or (out, lse): as fa3.attention.

    Raises:
      ValueError, TypeError, NotImplementedError, RuntimeError: as fa3.attention.
    """
    if softmax_scale == 0:
        raise ValueError("softmax_scale: 0, need another number, or None for 1/√head_dim")
    if precision not in PRECISIONS:
        raise ValueError(f'precision: "{precision}", need one of {", ".join(PRECISIONS)}')
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: {type(tensor).__name__}, need a torch.Tensor")
        if tensor.dim() not in (3, 4):
            raise ValueError(
                f"{name}: {tensor.dim()} dimensions, need 4, (batch, seqlen, heads, head_dim), or "
                "3, (total tokens, heads, head_dim), with cu_seqlens"
            )
    if fp8_block:
        check_block(fp8_block, precision, q, v)
    kind = q.device.type
    if kind not in ("cpu", "cuda", "meta"):
        raise NotImplementedError(f"q: on {q.device}, need the CPU or a CUDA GPU")
    if kind != "meta" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        q, k, v = (cast(x, dtype) for x in (q, k, v))
    if getattr(alibi_slopes, "requires_grad", False) and torch.is_grad_enabled():
        raise ValueError(
            "alibi_slopes: requires a gradient, which this function does not record; pass "
            "alibi_slopes.detach()"
        )
    softmax_scale, softcap = (
        float(x) if hasattr(x, "__float__") else x for x in (softmax_scale, softcap)
    )
    if attn_mask is not None:
        attn_mask = mask_for(q, attn_mask)
    if forward_ad._current_level >= 0:
        _refuse_forward_mode(q, k, v, attn_mask, alibi_slopes)
    left = right = None
    if window is not None:
        fields: dict[str, Any] = {}
        _mask(fields, causal, window)
        causal, left, right = False, fields["left"], fields["right"]
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    take = _attend if _is_eager(q, k, v, attn_mask) else torch.ops.fa3.forward
    out, lse = take(
        q, k, v, cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv, alibi_slopes, sequence_ids_q,
        sequence_ids_kv, attn_mask, max_seqlen_q, max_seqlen_kv, causal, left, right, top_left,
        softmax_scale, softcap, deterministic, precision, seed, fp8_block,
    )  # fmt: skip
    return (out, lse) if return_lse else out


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


# ---- Operators ----------------------------------------------------------------------------------

_LENGTHS = (
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_kv, Tensor? seqused_q, Tensor? seqused_kv, "
    "Tensor? alibi_slopes, Tensor? sequence_ids_q, Tensor? sequence_ids_kv, Tensor? attn_mask, "
    "SymInt? max_seqlen_q, SymInt? max_seqlen_kv, bool causal, SymInt? left, SymInt? right, "
    "bool top_left, float? softmax_scale, float softcap, bool deterministic"
)
_library = torch.library.Library("fa3", "DEF")
_library.define(
    f"forward(Tensor q, Tensor k, Tensor v, {_LENGTHS}, str precision, int seed, "
    "int fp8_block) -> (Tensor, Tensor)"
)
_library.define(
    "backward(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_LENGTHS}, bool needs_q, bool needs_k, bool needs_v, bool needs_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)

_TENSORS = (
    "cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv", "alibi_slopes", "sequence_ids_q",
    "sequence_ids_kv", "attn_mask",
)  # fmt: skip
_MASK = len(_TENSORS) - 1
_NUMBERS = slice(len(_TENSORS), len(_TENSORS) + 9)  # of what _LENGTHS lists
_OTHERS = slice(_NUMBERS.stop, None)


def _out_dtype(q: Tensor) -> torch.dtype:
    return q.dtype if q.dtype.itemsize > 1 else torch.bfloat16


def _common(tensors: tuple, numbers: tuple) -> dict[str, Any]:
    """Fields of the arguments that forward and backward share: _LENGTHS."""
    max_q, max_kv, causal, left, right, top_left, softmax_scale, softcap, _ = numbers
    fields = {name: x for name, x in zip(_TENSORS, tensors, strict=True) if x is not None}
    if "attn_mask" in fields:
        fields["attn_mask"] = fit_mask(fields["attn_mask"])
    if top_left:
        fields["mask_alignment"] = 1
    if max_q is not None:
        fields["max_seqlen_q"] = max_q
    if max_kv is not None:
        fields["max_seqlen_kv"] = max_kv
    if left is not None or right is not None:
        fields.update(
            mask=2, left=-1 if left is None else left, right=-1 if right is None else right
        )
    elif causal:
        fields["mask"] = 1
    if softmax_scale is not None:
        fields["softmax_scale"] = softmax_scale
    if softcap:
        fields["softcap"] = softcap
    return fields


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    precision, seed, block = rest[_OTHERS]
    fields = _common(rest[: len(_TENSORS)], rest[_NUMBERS])
    columns, columns_v = q.shape[-1], v.shape[-1]
    shape = tuple(q.shape)
    q, k, v = _fit(q), _fit(k), _fit(v)
    if q.shape[-1] != columns:  # padded: the scale is that of the columns that count
        fields.setdefault("softmax_scale", columns**-0.5)
    out = torch.empty((*shape[:-1], v.shape[-1]), dtype=_out_dtype(q), device=q.device)
    lse = torch.empty(lse_shape(shape), dtype=torch.float32, device=q.device)
    fields.update(q=q, k=k, v=v, o=out, lse=lse)
    if block:
        fields.update(in_blocks(fields, block, _execute))
    elif precision != "default":
        fields.update(precision=PRECISIONS[precision], precision_seed=seed)
    _execute(FORWARD, fields, q.device)
    return (out if v.shape[-1] == columns_v else out[..., :columns_v].contiguous()), lse


def _backward(
    dout: Tensor | None, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor,
    lse: Tensor, *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    numbers, (*needs, needs_mask) = rest[_NUMBERS], rest[_OTHERS]
    fields = _common(rest[: len(_TENSORS)], numbers)
    inputs = (q, k, v)
    columns = q.shape[-1]
    dout = torch.zeros_like(out) if dout is None else dout
    q, k, v, out, dout = (_fit(x) for x in (q, k, v, out, dout))
    if q.shape[-1] != columns:
        fields.setdefault("softmax_scale", columns**-0.5)
    fields.update(q=q, k=k, v=v, o=out, lse=lse, dout=dout, deterministic=int(numbers[-1]))
    if dlse is not None:
        fields["dlse"] = dlse.contiguous()
    gradients = []
    for name, x, needed in zip(("dq", "dk", "dv"), (q, k, v), needs, strict=True):
        gradient = torch.empty(x.shape if needed else 0, dtype=x.dtype, device=x.device)
        if needed:
            fields[name] = gradient
        gradients.append(gradient)
    of_mask = _gradient_of_mask(q, rest[_MASK], needs_mask)
    if needs_mask:
        fields["dattn_mask"] = of_mask
    if any(needs) or needs_mask:
        _execute(BACKWARD, fields, q.device)
    fitted = (
        gradient[..., : x.shape[-1]].contiguous()
        if needed and gradient.shape != x.shape
        else gradient
        for gradient, x, needed in zip(gradients, inputs, needs, strict=True)
    )
    return (*fitted, of_mask)


def _gradient_of_mask(q: Tensor, mask: Tensor | None, needed: bool) -> Tensor:
    return (q if mask is None else mask).new_empty(mask.shape if needed else 0)


# PyTorch before 2.10 lends tensors by a method, which refuses those that require a gradient.
_LENDS = hasattr(Tensor, "__dlpack_c_exchange_api__")
_READING = Reading(recorded=True)
_contexts: dict[tuple[str, int, bool], Context] = {}
os.register_at_fork(after_in_child=_contexts.clear)


def _context(device: torch.device, double: bool = False) -> Context:
    """One for each GPU, and for each number of threads that PyTorch is set to; made when needed.
    double: float64, which the backend reference alone computes."""
    if device.type == "cpu":
        key = ("cpu", torch.get_num_threads(), double)
    else:
        index = torch.cuda.current_device() if device.index is None else device.index
        key = ("cuda", index, False)
    context = _contexts.get(key)
    if context is None:
        if key[0] == "cpu":
            context = Context("cpu", backend="reference" if double else "auto", num_threads=key[1])
        else:
            context = Context(f"cuda:{key[1]}")
        context = _contexts.setdefault(key, context)
    return context


def _execute(op: int, fields: dict[str, Any], device: torch.device) -> None:
    context = _context(device, op != QUANTIZE and fields["q"].dtype is torch.float64)
    if not _LENDS:
        for name, value in fields.items():
            if isinstance(value, Tensor):
                fields[name] = value.detach()
    if device.type == "cpu":
        _run(op, fields, _READING, context, None)
        return
    stream = None if _LENDS else torch.cuda.current_stream(device).cuda_stream or 1
    _run(op, fields, _READING, context, stream, lambda size: _workspace(size, device))


def _workspace(size: int, device: torch.device) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


for _key in ("CPU", "CUDA"):
    _library.impl("forward", _forward, _key)
    _library.impl("backward", _backward, _key)


@torch.library.register_fake("fa3::forward", lib=_library)
def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    shape = tuple(q.shape)
    out = q.new_empty((*shape[:-1], v.shape[-1]), dtype=_out_dtype(q))
    return out, q.new_empty(lse_shape(shape), dtype=torch.float32)


@torch.library.register_fake("fa3::backward", lib=_library)
def _backward_fake(dout, dlse, q, k, v, out, lse, *rest: Any) -> tuple[Tensor, ...]:
    *needs, needs_mask = rest[_OTHERS]
    gradients = (
        x.new_empty(x.shape if needed else 0) for x, needed in zip((q, k, v), needs, strict=True)
    )
    return (*gradients, _gradient_of_mask(q, rest[_MASK], needs_mask))


# ---- Gradients ----------------------------------------------------------------------------------


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    rest = inputs[3:]
    ctx.save_for_backward(*inputs[:3], *output, *rest[: len(_TENSORS)])
    ctx.numbers = rest[_NUMBERS]


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, backward: Any) -> tuple:
    needs = (*ctx.needs_input_grad[:3], ctx.needs_input_grad[3 + _MASK])
    after = len(ctx.needs_input_grad) - 4 - _MASK  # inputs behind the mask
    if dout is None and dlse is None:
        return (None,) * len(ctx.needs_input_grad)
    gradients = backward(dout, dlse, *ctx.saved_tensors, *ctx.numbers, *needs)
    *wanted, of_mask = (g if needed else None for g, needed in zip(gradients, needs, strict=True))
    return (*wanted, *(None,) * _MASK, of_mask, *(None,) * after)


def _refuse_twice(ctx: Any, *gradients: Tensor) -> tuple:
    raise NotImplementedError(
        "fa3::backward: second derivatives are not offered; take torch.nn.functional."
        "scaled_dot_product_attention with torch.nn.attention.SDPBackend.MATH"
    )


torch.library.register_autograd(
    "fa3::forward",
    lambda ctx, dout, dlse: _differentiate(ctx, dout, dlse, torch.ops.fa3.backward),
    setup_context=_setup,
    lib=_library,
)
torch.library.register_autograd(
    "fa3::backward", _refuse_twice, setup_context=lambda ctx, inputs, output: None, lib=_library
)


# ---- The way around the dispatcher --------------------------------------------------------------
# An operator written in Python is slow to call where gradients are recorded: bench/python_calls.py.
# Where nothing looks at operators (no compiler, mode, transform or subclass) the same functions are
# called by a torch.autograd.Function.

_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_transform = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
_is_batched_tensor = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda x: False)
_PLAIN = (Tensor, torch.nn.Parameter)


def _is_eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    return (
        not torch.compiler.is_compiling()
        and type(q) in _PLAIN
        and type(k) in _PLAIN
        and type(v) in _PLAIN
        and (mask is None or type(mask) in _PLAIN)
        and q.device.type != "meta"
        and _modes() == 0
        and not torch.jit.is_tracing()
    )


def _is_batched(x: Tensor | None) -> bool:
    return x is not None and _is_batched_tensor(x)


def _attend(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    transform = _transform()
    if transform is not None:
        # torch.func knows no gradients of operators; torch.vmap runs operators one by one.
        kinds = torch._C._functorch.TransformType
        if transform.key() in (kinds.Grad, kinds.Vmap):
            return _Transformed.apply(q, k, v, *rest)
        return torch.ops.fa3.forward(q, k, v, *rest)
    mask = rest[_MASK]
    if torch.is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (mask is not None and mask.requires_grad)
    ):
        return _Attention.apply(q, k, v, *rest)
    return _forward(q, k, v, *rest)


def _refuse_forward_mode(*tensors: Tensor | None) -> None:
    """Tangents would be lost without a word."""
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "fa3.torch: forward-mode derivatives are not offered; take torch.nn.functional."
            "scaled_dot_product_attention with torch.nn.attention.SDPBackend.MATH"
        )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*arguments)
        _setup(ctx, arguments, output)
        return output

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple:
        if torch.is_grad_enabled() or _transform() is not None:
            return _differentiate(ctx, dout, dlse, _Backward.apply)
        batched = _is_batched(dout) or _is_batched(dlse)  # is_grads_batched
        return _differentiate(ctx, dout, dlse, torch.ops.fa3.backward if batched else _backward)


class _Transformed(_Attention):
    """The same in the form that torch.func needs, whose calls take 30 µs more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        return (_forward if _transform() is None else torch.ops.fa3.forward)(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        _setup(ctx, inputs, output)


class _Backward(torch.autograd.Function):
    """The backward, so that what differentiates it is refused in our words."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple:
        return (_backward if _transform() is None else torch.ops.fa3.backward)(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        return _refuse_twice(ctx, *gradients)
