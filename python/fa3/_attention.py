# SPDX-License-Identifier: BSD-3-Clause
"""fa3.attention and fa3.attention_backward: arguments by name → the fields of the C interface."""

import operator
from typing import Any

from ._arrays import (
    Array,
    check_float,
    empty,
    extents_of,
    is_eight_bit,
    is_numpy,
    reading_of,
    shape_of,
)
from ._fa3 import Context
from ._plan import BACKWARD, FORWARD, execute
from ._quantize import V_IMAGE_SM90, Quantized, layout_of

PRECISIONS = {"default": 0, "fp8": 1, "eight_bit": 2, "eight_bit_accurate": 3}


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    seqused_q: Array | None = None,
    seqused_kv: Array | None = None,
    page_table: Array | None = None,
    kv_batch_idx: Array | None = None,
    kv_begin: Array | None = None,
    k_new: Array | None = None,
    v_new: Array | None = None,
    cu_seqlens_new: Array | None = None,
    rotary: tuple[Array, Array] | None = None,
    rotary_layout: str = "halves",
    rotary_position: Array | None = None,
    alibi_slopes: Array | None = None,
    sequence_ids_q: Array | None = None,
    sequence_ids_kv: Array | None = None,
    attn_mask: Array | None = None,
    sinks: Array | None = None,
    attention_chunk: int = 0,
    tree_mask: Array | None = None,
    top_left: bool = False,
    q_scale: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    k_offset: Array | None = None,
    v_offset: Array | None = None,
    q_block: tuple[int, int] | None = None,
    k_block: tuple[int, int] | None = None,
    v_block: tuple[int, int] | None = None,
    v_image: Array | None = None,
    num_splits: int = 0,
    sm_margin: int = 0,
    batch_invariant: bool = False,
    precision: str = "default",
    seed: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    return_lse: bool = False,
    max_logit: Array | None = None,
    out_dtype: str | None = None,
    dtype: str | tuple[str, ...] | None = None,
    context: Context | None = None,
    stream: int | None = None,
) -> Array | tuple[Array, Array]:
    """softmax(softmax_scale · q·kᵀ + mask) · v, and the logarithms of the softmax's sums.

    Args:
      q: (batch, seqlen_q, heads_q, head_dim), or (total_q, heads_q, head_dim) with cu_seqlens_q.
        Any strides with a contiguous last dimension: views of packed QKV and transposed arrays
        (batch, heads, seqlen, head_dim) need no copy. float32, float16, bfloat16; or 8-bit codes.
      k: (batch, seqlen_kv, heads_kv, head_dim) or (total_kv, …). heads_q is a multiple of
        heads_kv: query head h reads head h // (heads_q // heads_kv).
      v: as k; its head_dim may differ.
        q, k, v may be `Quantized`, what fa3.quantize returns: scales, offset and block are its own.
      causal: query i sees keys up to i + (len_kv − len_q): bottom-right aligned.
      window: (left, right): keys visible before and after that diagonal; None = all of them. Beside
        causal: those that both let through.
      softmax_scale: finite, not 0; None = 1/√head_dim.
      softcap: > 0: scores become softcap · tanh(score / softcap); 0 = off.
      cu_seqlens_q, cu_seqlens_kv: int32 (batch + 1), where each sequence begins; last its end.
      max_seqlen_q, max_seqlen_kv: with cu_seqlens: upper bounds of the lengths; None = the total.
      seqused_q, seqused_kv: int32 (batch): how many rows of each sequence count.
      page_table: int32 (batch, max_pages): k and v are (pages, page_size, heads_kv, …), and row r
        of a sequence is row r % page_size of page page_table[b, r // page_size]. With seqused_kv;
        max_seqlen_kv bounds that. Entries that no key needs may be anything.
      kv_batch_idx: int32 (batch): k and v are (slots, …), and sequence b is slot kv_batch_idx[b].
      kv_begin: int32 (batch): the keys of a sequence are the seqused_kv rows from there on, of its
        slot or pages, or of k and v (total_kv, …), where sequences may share rows.
      k_new, v_new: (batch, seqlen_new, heads_kv, …), or (total_new, …) with cu_seqlens_new, int32
        (batch + 1): first written to k and v, behind the seqused_kv rows of each sequence, which
        stays as it is; masks and positions are those of the length after.
      rotary: (cos, sin), each (positions, rotary_dim / 2): k_new and q are rotated, k_new from
        position rotary_position, int32 (batch), or seqused_kv on; q likewise where causal or
        window is given, else all of it by that position. rotary_layout: "halves" pairs columns i
        and i + rotary_dim / 2, "pairs" 2i and 2i + 1.
      alibi_slopes: float32 (heads_q) or (batch, heads_q): a score loses slope · distance.
      sequence_ids_q, sequence_ids_kv: int32, both or neither: a query sees keys of its own id.
      attn_mask: what broadcasts to (batch, heads_q, seqlen_q, seqlen_kv): bool, where False hides a
        key; or float32 or q's type, added to the scores, where −inf hides. And causal, window and
        ids. Queries without cu_seqlens_q; keys with them have max_seqlen_kv columns. On a GPU with
        16-bit tensors.
      sinks: (heads_q), float32, float16, bfloat16: a score for each head, as of a key that every
        query sees and that has no value: the row's sum gains exp(sink), unscaled. −inf: none. Not
        for parts that fa3.combine merges: it adds them, once.
      attention_chunk: ≥ 1: queries see keys of their own chunk of so many positions; 0 = all.
      tree_mask: int32 (batch, seqlen_q, 2) or (total_q, 2): drafts that branch. The last keys of a
        sequence are those of its queries, at most 64, and a query sees the j-th of them where bit
        j % 32 of its word j // 32 is set, and all keys before. Without causal, window and masks.
      top_left: causal, window, chunks, ALiBi count query i at key i, not at i + (len_kv − len_q).
      q_scale … v_block: of 8-bit codes: value = code · scale + offset. float32; shapes and blocks
        as in fa3.h, "8 bits".
      v_image: codes of v as fa3.quantize has written them for the kernel, which then does not read
        v; of another kernel's tiles it is declined.
      num_splits: on a GPU, of few queries: the most parts that a sequence's keys are computed in
        and then merged; 0 = any; 1: none, so that a row has the same bits whatever other sequences
        the call has, with the same bounds of queries and keys. sm_margin: multiprocessors that a
        GPU's persistent kernels leave free.
      batch_invariant: bits of a row depend on its own sequence and position alone, not on what
        shares the call or how many queries do, so that prefill and decode agree; on a GPU of
        16-bit arrays without attn_mask, and without num_splits.
      precision: "default", or of 16-bit arrays "fp8", "eight_bit", "eight_bit_accurate": quantised
        in the call. seed: of the random signs then.
      out: array to write to; None = a new one. lse: the same for the logarithms, float32.
        max_logit: float32 (heads_q), to which the greatest score of each head that some query sees
        is written; −inf where there is none. On a GPU of 16-bit arrays.
      return_lse: return them too.
      out_dtype: of a new `out`: None = q's; of 8-bit q bfloat16, in NumPy float32.
      dtype: what arrays of uint16 or uint8 hold: "bfloat16", "float16", "float8_e4m3fn".
      context: None = one that calls on this device share.
      stream: of CUDA arrays, as DLPack counts: 1 the legacy default stream, 2 each thread's, else a
        pointer; None = PyTorch's current stream for its tensors, else 1. The call does not wait.

    Returns:
      out, (batch, seqlen_q, heads_q, head_dim_v) or (total_q, …). With return_lse also lse, float32
      natural logarithms, (batch, heads_q, seqlen_q) or (heads_q, total_q). A query that sees no key
      has out 0 and lse −inf, or its sink.

    Raises:
      ValueError, TypeError: arguments that contradict each other, with what is needed.
      NotImplementedError: legal, but not offered by this device or build, with the reason.
      MemoryError, RuntimeError: memory ran out; CUDA or the kernel compiler failed.
    """
    fields = {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_kv": cu_seqlens_kv,
        "max_seqlen_q": max_seqlen_q,
        "max_seqlen_kv": max_seqlen_kv,
        "seqused_q": seqused_q,
        "seqused_kv": seqused_kv,
        "page_table": page_table,
        "kv_batch_idx": kv_batch_idx,
        "kv_begin": kv_begin,
        "k_new": k_new,
        "v_new": v_new,
        "cu_seqlens_new": cu_seqlens_new,
        "rotary_position": rotary_position,
        "alibi_slopes": alibi_slopes,
        "sequence_ids_q": sequence_ids_q,
        "sequence_ids_kv": sequence_ids_kv,
        "attn_mask": attn_mask,
        "sinks": sinks,
        "tree_mask": tree_mask,
        "max_logit": max_logit,
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "k_offset": k_offset,
        "v_offset": v_offset,
        "q_block": q_block,
        "k_block": k_block,
        "v_block": v_block,
        "v_image": v_image,
    }
    if rotary is not None:
        fields["rotary_cos"], fields["rotary_sin"] = rotary
        fields["rotary_layout"] = layout_of(rotary_layout)
    if type(q) is Quantized or type(k) is Quantized or type(v) is Quantized:
        q, k, v = _unpack(
            fields, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, k_offset=k_offset,
            v_offset=v_offset, q_block=q_block, k_block=k_block, v_block=v_block,
        )  # fmt: skip
    shape = shape_of("q", q)
    shape_of("k", k)
    columns = shape_of("v", v)[-1]
    how = reading_of(dtype)
    written = () if out is lse is max_logit is None else (out, lse, max_logit)
    if out is None:
        check_float("out_dtype", out_dtype)
        if out_dtype is None and is_eight_bit(q):
            out_dtype = "float32" if is_numpy(q) else "bfloat16"
        out = empty(q, (*shape[:-1], columns), out_dtype)
    fields["o"] = out
    if lse is None and return_lse:
        lse = empty(q, lse_shape(shape), "float32")
    if lse is not None:
        fields["lse"] = lse
    if k_new is not None:
        written = (*written, k, v)
    if causal or window is not None:
        _mask(fields, causal, window)
    if softmax_scale is not None:
        _scale(fields, softmax_scale)
    if softcap:
        fields["softcap"] = _number("softcap", softcap)
    if top_left:
        fields["mask_alignment"] = 1
    if attention_chunk:
        fields["attention_chunk"] = attention_chunk
    if fields["v_image"] is not None:
        fields["v_image_layout"] = V_IMAGE_SM90
    if precision != "default":
        if precision not in PRECISIONS:
            raise ValueError(f'precision: "{precision}", need one of {", ".join(PRECISIONS)}')
        fields["precision"] = PRECISIONS[precision]
    if seed:
        fields["precision_seed"] = seed
    if num_splits:
        fields["num_splits"] = num_splits
    if sm_margin:
        fields["sm_margin"] = sm_margin
    if batch_invariant:
        fields["batch_invariant"] = 1
    execute(FORWARD, fields, how, context, stream, written)
    return (out, lse) if return_lse else out


