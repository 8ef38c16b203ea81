/* SPDX-License-Identifier: BSD-3-Clause
 * quantize.h — from tensors of 16 or 32 bits to the codes, scales and offsets of 8-bit attention.
 * Part of fa3.h, which includes it.
 *
 * For each row x of a head:
 *   y = H·S·R·x     R rotary embedding, S signs from a seed, H a Hadamard transform in blocks
 *   μ = mean of y over the rows of the sequence, column by column        (only with `offset`)
 *   code = round((y − μ) / scale),  scale = max(max |y − μ| of the block, 2^-100) / 448 (E4M3) or
 *                                   / 127 (I8)
 * S and H spread an outlier over the columns of its block, so that the scale of the others need not
 * grow for it. H·S has orthonormal rows: q·k stays what it was where q and k are turned alike, with
 * equal hadamard, seed, rotary_layout and width of the tables. V is not to be turned: O would be.
 * Source: FlashAttention-3 §3.3 (incoherent processing), QuIP.
 *
 *   Rotary    row i of sequence b stands at position t = rotary_position[b] + i. Columns a and b of
 *             a pair become a·cos[t] − b·sin[t] and b·cos[t] + a·sin[t]. Columns beyond the tables'
 *             are left alone.
 *   Signs     the same for both columns of a rotary pair.
 *   H         Sylvester's matrix of ±1 over √hadamard, on each block of `hadamard` columns.
 *   Mean      over the finite y of the rows that count, also of keys that a mask or ids hide from
 *             some query, or from all: end padding by seqused or cu_seqlens. Without `offset`,
 *             codes of a block depend on that block only. Pass it on as k_offset or v_offset,
 *             unchanged.
 *   Blocks    as in fa3_forward_args: the shape of `scale` and `block`. A block of zeros has scale
 *             1, as have blocks without rows.
 *   Image     of codes of F8_E4M3, for the V of a forward on a Hopper GPU: transposed, in tiles of
 *             tile_kv keys × columns bytes, (batch, heads, ⌈seqlen/tile_kv⌉, tile_kv, columns) or
 *             varlen (heads, ⌊total/tile_kv⌋ + batch, tile_kv, columns), dense. tile_kv is a
 *             multiple of 32 up to 256, and so is columns, at least head_dim; which ones a forward
 *             takes, fa3_plan_v_image says. Order of bytes: v_image_layout. Rows that do
 *             not count are 0 in tiles with some that do; other tiles are left alone.
 *   NaN, Inf  in a row of x are in all columns of its Hadamard block and, with rotary tables, of
 *             its partner's. E4M3 codes are NaN there. I8
 *             has no such code: the scale of the block is NaN, which makes all its rows NaN in a
 *             forward, or is refused where the forward checks scales. Other blocks do not notice.
 *   Numbers   in FP32, on the reference backend in FP64. Codes round to nearest, ties to even. On a
 *             GPU the sum of 512 rows must not overflow FP32 where a mean is subtracted.
 */
#ifndef FA3_QUANTIZE_H_
#define FA3_QUANTIZE_H_

#include <fa3/fa3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which columns rotary embedding pairs: i and i + rotary_dim / 2 (GPT-NeoX, Llama), or 2i and
 * 2i + 1 (GPT-J). */
typedef enum fa3_rotary_layout { FA3_ROTARY_HALVES = 0, FA3_ROTARY_PAIRS = 1 } fa3_rotary_layout;

/* x, codes and scale are required. Head dims are 1…512. */
typedef struct fa3_quantize_args {
  size_t struct_size;         /* sizeof(fa3_quantize_args) */
  fa3_tensor x;               /* in:  F32, F16 or BF16, (batch, seqlen, heads, head_dim) or varlen
                                 (total, heads, head_dim) */
  fa3_tensor codes;           /* out: F8_E4M3 or I8, shape of x */
  fa3_tensor scale;           /* out: F32, a shape of fa3.h, "8 bits" */
  fa3_tensor offset;          /* out, optional: F32, (batch, heads, head_dim): means taken off */
  fa3_tensor cu_seqlens;      /* in: I32, (batch + 1), dense; required by varlen x */
  fa3_tensor seqused;         /* in, optional: I32, (batch), dense: how many rows count */
  fa3_tensor rotary_cos;      /* in, both or neither: (positions, rotary_dim / 2), F32, F16, BF16 */
  fa3_tensor rotary_sin;      /* in: the same shape and type */
  fa3_tensor rotary_position; /* in, optional: I32, (batch), dense: position of the first row */
  int64_t max_seqlen;         /* varlen: upper bound of the sequences' lengths; 0 = total, as is
                                 more; dense: no meaning */
  fa3_scale_block block;      /* of scale */
  int32_t rotary_layout;      /* fa3_rotary_layout */
  int32_t hadamard;           /* columns that are turned together: 0 = off, else a power of two that
                                 divides head_dim */
  uint64_t seed;              /* of the signs */
  fa3_tensor v_image;         /* out, optional: F8_E4M3, the codes again, as above */
  int32_t v_image_layout;     /* fa3_v_image_layout; 0 without v_image */
  int32_t v_image_reserved;   /* must be 0 */
} fa3_quantize_args;

/* As fa3_plan_forward, for fa3_plan_run with an fa3_quantize_args. Every element of the outputs is
 * written, codes 0 in rows that do not count, but for the tiles of v_image that are left alone (see
 * Image). On the backends cuda and sim head dims are multiples of 16 up to 256, rotary_dim a
 * multiple of 16, addresses and strides of x and of the tables are multiples of 16 bytes, of codes
 * of 8, with v_image 16 as its address; else UNSUPPORTED. The backend reference writes no image. */
FA3_API fa3_status fa3_plan_quantize(fa3_context* context, const fa3_quantize_args* args,
                                     fa3_plan** plan);

/* Plan and run in one call, as fa3_forward. */
FA3_API fa3_status fa3_quantize(fa3_context* context, const fa3_quantize_args* args, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FA3_QUANTIZE_H_ */
