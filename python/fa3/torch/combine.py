# SPDX-License-Identifier: BSD-3-Clause
"""Merging of parts of attention as an operator, torch.ops.fa3.combine, with gradients."""

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._plan import COMBINE
from . import fake
from .autograd import refuse_forward_mode, transform
from .operators import library
from .run import execute

library.define(
    "combine(Tensor o_parts, Tensor lse_parts, Tensor? sinks, ScalarType dtype) -> (Tensor, Tensor)"
)


def combine(
    o_parts: Tensor,
    lse_parts: Tensor,
    *,
    sinks: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """fa3.combine as an operator: with gradients, under torch.compile, in CUDA graphs, with memory
    of PyTorch's allocator and on its current stream.

    Args:
      o_parts: (parts, batch, seqlen, heads, head_dim), or (parts, total, heads, head_dim), of
        float32, float16 or bfloat16. A last dimension that is not contiguous is copied.
      lse_parts: float32 (parts, batch, heads, seqlen), or (parts, heads, total), any strides.
      sinks: as in fa3.combine.
      out_dtype: of out; None = that of o_parts.

    Returns:
      out, lse: as fa3.combine. Gradients of both reach o_parts, lse_parts and sinks; a part whose
      lse is −inf gets 0.

    Raises:
      as fa3.torch.attention.
    """
    for name, x in (("o_parts", o_parts), ("lse_parts", lse_parts)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: {type(x).__name__}, need a torch.Tensor")
    if o_parts.dim() not in (4, 5):
        raise ValueError(
            f"o_parts: {o_parts.dim()} dimensions, need 5, (parts, batch, seqlen, heads, "
            "head_dim), or 4, (parts, total, heads, head_dim)"
        )
    if forward_ad._current_level >= 0:
        refuse_forward_mode(o_parts, lse_parts, sinks)
    take = torch.ops.fa3.combine if torch.compiler.is_compiling() else _differentiable
    return take(o_parts, lse_parts, sinks, out_dtype or o_parts.dtype)


def _outputs(o_parts: Tensor, dtype: torch.dtype) -> dict[str, tuple]:
    """Shape and type of out and lse."""
    *before, rows, heads, columns = o_parts.shape[1:]
    return {
        "o": ((*before, rows, heads, columns), dtype),
        "lse": ((*before, heads, rows), torch.float32),
    }


def _fit(x: Tensor, free: bool) -> Tensor:
    """x, or a copy that the library takes. free: the last stride may be any."""
    x = x.resolve_neg()
    expanded = x.numel() > 1 and not any(x.stride())
    if expanded or not (free or x.numel() <= 1 or x.shape[-1] <= 1 or x.stride(-1) == 1):
        return x.clone(memory_format=torch.contiguous_format)
    return x


def _combine(
    o_parts: Tensor, lse_parts: Tensor, sinks: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    made = {
        name: torch.empty(shape, dtype=kind, device=o_parts.device)
        for name, (shape, kind) in _outputs(o_parts, dtype).items()
    }
    parts = {"o_parts": _fit(o_parts, False), "lse_parts": _fit(lse_parts, True)}
    if sinks is not None:
        parts["sinks"] = _fit(sinks, False)
    execute(COMBINE, {**parts, **made}, o_parts.device)
    return made["o"], made["lse"]


for _key in ("CPU", "CUDA"):
    library.impl("combine", _combine, _key)


@torch.library.register_fake("fa3::combine", lib=library)
def _fake(
    o_parts: Tensor, lse_parts: Tensor, sinks: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    made = _outputs(o_parts, dtype)
    with contextlib.suppress(fake.Unknown):  # the run checks
        fields = {"o_parts": o_parts, "lse_parts": lse_parts, **made}
        if sinks is not None:
            fields["sinks"] = sinks
        fake.examine(COMBINE, fields, padded=False)
    return tuple(o_parts.new_empty(shape, dtype=kind) for shape, kind in made.values())


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    o_parts, lse_parts, sinks, _ = inputs
    ctx.save_for_backward(o_parts, lse_parts, sinks, output[1])


def _backward(
    ctx: Any, dout: Tensor, dlse: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, None]:
    """With wᵢ = exp(lseᵢ − lse) and Dᵢ = dout · oᵢ: doᵢ = wᵢ · dout, dlseᵢ = wᵢ · (dlse + Dᵢ −
    Σ wⱼ · Dⱼ); of a sink, a part whose o is 0, the same summed over rows."""
    o_parts, lse_parts, sinks, lse = ctx.saved_tensors
    hidden = lse_parts == -torch.inf
    weight = (lse_parts - lse).exp().masked_fill(hidden, 0)
    by_row = weight.transpose(-1, -2).unsqueeze(-1)
    dout = dout.float()
    shown = o_parts.float().masked_fill(hidden.transpose(-1, -2).unsqueeze(-1), 0)
    terms = (shown * dout).sum(-1).transpose(-1, -2)
    of_row = dlse - (weight * terms).sum(0)
    dlse_parts = weight * (terms + of_row)
    dsinks = None
    if sinks is not None and ctx.needs_input_grad[2]:
        given = sinks.float()[:, None]
        of_sink = (given - lse).exp().masked_fill(lse == -torch.inf, 0) * of_row
        dsinks = of_sink.sum(-1).reshape(-1, sinks.shape[0]).sum(0).to(sinks.dtype)
    return (by_row * dout).to(o_parts.dtype), dlse_parts, dsinks, None


torch.library.register_autograd("fa3::combine", _backward, setup_context=_save, lib=library)


class _Transformed(torch.autograd.Function):
    """The same in the form that torch.func needs, which knows no gradients of operators."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        return _differentiable(*arguments)

    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)


def _differentiable(*arguments: Any) -> tuple[Tensor, Tensor]:
    inside = transform()
    if inside is not None and inside.key() == torch._C._functorch.TransformType.Grad:
        return _Transformed.apply(*arguments)
    return torch.ops.fa3.combine(*arguments)
