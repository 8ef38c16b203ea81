# SPDX-License-Identifier: BSD-3-Clause
"""What both families of functions need: refusals, checks of what the originals' callers pass, and
the calls of the forward and of the backward."""

import operator
from typing import Any

import torch
from torch import Tensor

import fa3
import fa3.torch
from fa3._attention import lse_shape
from fa3.torch.operators import CACHE, out_dtype

Window = tuple[int | None, int | None]


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


def sinks_of(function: str, **given: Tensor | None) -> Tensor | None:
    """Attention sinks, of which descendants of the originals and their callers have three names."""
    names = [name for name, x in given.items() if x is not None]
    if len(names) > 1:
        raise ValueError(f"{function}: {' and '.join(names)}: one argument, need one of them")
    return given[names[0]] if names else None


def window(sides: Window | None) -> Window | None:
    """fa3's, from one in which −1 or None stands for no bound."""
    if sides is None:
        return None
    try:  # any pair: callers pass tuples, lists and tensors
        left, right = (None if side is None or side < 0 else side for side in sides)
    except (TypeError, ValueError):
        raise ValueError(
            f"window_size: {sides!r}, need (left, right), −1 or None for no bound"
        ) from None
    return None if left is None and right is None else (left, right)


# ---- The forward --------------------------------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: Window | None,
    descales: tuple = (None,) * 3,
    out: Tensor | None = None,
    **arguments: Any,
) -> tuple[Tensor, Tensor]:
    """(out, lse). Codes of FP8 go the way without gradients, with a scale for each KV head.
    out: a tensor to write the result to, which is then returned."""
    for name in ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv"):
        if arguments.get(name) is not None:
            arguments[name] = int32(name.removesuffix("v"), arguments[name])
    arguments["window"] = window(window_size)
    cached = [name for name in (*CACHE, "k_new") if arguments.get(name) is not None]
    codes = k.dtype == torch.float8_e4m3fn
    if codes and arguments.get("k_new") is not None:
        raise NotImplementedError(
            "k: appending to a cache of FP8 is not offered yet; write codes into the cache before"
        )
    if not cached:
        for name in CACHE:
            arguments.pop(name, None)
    if out is not None:
        shape = (*q.shape[:-1], v.shape[-1])
        check("out", out, shape, out_dtype(q), q.device)
    if codes:
        result, lse = _attend_codes(q, k, v, descales, **arguments)
    else:
        for name, scale in zip("qkv", descales, strict=True):
            if scale is not None:
                raise ValueError(
                    f"{name}_descale: given with k of {k.dtype}, need torch.float8_e4m3fn"
                )
        result, lse = fa3.torch.attention(q, k, v, return_lse=True, **arguments)
    return (result if out is None else out.copy_(result)), lse


def _attend_codes(
    q: Tensor, k: Tensor, v: Tensor, descales: tuple, **arguments: Any
) -> tuple[Tensor, Tensor]:
    for name in ("deterministic", "k_new", "v_new", "cu_seqlens_new", "rotary", "rotary_layout",
                 "rotary_position"):  # fmt: skip
        arguments.pop(name, None)
    if q.dtype != torch.float8_e4m3fn:
        if descales[0] is not None:
            raise ValueError(f"q_descale: given with q of {q.dtype}, need torch.float8_e4m3fn")
    cu_seqlens = arguments.get("cu_seqlens_q")
    batch = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    scales = {
        f"{name}_scale": _scale(f"{name}_descale", scale, batch, k.shape[-2])
        for name, scale in zip("qkv", descales, strict=True)
    }
    return fa3.torch.attention_on_codes(q, k, v, return_lse=True, **scales, **arguments)


def _scale(name: str, scale: Tensor | None, batch: int, heads_kv: int) -> Tensor | None:
    if scale is None:
        return None
    need = f"need float32 ({batch}, {heads_kv}), one for each sequence and KV head"
    if not isinstance(scale, Tensor):
        raise TypeError(f"{name}: {type(scale).__name__}, {need}, as a torch.Tensor")
    shape = tuple(scale.shape)
    if scale.dtype != torch.float32 or shape != (batch, heads_kv):
        if scale.dtype != torch.float32:
            remedy = f"; pass {name}.float()"
        elif scale.numel() == 1:
            remedy = f"; pass {name}.reshape(1, 1).expand({batch}, {heads_kv})"
        elif shape == (batch,):
            remedy = f"; pass {name}[:, None].expand({batch}, {heads_kv})"
        else:
            remedy = ", of q, too"
        raise ValueError(f"{name}: {_kind(scale)}, {need}{remedy}")
    return scale


