# SPDX-License-Identifier: BSD-3-Clause
"""The operators torch.ops.fa3.forward, forward_max_logit and backward: their schemas and what they
run."""

from typing import Any

import torch
from torch import Tensor

from .._attention import PRECISIONS, lse_shape
from .._plan import BACKWARD, FORWARD
from .fitting import fit, fit_mask, in_blocks, row_major
from .run import execute

# What all operators take behind q, k and v: first tensors that are fields of the library, sinks and
# the mask last. scale, cap, longest_q and longest_kv are softmax_scale, softcap, max_seqlen_q and
# max_seqlen_kv that are tensors of one element: an operator reads them when it runs, where a
# compiler would have to know the number. They count where the number is absent (softcap: 0).
_FIELDS = (
    "cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv", "page_table", "kv_batch_idx",
    "kv_begin", "alibi_slopes", "sequence_ids_q", "sequence_ids_kv", "tree_mask", "sinks",
    "attn_mask",
)  # fmt: skip
# Of these one makes k and v a cache, which is taken as it lies.
CACHE = ("page_table", "kv_batch_idx", "kv_begin")
_TENSORS = (*_FIELDS, "scale", "cap", "longest_q", "longest_kv")
LENGTHS = ", ".join(f"Tensor? {name}" for name in _TENSORS) + (
    ", SymInt? max_seqlen_q, SymInt? max_seqlen_kv, bool causal, SymInt? left, SymInt? right, "
    "bool top_left, SymInt attention_chunk, Scalar? softmax_scale, Scalar softcap, "
    "SymInt num_splits, SymInt sm_margin, bool batch_invariant, bool deterministic"
)
library = torch.library.Library("fa3", "DEF")
library.define(
    f"forward(Tensor q, Tensor k, Tensor v, {LENGTHS}, str precision, SymInt seed, "
    "int fp8_block) -> (Tensor, Tensor)"
)
library.define(
    f"forward_max_logit(Tensor q, Tensor k, Tensor v, {LENGTHS}) -> (Tensor, Tensor, Tensor)"
)
library.define(
    "backward(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{LENGTHS}, bool needs_q, bool needs_k, bool needs_v, bool needs_sinks, bool needs_mask, "
    "bool needs_scale) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)

# Places in LENGTHS, `rest` below.
SINKS, MASK, SCALE = len(_FIELDS) - 2, len(_FIELDS) - 1, len(_FIELDS)
READ = slice(SCALE, SCALE + 4)  # scale, cap, longest_q, longest_kv
TENSORS = slice(0, READ.stop)
NUMBERS = slice(READ.stop, READ.stop + 13)
OTHERS = slice(NUMBERS.stop, None)

# What the library gets for a softmax_scale of 0, which means the default there: no score of less
# than 2^55 in size counts, and gradients times this are far from the least float.
NEXT_TO_ZERO = 2.0**-80


def in_cache(fields: dict[str, Any]) -> bool:
    return "k_new" in fields or any(name in fields for name in CACHE)


def out_dtype(q: Tensor) -> torch.dtype:
    return q.dtype if q.dtype.itemsize > 1 else torch.bfloat16


def read(tensors: tuple, numbers: tuple) -> tuple:
    """`numbers` with those that tensors hold; waits for a GPU that has them."""
    scale, cap, longest_q, longest_kv = tensors
    max_q, max_kv, *mask, softmax_scale, softcap, splits, margin, invariant, same = numbers
    if longest_q is not None and max_q is None:
        max_q = _read("max_seqlen_q", longest_q)
    if longest_kv is not None and max_kv is None:
        max_kv = _read("max_seqlen_kv", longest_kv)
    if scale is not None and softmax_scale is None:
        softmax_scale = float(_read("softmax_scale", scale))
    if cap is not None and not softcap:
        softcap = float(_read("softcap", cap))
    return max_q, max_kv, *mask, softmax_scale, softcap, splits, margin, invariant, same


def _read(name: str, x: Tensor) -> float | int:
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{name}: a tensor on {x.device}, which cannot be read while a CUDA graph is captured; "
            "pass a number, or a tensor on the CPU"
        )
    return x.item()


def common(rest: tuple) -> dict[str, Any]:
    """The library's fields of LENGTHS."""
    max_q, max_kv, causal, left, right, top_left, chunk, softmax_scale, softcap, *_ = rest[NUMBERS]
    fields = {name: x for name, x in zip(_FIELDS, rest, strict=False) if x is not None}
    if top_left:
        fields["mask_alignment"] = 1
    if chunk:
        fields["attention_chunk"] = chunk
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
        fields["softmax_scale"] = NEXT_TO_ZERO if softmax_scale == 0 else softmax_scale
    if softcap:
        fields["softcap"] = softcap
    return fields


def schedule_of(rest: tuple) -> dict[str, int]:
    """Fields of a forward alone."""
    *_, num_splits, sm_margin, batch_invariant, _ = rest[NUMBERS]
    schedule = {
        "num_splits": num_splits,
        "sm_margin": sm_margin,
        "batch_invariant": int(batch_invariant),
    }
    return {name: number for name, number in schedule.items() if number}


def fields_of(rest: tuple) -> dict[str, Any]:
    """Of a run: common() of numbers that are read and of a mask as the library takes it."""
    scale, cap, longest_q, longest_kv = rest[READ]
    if not (scale is cap is longest_q is longest_kv is None):
        rest = (*rest[TENSORS], *read(rest[READ], rest[NUMBERS]))
    fields = common(rest)
    if "attn_mask" in fields:
        fields["attn_mask"] = fit_mask(fields["attn_mask"])
    if "sinks" in fields:
        fields["sinks"] = fields["sinks"].resolve_neg().contiguous()
    return fields


