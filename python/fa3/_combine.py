# SPDX-License-Identifier: BSD-3-Clause
"""fa3.combine: attention over parts of the keys → attention over all of them."""

from ._arrays import Array, check_float, empty, reading_of, shape_of
from ._fa3 import Context
from ._plan import COMBINE, execute


def combine(
    o_parts: Array,
    lse_parts: Array,
    *,
    sinks: Array | None = None,
    out: Array | None = None,
    lse: Array | None = None,
    out_dtype: str | None = None,
    dtype: str | None = None,
    context: Context | None = None,
    stream: int | None = None,
) -> tuple[Array, Array]:
    """Merges what fa3.attention with return_lse gives for parts of the keys of the same queries:
    lse = ln Σ exp(lse_parts), out = Σ exp(lse_parts − lse) · o_parts.

    Args:
      o_parts: (parts, batch, seqlen, heads, head_dim), or (parts, total, heads, head_dim); any
        number of parts, any strides with a contiguous last dimension. float32, float16, bfloat16.
      lse_parts: float32 (parts, batch, heads, seqlen), or (parts, heads, total); any strides. A
        part whose lse is −inf has seen no key: its o, NaN included, is without effect.
      sinks: (heads), float32, float16, bfloat16: attention sinks, of forwards that had none.
      out, lse: arrays to write to, of the shapes of a part; None = new ones.
      out_dtype: of a new `out`; None = that of o_parts.
      dtype: what arrays of uint16 hold: "bfloat16" or "float16".
      context, stream: as in fa3.attention.

    Returns:
      out, lse. A row that no part has keys for has out 0 and lse −inf, or its
      sink.

    Raises:
      as fa3.attention.
    """
    shape = shape_of("o_parts", o_parts, (4, 5))
    written = () if out is None and lse is None else (out, lse)
    if out is None:
        check_float("out_dtype", out_dtype)
        out = empty(o_parts, shape[1:], out_dtype)
    if lse is None:
        *before, rows, heads, _ = shape[1:]
        lse = empty(o_parts, (*before, heads, rows), "float32")
    fields = {"o_parts": o_parts, "lse_parts": lse_parts, "o": out, "lse": lse, "sinks": sinks}
    execute(COMBINE, fields, reading_of(dtype), context, stream, written)
    return out, lse
