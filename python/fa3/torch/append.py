# SPDX-License-Identifier: BSD-3-Clause
"""Attention that first appends to its cache as an operator, torch.ops.fa3.append, which says that
it writes k and v."""

from typing import Any

import torch
from torch import Tensor

from .._quantize import layout_of
from . import fake
from .autograd import is_eager, transform
from .fitting import fit
from .operators import LENGTHS, attend_as, library, out_dtype

_ARGUMENTS = (
    "(Tensor q, Tensor(a!) k, Tensor(b!) v, Tensor k_new, Tensor v_new, Tensor? cu_seqlens_new, "
    "Tensor? rotary_cos, Tensor? rotary_sin, Tensor? rotary_position, int rotary_layout, "
    f"{LENGTHS})"
)
library.define(f"append{_ARGUMENTS} -> (Tensor, Tensor)")
library.define(f"append_max_logit{_ARGUMENTS} -> (Tensor, Tensor, Tensor)")
_FIELDS = (
    "k_new", "v_new", "cu_seqlens_new", "rotary_cos", "rotary_sin", "rotary_position",
    "rotary_layout",
)  # fmt: skip
_TABLES = ("rotary_cos", "rotary_sin")


def append(
    q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, v_new: Tensor | None,
    cu_seqlens_new: Tensor | None, rotary: tuple[Tensor, Tensor] | None, rotary_layout: str,
    rotary_position: Tensor | None, rest: tuple, return_max_logit: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """rest: LENGTHS. out and lse, and max_logit where it is asked for."""
    if v_new is None:
        raise ValueError("v_new: None beside k_new, need the values of the new keys")
    cos, sin = (None, None) if rotary is None else rotary
    given = (q, k, v, k_new, v_new, cos, sin)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given):
        raise NotImplementedError(
            "k_new: keys that are appended to a cache have no gradients; call under "
            "torch.no_grad(), or pass detached tensors"
        )
    arguments = (
        q, k, v, k_new, v_new, cu_seqlens_new, cos, sin, rotary_position,
        layout_of(rotary_layout) if rotary is not None else 0, *rest,
    )  # fmt: skip
    if transform() is not None or not is_eager(q, k, v, k_new, v_new, None):
        ops = torch.ops.fa3
        return (ops.append_max_logit if return_max_logit else ops.append)(*arguments)
    made = (_append_max_logit if return_max_logit else _append)(*arguments)
    for x in (k, v):
        if not x.is_inference():
            torch.autograd.graph.increment_version(x)
    return made


def _fields(given: tuple) -> dict[str, Any]:
    return {name: x for name, x in zip(_FIELDS, given, strict=True) if x is not None}


def _append(
    q: Tensor, k: Tensor, v: Tensor, *given: Any, most: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    fields = _fields(given[: len(_FIELDS)])
    if most is not None:
        fields["max_logit"] = most
    for name in ("k_new", "v_new"):
        if fields[name].shape[-1] % 8 == 0:  # else as it is: k and v are not padded
            fields[name] = fit(fields[name])
    for name in _TABLES:
        if name in fields:
            fields[name] = fields[name].contiguous()
    return attend_as(q, k, v, given[len(_FIELDS) :], fields)


def _append_max_logit(q: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    most = torch.empty(q.shape[-2], dtype=torch.float32, device=q.device)
    return *_append(q, *given, most=most), most


for _key in ("CPU", "CUDA"):
    library.impl("append", _append, _key)
    library.impl("append_max_logit", _append_max_logit, _key)


@torch.library.register_fake("fa3::append", lib=library)
def _fake(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return _made(fake.outputs(q, v, out_dtype(q)), q, k, v, given)


@torch.library.register_fake("fa3::append_max_logit", lib=library)
def _fake_max_logit(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> tuple[Tensor, ...]:
    made = fake.outputs(q, v, out_dtype(q)) | {"max_logit": ((q.shape[-2],), torch.float32)}
    return _made(made, q, k, v, given)


def _made(
    made: dict[str, tuple], q: Tensor, k: Tensor, v: Tensor, given: tuple
) -> tuple[Tensor, ...]:
    fake.check_forward(
        (q, k, v), given[len(_FIELDS) :], made, True, **_fields(given[: len(_FIELDS)])
    )
    return tuple(q.new_empty(shape, dtype=dtype) for shape, dtype in made.values())
