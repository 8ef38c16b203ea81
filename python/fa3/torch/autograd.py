# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of the operators, and the way around PyTorch's dispatcher."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import fake  # noqa: F401  where a compiler or a mode looks at operators
from .operators import (
    MASK,
    NUMBERS,
    OTHERS,
    READ,
    SCALE,
    SINKS,
    TENSORS,
    backward,
    forward,
    library,
    read,
)


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    rest = inputs[3:]
    ctx.save_for_backward(*inputs[:3], *output[:2], *rest[TENSORS])
    ctx.numbers = rest[NUMBERS]


def _differentiate(ctx: Any, dout: Tensor | None, dlse: Tensor | None, run: Any) -> tuple:
    wanted = ctx.needs_input_grad
    if dout is None and dlse is None:
        return (None,) * len(wanted)
    needs = (*wanted[:3], wanted[3 + SINKS], wanted[3 + MASK], wanted[3 + SCALE])
    gradients = run(dout, dlse, *ctx.saved_tensors, *ctx.numbers, *needs)
    dq, dk, dv, of_sinks, of_mask, of_scale = (
        g if needed else None for g, needed in zip(gradients, needs, strict=True)
    )
    after = len(wanted) - 4 - SCALE  # inputs behind the scale
    return (dq, dk, dv, *(None,) * SINKS, of_sinks, of_mask, of_scale, *(None,) * after)


def _refuse_twice(ctx: Any, *gradients: Tensor) -> tuple:
    raise NotImplementedError(
        "fa3::backward: second derivatives are not offered; take torch.nn.functional."
        "scaled_dot_product_attention with torch.nn.attention.SDPBackend.MATH"
    )


torch.library.register_autograd(
    "fa3::forward",
    lambda ctx, dout, dlse: _differentiate(ctx, dout, dlse, torch.ops.fa3.backward),
    setup_context=_setup,
    lib=library,
)
torch.library.register_autograd(
    "fa3::forward_max_logit",
    lambda ctx, dout, dlse, _: _differentiate(ctx, dout, dlse, torch.ops.fa3.backward),
    setup_context=_setup,
    lib=library,
)
torch.library.register_autograd(
    "fa3::backward", _refuse_twice, setup_context=lambda ctx, inputs, output: None, lib=library
)


def refuse_forward_mode(*tensors: Tensor | None) -> None:
    """Tangents would be lost without a word."""
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "fa3.torch: forward-mode derivatives are not offered; take torch.nn.functional."
            "scaled_dot_product_attention with torch.nn.attention.SDPBackend.MATH"
        )


def refuse_gradient(name: str, x: Any) -> None:
    """Refuses an argument whose gradient would be lost without a word."""
    if getattr(x, "requires_grad", False) and torch.is_grad_enabled():
        raise ValueError(
            f"{name}: requires a gradient, which this function does not record; pass "
            f"{name}.detach()"
        )


# ---- The way around the dispatcher --------------------------------------------------------------
# An operator written in Python is slow to call where gradients are recorded: bench/python_calls.py.
# Where nothing looks at operators (no compiler, mode, transform or subclass) the same functions are
# called by a torch.autograd.Function.

_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
transform = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
_is_batched_tensor = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda x: False)
_PLAIN = (Tensor, torch.nn.Parameter)


def is_plain(x: Tensor | None) -> bool:
    return x is None or type(x) in _PLAIN


def is_eager(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, mask: Tensor | None,
    scale: Tensor | None,
) -> bool:  # fmt: skip
    return (
        not torch.compiler.is_compiling()
        and type(q) in _PLAIN
        and type(k) in _PLAIN
        and type(v) in _PLAIN
        and (sinks is None or type(sinks) in _PLAIN)
        and (mask is None or type(mask) in _PLAIN)
        and (scale is None or type(scale) in _PLAIN)
        and q.device.type != "meta"
        and _modes() == 0
        and not torch.jit.is_tracing()
    )


def _is_batched(x: Tensor | None) -> bool:
    return x is not None and _is_batched_tensor(x)


def attend(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    inside = transform()
    if inside is not None:
        # torch.func knows no gradients of operators; torch.vmap runs operators one by one.
        kinds = torch._C._functorch.TransformType
        if inside.key() in (kinds.Grad, kinds.Vmap):
            return _Transformed.apply(q, k, v, *rest)
        return torch.ops.fa3.forward(q, k, v, *rest)
    sinks, mask = rest[SINKS], rest[MASK]
    scale, cap, longest_q, longest_kv = rest[READ]
    if not (scale is cap is longest_q is longest_kv is None):  # once, not in the backward again
        numbers = read(rest[READ], rest[NUMBERS])
        rest = (*rest[:SCALE], scale, None, None, None, *numbers, *rest[OTHERS])
    if torch.is_grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (sinks is not None and sinks.requires_grad)
        or (mask is not None and mask.requires_grad)
        or (scale is not None and scale.requires_grad)
    ):
        return _Attention.apply(q, k, v, *rest)
    return forward(q, k, v, *rest)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        output = forward(*arguments)
        _setup(ctx, arguments, output)
        return output

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple:
        if torch.is_grad_enabled() or transform() is not None:
            return _differentiate(ctx, dout, dlse, _Backward.apply)
        batched = _is_batched(dout) or _is_batched(dlse)  # is_grads_batched
        return _differentiate(ctx, dout, dlse, torch.ops.fa3.backward if batched else backward)


class _Transformed(_Attention):
    """The same in the form that torch.func needs, whose calls take 30 µs more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
        return (forward if transform() is None else torch.ops.fa3.forward)(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        _setup(ctx, inputs, output)


class _Backward(torch.autograd.Function):
    """The backward, so that what differentiates it is refused in our words."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> tuple:
        return (backward if transform() is None else torch.ops.fa3.backward)(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        return _refuse_twice(ctx, *gradients)