def _kind(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def check(
    name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: {type(x).__name__}, need a torch.Tensor")
    if tuple(x.shape) != tuple(shape) or x.dtype != dtype or x.device != device:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"{name}: {_kind(x)} on {x.device}, need {kind} {tuple(shape)} on {device}"
        )


def int32(name: str, lengths: Tensor) -> Tensor:
    """Lengths, or where sequences begin, of int32; torch.cumsum gives int64, which is cast."""
    if not isinstance(lengths, Tensor):
        raise TypeError(f"{name}: {type(lengths).__name__}, need a torch.Tensor of int32")
    if lengths.dtype == torch.int64:
        return lengths.to(torch.int32)
    if lengths.dtype != torch.int32:
        raise TypeError(
            f"{name}: {lengths.dtype}, need torch.int32; pass {name}.to(torch.int32)"
        )
    return lengths


def unpacked(name: str, packed: Tensor, count: int, dims: int) -> tuple[Tensor, ...]:
    """The `count` tensors that lie in one of `dims` dimensions, before heads and head_dim."""
    if packed.dim() != dims or packed.shape[-3] != count:
        rows = "batch, seqlen" if dims == 5 else "total"
        raise ValueError(
            f"{name}: shape {tuple(packed.shape)}, need ({rows}, {count}, heads, head_dim)"
        )
    return packed.unbind(-3)


def cache_of(
    lengths: Tensor | int | None,
    cache: Tensor,
    page_table: Tensor | None,
    batch_idx: Tensor | None,
    leftpad: Tensor | None,
    names: tuple[str, str, str] = ("page_table", "cache_batch_idx", "cache_leftpad"),
) -> dict[str, Tensor | None]:
    """Which rows of a cache each sequence reads, as arguments of attend. lengths: counted from the
    first row, what leftpad leaves out included; None = all rows."""
    fields = {}
    for field, name, x in zip(CACHE, names, (page_table, batch_idx, leftpad), strict=True):
        fields[field] = None if x is None else int32(name, x).contiguous()
    table, slots, begin = fields.values()
    if table is not None and (table.dim() != 2 or cache.dim() != 4):
        raise ValueError(
            f"{names[0]}: shape {tuple(table.shape)} with a cache of {cache.dim()} dimensions, "
            "need (batch, pages of a sequence) and (pages, page_size, heads, head_dim)"
        )
    batch, rows = cache.shape[:2]
    if table is not None and slots is not None:  # of rows of the table
        table = table.index_select(0, slots)
        fields |= {CACHE[0]: table, CACHE[1]: None}
    if table is not None:
        batch, rows = table.shape[0], table.shape[1] * rows
    elif slots is not None:
        batch = slots.shape[0]
    if lengths is None and (table is not None or begin is not None):
        lengths = torch.full((batch,), rows, dtype=torch.int32, device=cache.device)
    used = cached_lengths(lengths, batch, rows, cache.device)
    if begin is not None:
        used = (used - begin).clamp_min_(0)
    return {**fields, "seqused_kv": used}


def new_keys(
    function: str,
    k: Tensor | None,
    v: Tensor | None,
    rotary: tuple[Tensor | None, Tensor | None],
    interleaved: bool,
    lengths: Tensor | int | None,
    cache: dict[str, Tensor | None],
    cu_seqlens: Tensor | None = None,
    position: Tensor | None = None,
) -> dict[str, Any]:
    """What is appended to a cache, as arguments of attend. cache: what cache_of gave. lengths: as
    there, before the call. Rotary positions count from the cache's first row, what leftpad leaves
    out included."""
    if (k is None) != (v is None):
        raise ValueError(f"{function}: need both k and v, or neither")
    cos, sin = rotary
    if (cos is None) != (sin is None):
        raise ValueError(f"{function}: need both rotary_cos and rotary_sin, or neither")
    if k is None:
        if cos is not None:
            raise ValueError(
                f"{function}: rotary_cos: without k nothing is rotated; pass k and v"
            )
        return {}
    if lengths is None:
        raise ValueError(f"{function}: cache_seqlens: None beside k, need the lengths before it")
    found: dict[str, Any] = {"k_new": k, "v_new": v}
    if cu_seqlens is not None:
        found["cu_seqlens_new"] = int32("cu_seqlens_k_new", cu_seqlens)
    if cos is None:
        return found
    if position is not None:
        position = int32("rotary_seqlens", position).contiguous()
    elif cache.get("kv_begin") is not None:
        position = cache["seqused_kv"] + cache["kv_begin"]
    return found | {
        "rotary": (cos, sin),
        "rotary_layout": "pairs" if interleaved else "halves",
        "rotary_position": position,
    }


def varlen_cache(
    cache: Tensor,
    page_table: Tensor | None,
    cu_seqlens_k: Tensor | None,
    seqused_k: Tensor | None,
    name: str,
) -> dict[str, Tensor | None]:
    """Of varlen queries whose keys may be in pages: cu_seqlens_k then gives lengths alone."""
    if page_table is None:
        return {"cu_seqlens_kv": cu_seqlens_k, "seqused_kv": seqused_k}
    if seqused_k is None and cu_seqlens_k is not None:
        seqused_k = int32("cu_seqlens_k", cu_seqlens_k).diff()
    names = (name, "kv_batch_idx", "leftpad_k")
    return cache_of(seqused_k, cache, page_table, None, None, names)


def cached_lengths(
    cache_seqlens: Tensor | int | None, batch: int, rows: int, device: torch.device
) -> Tensor | None:
    """How many rows of each of `batch` sequences count, of the `rows` that there are."""
    if cache_seqlens is None:
        return None
    if isinstance(cache_seqlens, Tensor):
        whole = cache_seqlens.dtype in (torch.int32, torch.int64)
        if whole and cache_seqlens.dim() == 0:
            cache_seqlens = cache_seqlens.expand(batch)
        if whole and tuple(cache_seqlens.shape) == (batch,):
            return int32("cache_seqlens", cache_seqlens).contiguous()
    elif isinstance(cache_seqlens, int) and not isinstance(cache_seqlens, bool):
        # Before operator.index, which would fix the value of a compiled graph.
        if 0 <= cache_seqlens <= rows:
            return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)
    elif not isinstance(cache_seqlens, bool):
        try:  # NumPy's numbers, and its arrays of no dimensions
            return cached_lengths(operator.index(cache_seqlens), batch, rows, device)
        except TypeError:
            pass
    need = (
        f"need int32 ({batch}) in a torch.Tensor, or a whole number from 0 to {rows}, the cache's "
        "length"
    )
    if isinstance(cache_seqlens, Tensor):
        raise ValueError(f"cache_seqlens: {_kind(cache_seqlens)}, {need}")
    if isinstance(cache_seqlens, int) and not isinstance(cache_seqlens, bool):
        raise ValueError(f"cache_seqlens: {cache_seqlens}, {need}")
    kind = type(cache_seqlens)
    raise TypeError(f"cache_seqlens: {kind.__module__}.{kind.__qualname__}, {need}")