def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    seqused_q: Array | None = None,
    seqused_kv: Array | None = None,
    alibi_slopes: Array | None = None,
    sequence_ids_q: Array | None = None,
    sequence_ids_kv: Array | None = None,
    attn_mask: Array | None = None,
    sinks: Array | None = None,
    attention_chunk: int = 0,
    top_left: bool = False,
    dlse: Array | None = None,
    deterministic: bool = False,
    output_mask: tuple[bool, bool, bool] = (True, True, True),
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dattn_mask: Array | None = None,
    return_dattn_mask: bool = False,
    dsinks: Array | None = None,
    return_dsinks: bool = False,
    grad_dtype: str | None = None,
    dtype: str | tuple[str, ...] | None = None,
    context: Context | None = None,
    stream: int | None = None,
) -> tuple[Array | None, ...]:
    """Gradients of q, k and v from that of the output.

    Args:
      dout: gradient of out, of its shape.
      q, k, v, out, lse: of the forward, with return_lse; the arguments of the mask and of the
        scores as there. No 8-bit codes.
      dlse: gradient of lse, float32, of its shape; None = 0.
      deterministic: the same bits in every run of a problem; on the CPU always so.
      output_mask: which of dq, dk, dv are wanted; the others are None.
      dq, dk, dv: arrays to write to; None = new ones. dk and dv are summed over the query heads
        that share a head of k and v.
      dattn_mask: array to write the gradient of a mask that is added to; None = a new one of its
        shape, where return_dattn_mask asks for it. Summed where its extents are 1.
      dsinks: the same for the gradient of sinks, float32 or their type.
      grad_dtype: of new gradients: None = the inputs', or "float32".
      dtype, context, stream: as in fa3.attention.

    Returns:
      (dq, dk, dv), of the shapes of q, k and v; with return_dattn_mask also dattn_mask, with
      return_dsinks last dsinks.

    Raises:
      as fa3.attention.
    """
    fields = {"q": q, "k": k, "v": v, "o": out, "lse": lse, "dout": dout}
    for name in ("q", "k", "v", "out", "lse", "dout"):
        shape_of(name, fields["o" if name == "out" else name], (2, 3) if name == "lse" else (3, 4))
    check_float("grad_dtype", grad_dtype)
    written = dq, dk, dv, dattn_mask, dsinks
    wanted_q, wanted_k, wanted_v = output_mask
    if wanted_q:
        fields["dq"] = empty(q, extents_of("q", q), grad_dtype) if dq is None else dq
    if wanted_k:
        fields["dk"] = empty(k, extents_of("k", k), grad_dtype) if dk is None else dk
    if wanted_v:
        fields["dv"] = empty(v, extents_of("v", v), grad_dtype) if dv is None else dv
    if causal or window is not None:
        _mask(fields, causal, window)
    if softmax_scale is not None:
        _scale(fields, softmax_scale)
    fields.update(
        softcap=_number("softcap", softcap),
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_kv=max_seqlen_kv,
        seqused_q=seqused_q,
        seqused_kv=seqused_kv,
        alibi_slopes=alibi_slopes,
        sequence_ids_q=sequence_ids_q,
        sequence_ids_kv=sequence_ids_kv,
        attn_mask=attn_mask,
        sinks=sinks,
        attention_chunk=attention_chunk,
        mask_alignment=int(top_left),
        dlse=dlse,
        deterministic=int(deterministic),
    )
    if dattn_mask is None and return_dattn_mask:
        if attn_mask is None:
            raise ValueError(
                "attn_mask: None, need the mask whose gradient return_dattn_mask asks for"
            )
        dattn_mask = empty(attn_mask, extents_of("attn_mask", attn_mask), grad_dtype)
    if dattn_mask is not None:
        fields["dattn_mask"] = dattn_mask
    if dsinks is None and return_dsinks:
        if sinks is None:
            raise ValueError("sinks: None, need those whose gradient return_dsinks asks for")
        dsinks = empty(sinks, extents_of("sinks", sinks), grad_dtype)
    if dsinks is not None:
        fields["dsinks"] = dsinks
    execute(BACKWARD, fields, reading_of(dtype), context, stream, written)
    gradients = fields.get("dq"), fields.get("dk"), fields.get("dv")
    others = (dattn_mask,) * return_dattn_mask + (dsinks,) * return_dsinks
    return (*gradients, *others)