def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return attend_as(q, k, v, rest[: NUMBERS.stop], {}, *rest[OTHERS])


def forward_max_logit(
    q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    most = torch.empty(q.shape[-2], dtype=torch.float32, device=q.device)
    return *attend_as(q, k, v, rest, {"max_logit": most}), most


def attend_as(
    q: Tensor, k: Tensor, v: Tensor, rest: tuple, more: dict[str, Any], precision: str = "default",
    seed: int = 0, block: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A forward with fields beyond LENGTHS."""
    fields = fields_of(rest) | schedule_of(rest) | more
    columns, columns_v = q.shape[-1], v.shape[-1]
    shape = tuple(q.shape)
    if in_cache(fields):
        q = fit(q) if columns % 8 == 0 else q.contiguous()  # not padded: k is not
    else:
        q, k, v = fit(q), fit(k), fit(v)
    q = row_major(q, fields)
    if q.shape[-1] != columns:  # padded: the scale is that of the columns that count
        fields.setdefault("softmax_scale", columns**-0.5)
    out = torch.empty((*shape[:-1], v.shape[-1]), dtype=out_dtype(q), device=q.device)
    lse = torch.empty(lse_shape(shape), dtype=torch.float32, device=q.device)
    fields.update(q=q, k=k, v=v, o=out, lse=lse)
    if block:
        fields.update(in_blocks(fields, block, execute))
    elif precision != "default":
        fields.update(precision=PRECISIONS[precision], precision_seed=seed)
    execute(FORWARD, fields, q.device)
    return (out if v.shape[-1] == columns_v else out[..., :columns_v].contiguous()), lse


def backward(
    dout: Tensor | None, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor,
    lse: Tensor, *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    *needs, needs_sinks, needs_mask, needs_scale = rest[OTHERS]
    fields = fields_of(rest)
    inputs = (q, k, v)
    columns = q.shape[-1]
    dout = torch.zeros_like(out) if dout is None else dout
    q, k, v, out, dout = (row_major(fit(x), fields) for x in (q, k, v, out, dout))
    if q.shape[-1] != columns:
        fields.setdefault("softmax_scale", columns**-0.5)
    deterministic = int(rest[NUMBERS][-1])
    fields.update(q=q, k=k, v=v, o=out, lse=lse, dout=dout, deterministic=deterministic)
    if dlse is not None:
        fields["dlse"] = dlse.contiguous()
    dtypes = [x.dtype for x in (q, k, v)]
    wanted = [*needs]
    if needs_scale:  # it is a sum over dq, which it gets before rounding to 16 bits
        wanted[0] = True
        if q.dtype.itemsize < 4:
            dtypes[0] = torch.float32
    for name, x, dtype, needed in zip(_GRADIENTS, (q, k, v), dtypes, wanted, strict=True):
        if needed:
            fields[name] = torch.empty(x.shape, dtype=dtype, device=x.device)
    of_mask = gradient_of_mask(q, rest[MASK], needs_mask)
    if needs_mask:
        fields["dattn_mask"] = of_mask
    of_sinks = nothing(q)
    if needs_sinks:
        fields["dsinks"] = of_sinks = torch.empty_like(fields["sinks"])
    if needs_mask or needs_sinks or any(wanted):
        execute(BACKWARD, fields, q.device)
    of_scale = _gradient_of_scale(fields, rest[SCALE]) if needs_scale else nothing(q)
    if fields.get("softmax_scale") == NEXT_TO_ZERO:  # 0 to the caller; NaN stays
        for name in _GRADIENTS[:2]:
            if name in fields:
                fields[name].mul_(0)
    gradients = (
        _as_input(fields[name], x) if needed else nothing(x)
        for name, x, needed in zip(_GRADIENTS, inputs, needs, strict=True)
    )
    return (*gradients, of_sinks, of_mask, of_scale)


_GRADIENTS = ("dq", "dk", "dv")


def nothing(like: Tensor) -> Tensor:
    """In place of a gradient that is not wanted."""
    return like.new_empty(0)


def gradient_of_mask(q: Tensor, mask: Tensor | None, needed: bool) -> Tensor:
    return mask.new_empty(mask.shape) if needed else nothing(q if mask is None else mask)


def _gradient_of_scale(fields: dict[str, Any], scale: Tensor) -> Tensor:
    """Σ dq∘q / softmax_scale, which is Σ dS∘(q·kᵀ): with dq = softmax_scale · dS·k, whatever mask,
    bias or softcap has made dS."""
    dq, q = fields["dq"], fields["q"]
    # Rows of no sequence and those beyond seqused have dq 0, and may hold NaN.
    terms = (dq * q).masked_fill_(dq == 0, 0)
    total = terms.sum(dtype=torch.float64) / fields["softmax_scale"]
    return total.to(device=scale.device, dtype=scale.dtype).reshape(scale.shape)


def _as_input(gradient: Tensor, x: Tensor) -> Tensor:
    """Without the columns that x was padded by, in its type."""
    if gradient.dtype is not x.dtype:
        gradient = gradient.to(x.dtype)
    return gradient if gradient.shape == x.shape else gradient[..., : x.shape[-1]].contiguous()


for _key in ("CPU", "CUDA"):
    library.impl("forward", forward, _key)
    library.impl("forward_max_logit", forward_max_logit, _key)
    library.impl("backward", backward, _key)