# ---- The backward -------------------------------------------------------------------------------

# torch.ops.fa3.backward has no defaults; what is not named below is left out.
_LEFT_OUT = {
    a.name: {"bool": False, "int": 0, "SymInt": 0}.get(str(a.type))
    for a in torch.ops.fa3.backward.default._schema.arguments
}


def differentiate(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    gradients: tuple[Tensor | None, Tensor | None, Tensor | None],
    *,
    causal: bool,
    window_size: Window,
    softmax_scale: float | None,
    softcap: float,
    deterministic: bool,
    **arguments: Any,
) -> Tensor:
    """Writes gradients of q, k and v into those of `gradients` that are not None. out, softmax_lse:
    not necessarily of this k and v alone: of all parts of a sequence whose keys are spread.

    Returns softmax_d, the sums of dout · out over head_dim: float32 (batch, heads, seqlen_q), or
    (heads, total_q).
    """
    if q.dtype == torch.float8_e4m3fn:
        raise NotImplementedError(f"q: {q.dtype} has no gradients; pass 16-bit tensors")
    if softmax_scale == 0:
        raise ValueError("softmax_scale: 0, need another number, or None for 1/√head_dim")
    for name, x, like in zip(("dq", "dk", "dv"), gradients, (q, k, v), strict=True):
        if x is not None:
            check(name, x, like.shape, like.dtype, like.device)
    shape = (*q.shape[:-1], v.shape[-1])
    check("dout", dout, shape, q.dtype, q.device)
    check("out", out, shape, q.dtype, q.device)
    check("softmax_lse", softmax_lse, lse_shape(tuple(q.shape)), torch.float32, q.device)
    for name in ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv"):
        if arguments.get(name) is not None:
            arguments[name] = int32(name.removesuffix("v"), arguments[name])
    for name in ("max_seqlen_q", "max_seqlen_kv"):
        longest = arguments.get(name)
        if isinstance(longest, Tensor):  # in a compiled graph it is left out, since it is a bound
            arguments[name] = None if torch.compiler.is_compiling() else operator.index(longest)
    sides = window(window_size)
    if sides is not None:
        left, right = sides
        arguments["left"] = -1 if left is None else left
        arguments["right"] = 0 if causal else -1 if right is None else right
        causal = False
    needs = [x is not None for x in gradients]
    with torch.no_grad():
        if any(needs):
            given = _LEFT_OUT | arguments
            given.update(
                dout=dout, q=q, k=k, v=v, out=out, lse=softmax_lse.contiguous(), causal=causal,
                softmax_scale=softmax_scale, softcap=softcap, needs_q=needs[0], needs_k=needs[1],
                needs_v=needs[2],
                deterministic=deterministic or torch.are_deterministic_algorithms_enabled(),
            )  # fmt: skip
            for x, found in zip(gradients, torch.ops.fa3.backward(**given)[:3], strict=True):
                if x is not None:
                    x.copy_(found)
        sums = dout.to(torch.float32, copy=True).mul_(out).sum(-1)
        return sums.transpose(-1, -2).contiguous()