def lse_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the logarithms, from the shape of q."""
    return (shape[0], shape[2], shape[1]) if len(shape) == 4 else (shape[1], shape[0])


def _mask(fields: dict, causal: bool, window: tuple[int | None, int | None] | None) -> None:
    if window is None:
        fields["mask"] = 1
        return
    try:
        left, right = (-1 if side is None else operator.index(side) for side in window)
    except (TypeError, ValueError):
        raise TypeError(
            f"window: {window!r}, need a tuple (left, right) of numbers or None"
        ) from None
    if causal:  # the keys that both let through
        if right > 0 or right == -1:
            right = 0
    fields.update(mask=2, left=left, right=right)


def _scale(fields: dict, softmax_scale: float) -> None:
    if softmax_scale == 0:
        raise ValueError("softmax_scale: 0, need another number, or None for 1/√head_dim")
    fields["softmax_scale"] = _number("softmax_scale", softmax_scale)


def _number(name: str, x: Any) -> Any:
    """x, unless it is a tensor of PyTorch's whose gradient would be lost without a word."""
    if getattr(x, "requires_grad", False):
        use = "use fa3.torch, or" if name == "softmax_scale" else "pass"
        raise ValueError(
            f"{name}: requires a gradient, which this function does not record; {use} "
            f"{name}.detach()"
        )
    return x


def _unpack(fields: dict, **given: Any) -> tuple[Array, Array, Array]:
    """Codes with their scales, offsets and blocks, in place of Quantized; returns q, k and v.
    given: those arguments, which a Quantized has already."""
    for name in ("q", "k", "v"):
        tensor = fields[name]
        if type(tensor) is not Quantized:
            continue
        for part in ("scale", "offset", "block"):
            if given.get(f"{name}_{part}") is not None:
                raise ValueError(
                    f"{name}_{part}: given, but {name} is a Quantized, which has its own; pass "
                    f"{name}.codes to give others"
                )
        fields[name] = tensor.codes
        fields[f"{name}_scale"] = tensor.scale
        fields[f"{name}_block"] = tensor.block
        if tensor.offset is not None:
            if name == "q":
                raise ValueError("q: quantised with an offset, which only k and v may have")
            fields[f"{name}_offset"] = tensor.offset
        if tensor.v_image is not None:
            if name != "v":
                raise ValueError(f"{name}: quantised with an image, which only v may have")
            fields["v_image"] = tensor.v_image
    return fields["q"], fields["k"], fields["v"]
