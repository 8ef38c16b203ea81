# SPDX-License-Identifier: BSD-3-Clause
"""fa3.quantize: arrays of 16 or 32 bits → codes, scales and offsets of 8-bit attention."""

import operator
from typing import NamedTuple

from ._arrays import Array, empty, has_type, reading_of, shape_of
from ._fa3 import Context
from ._plan import QUANTIZE, execute

LAYOUTS = {"halves": 0, "pairs": 1}
V_IMAGE_SM90 = 1


def layout_of(rotary_layout: str) -> int:
    """fa3_rotary_layout by its name."""
    if rotary_layout not in LAYOUTS:
        raise ValueError(f'rotary_layout: "{rotary_layout}", need "halves" or "pairs"')
    return LAYOUTS[rotary_layout]


class Quantized(NamedTuple):
    """8-bit codes and what they mean: value = codes · scale + offset. fa3.attention takes it as q,
    k or v."""

    codes: Array  # float8_e4m3fn or int8, of the shape of the array that was quantised
    scale: Array  # float32: one for each block
    offset: Array | None  # float32 (batch, heads, head_dim): means that were taken off
    block: tuple[int, int]  # rows and columns that share a scale; (0, 0): one for each head
    v_image: Array | None = None  # codes of v in the order of a GPU's kernel


def quantize(
    x: Array,
    dtype: str = "float8_e4m3fn",
    *,
    block: tuple[int, int] | None = None,
    offset: bool = False,
    hadamard: int = 0,
    seed: int = 0,
    rotary: tuple[Array, Array] | None = None,
    rotary_layout: str = "halves",
    rotary_position: Array | None = None,
    cu_seqlens: Array | None = None,
    seqused: Array | None = None,
    max_seqlen: int | None = None,
    v_image: tuple[int, ...] | None = None,
    bits: str | None = None,
    context: Context | None = None,
    stream: int | None = None,
) -> Quantized:
    """Codes of 8 bits for fa3.attention.

    Args:
      x: (batch, seqlen, heads, head_dim), or (total, heads, head_dim) with cu_seqlens; float32,
        float16 or bfloat16.
      dtype: of the codes: "float8_e4m3fn" or "int8". Codes of the first are uint8 where arrays of
        x's kind have no such type: NumPy's without the package ml_dtypes, MLX's.
      block: (rows, columns) that share a scale, 0 = all; None = one scale for each head of each
        sequence; (1, 0) = one for each token.
      offset: take off each column's mean first, and return the means. Not of q.
      hadamard: columns that are turned together: 0 = off, else a power of two that divides
        head_dim. Spreads outliers; q and k must be turned alike. seed: of the random signs.
      rotary: (cos, sin), each (positions, rotary_dim / 2): rotary embedding first.
        rotary_layout: "halves" pairs columns i and i + rotary_dim / 2, "pairs" 2i and 2i + 1.
        rotary_position: int32 (batch), position of each sequence's first row; None = 0.
      cu_seqlens, seqused, max_seqlen: as in fa3.attention.
      v_image: of v only: write the codes again in the order in which a Hopper GPU's kernel loads
        them, once instead of in each attention. The shape is Plan.v_image of a fa3.Plan of that
        attention.
      bits: what an x of uint16 holds: "bfloat16" or "float16".
      context, stream: as in fa3.attention.

    Returns:
      Quantized: codes, scale, offset or None, block, v_image or None.

    Raises:
      as fa3.attention.
    """
    shape = shape_of("x", x)
    if dtype not in ("float8_e4m3fn", "int8"):
        raise ValueError(f'dtype: "{dtype}", need "float8_e4m3fn" or "int8"')
    order = layout_of(rotary_layout)
    batch, length, heads, columns = _extents(shape, cu_seqlens, max_seqlen)
    try:
        rows, cols = (0, 0) if block is None else map(operator.index, block)
    except (TypeError, ValueError):
        raise TypeError(f"block: {block!r}, need a tuple of rows and columns") from None
    per_token = rows == 1 and cols == 0 and len(shape) == 3
    if per_token:
        scales = (shape[0], heads)
    elif block is None:
        scales = (batch, heads)
    else:
        scales = (batch, heads, _blocks(length, rows), _blocks(columns, cols))
    raw = dtype == "float8_e4m3fn" and not has_type(x, dtype)
    codes = empty(x, shape, "uint8" if raw else dtype)
    fields = {
        "x": x,
        "codes": codes,
        "scale": empty(x, scales, "float32"),
        "offset": empty(x, (batch, heads, columns), "float32") if offset else None,
        "cu_seqlens": cu_seqlens,
        "seqused": seqused,
        "rotary_position": rotary_position,
        "max_seqlen": max_seqlen,
        "block": (rows, cols),
        "rotary_layout": order,
        "hadamard": hadamard,
        "seed": seed,
    }
    if rotary is not None:
        fields["rotary_cos"], fields["rotary_sin"] = rotary
    image = None
    if v_image is not None:
        image = empty(x, tuple(v_image), "uint8" if raw else dtype)
        fields.update(v_image=image, v_image_layout=V_IMAGE_SM90)
    held = (bits, "float8_e4m3fn") if bits else "float8_e4m3fn"
    execute(QUANTIZE, fields, reading_of(held), context, stream)
    return Quantized(codes, fields["scale"], fields["offset"], (rows, cols), image)


def _extents(
    shape: tuple[int, ...], cu_seqlens: Array | None, max_seqlen: int | None
) -> tuple[int, int, int, int]:
    """batch, longest sequence, heads, head_dim."""
    if len(shape) == 4:
        return shape
    if cu_seqlens is None:
        raise ValueError("cu_seqlens: None, need int32 (batch + 1) with an x of 3 dimensions")
    longest = min(max_seqlen, shape[0]) if max_seqlen else shape[0]
    return shape_of("cu_seqlens", cu_seqlens, (1,))[0] - 1, longest, shape[1], shape[2]


def _blocks(extent: int, size: int) -> int:
    return 1 if size <= 0 else -(-extent // size)
