# SPDX-License-Identifier: BSD-3-Clause
"""What the operators return of tensors without data, fake and meta, and what they refuse there:
what they refuse of tensors that have some, in the same words, since the library checks both."""

from typing import Any

import torch
from torch import Tensor

from .. import _fa3
from .._attention import PRECISIONS, lse_shape
from .._plan import BACKWARD, FORWARD
from .operators import (
    MASK,
    NUMBERS,
    OTHERS,
    READ,
    SCALE,
    SINKS,
    TENSORS,
    common,
    gradient_of_mask,
    in_cache,
    library,
    nothing,
    out_dtype,
    schedule_of,
)
from .run import READING, context

_CPU = torch.device("cpu")
# By name, as a Spec takes them; what is not here is refused as the library refuses such a tensor.
_TYPES = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "int8", "int32", "bool")
_NAMES = {getattr(torch, name): name for name in _TYPES}
_PADDED = {"q", "k", "v", "o", "dout"}
# Copied where they do not lie right.
_FITTED = {
    *_PADDED, "dlse", "attn_mask", "sinks", "q_scale", "k_scale", "v_scale", "k_offset", "v_offset",
    "o_parts", "lse_parts", "k_new", "v_new", "rotary_cos", "rotary_sin",
}  # fmt: skip


_BLOCKS = {"q_block", "k_block", "v_block"}


class Unknown(Exception):
    """A number that nobody knows before the run."""


def _number(x: Any) -> Any:
    """What a symbol is in this trace; asking for it adds no guard."""
    if isinstance(x, (torch.SymInt, torch.SymFloat)):
        node = x.node
        if not node.has_hint():
            raise Unknown
        return node.hint
    return x


def _spec(name: str, x: Tensor | tuple, device: str, padded: bool, kept: bool) -> _fa3.Spec:
    """x: a tensor, or shape and type of one that the call makes. kept: k and v are a cache."""
    shape, dtype = x if isinstance(x, tuple) else (x.shape, x.dtype)
    known = _NAMES.get(dtype)
    shown = "out" if name == "o" else name
    if known is None:
        raise TypeError(
            f"{shown}: dtype {str(dtype).removeprefix('torch.')}, need float32, float16, bfloat16, "
            "float8_e4m3fn, int8 or, where it holds lengths or ids, int32; masks also bool"
        )
    extents = [_number(n) for n in shape]
    if len(extents) > 5:
        raise ValueError(f"{shown}: {len(extents)} dimensions, need at most 5")
    strides = None
    if isinstance(x, Tensor) and (name not in _FITTED or (kept and name in ("k", "v"))):
        strides = [_number(n) for n in x.stride()]
    elif name in _PADDED and padded and not kept and extents:
        extents[-1] += -extents[-1] % 8
    return _fa3.Spec(extents, known, strides, device)


def examine(op: int, fields: dict[str, Any], padded: bool = True) -> None:
    """Refuses what the library would; Unknown where a number is known to the run alone. The first
    field says where the tensors are. padded: on a GPU, head dims are."""
    first, q = next(iter(fields.items()))
    for name, x in fields.items():
        if isinstance(x, Tensor) and x.device != q.device:
            raise ValueError(
                f"{name}: on {x.device}, need {q.device} as {first}; arrays of a call are on one "
                "device"
            )
    where = [("cpu", context(_CPU, q.dtype is torch.float64))]
    if q.device.type == "cuda" and torch.cuda.is_available():
        used = context(q.device)
        where.append((used.info()["device"], used))
    kept = in_cache(fields)
    for device, used in where:
        specs = {
            name: _spec(name, x, device, padded and device != "cpu", kept)
            if isinstance(x, (Tensor, tuple)) and name not in _BLOCKS
            else x
            for name, x in fields.items()
        }
        if device == "cpu":  # whose plans cost next to nothing
            _fa3.plan(op, specs, READING, used)
            continue
        taken, reason = _fa3.supported(op, specs, READING, used)  # compiles no kernel
        if not taken:
            raise NotImplementedError(reason)


def _known(rest: tuple) -> dict[str, Any]:
    """common() of what numbers are in this trace."""
    return common((*rest[TENSORS], *(_number(x) for x in rest[NUMBERS])))


def outputs(q: Tensor, v: Tensor, dtype: torch.dtype) -> dict[str, tuple]:
    """Shape and type of out and lse."""
    shape = tuple(q.shape)
    return {"o": ((*shape[:-1], v.shape[-1]), dtype), "lse": (lse_shape(shape), torch.float32)}


def check_forward(
    inputs: tuple[Tensor, Tensor, Tensor], rest: tuple, made: dict[str, tuple], padded: bool,
    **others: Any,
) -> None:  # fmt: skip
    """made: outputs(). padded: head dims are, on a GPU; those of codes are not."""
    *_, longest_q, longest_kv = rest[READ]
    if (rest[MASK] is not None or not padded) and not (longest_q is longest_kv is None):
        return  # columns of a mask and scales of blocks depend on them
    try:
        fields = dict(zip("qkv", inputs, strict=True))
        others |= schedule_of((*rest[TENSORS], *(_number(x) for x in rest[NUMBERS])))
        examine(FORWARD, {**fields, **made, **_known(rest), **others}, padded)
    except Unknown:  # the run checks
        pass


@torch.library.register_fake("fa3::forward", lib=library)
def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    precision, _, block = rest[OTHERS]
    made = outputs(q, v, out_dtype(q))
    others = {} if precision == "default" or block else {"precision": PRECISIONS[precision]}
    check_forward((q, k, v), rest, made, True, **others)
    return tuple(q.new_empty(shape, dtype=dtype) for shape, dtype in made.values())


@torch.library.register_fake("fa3::forward_max_logit", lib=library)
def _forward_max_logit(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    made = outputs(q, v, out_dtype(q)) | {"max_logit": ((q.shape[-2],), torch.float32)}
    check_forward((q, k, v), rest, made, True)
    return tuple(q.new_empty(shape, dtype=dtype) for shape, dtype in made.values())


@torch.library.register_fake("fa3::backward", lib=library)
def _backward(dout, dlse, q, k, v, out, lse, *rest: Any) -> tuple[Tensor, ...]:
    *needs, needs_sinks, needs_mask, needs_scale = rest[OTHERS]
    fields = {"q": q, "k": k, "v": v, "o": out, "lse": lse, "dout": out if dout is None else dout}
    if dlse is not None:
        fields["dlse"] = dlse
    gradients = [x.new_empty(x.shape if needed else 0) for x, needed in zip((q, k, v), needs)]
    of_mask = gradient_of_mask(q, rest[MASK], needs_mask)
    of_sinks = torch.empty_like(rest[SINKS]) if needs_sinks else nothing(q)
    scale = rest[SCALE]
    try:
        examine(BACKWARD, {**fields, **_known(rest)})
    except Unknown:
        pass
    of_scale = scale.new_empty(scale.shape) if needs_scale else nothing(q)
    return (*gradients, of_sinks, of_mask, of_scale)
