// SPDX-License-Identifier: BSD-3-Clause
// scale.h — scales of blocks: from their largest values, and where they lie.
#pragma once

#include "device/sm90/quantize/hadamard.h"
#include "device/sm90/quantize/values.h"

namespace fa3::sm90 {

// Below this the values of a block count as this large: its scale and its reciprocal stay normal
// numbers of FP32.
inline constexpr float kLeastAmax = 0x1p-100f;
// As large count values that are finite and less their mean are not.
inline constexpr float kMostAmax = 0x1.fffffep127f;

// Of values that are at most amax in size; NaN = some are. A block of zeros has 1.
FA3_DEV float scale_of_block(float amax, bool to_i8) {
  return amax == 0 ? 1.f : ptx::max_nan(amax, kLeastAmax) * (to_i8 ? 1 / 127.f : 1 / 448.f);
}

// The block of rows that row i of a sequence belongs to. Lengths in device memory may be wrong: it
// is one of the tensor's.
FA3_DEV i32 block_of(const QuantizeArgs& args, i32 i) {
  return args.block_rows == 0 ? 0 : min(i / args.block_rows, args.blocks - 1);
}

// Where the maximum of a block of rows and the first block of columns lies.
FA3_DEV u32* maxima_of(const QuantizeArgs& args, const QuantizePlace& place, i32 block,
                       int col_blocks) {
  if (args.of_tensor) return args.maxima;
  const i64 head = i64{place.b} * args.heads + place.head;
  return args.maxima + (head * args.blocks + block) * col_blocks;
}

// The scales of a sequence in a head, in the first block of columns.
FA3_DEV float* scales_of(const QuantizeArgs& args, const QuantizePlace& place) {
  if (args.of_tensor) return args.scale.data;
  return args.scale.data + place.b * args.scale.batch + place.head * args.scale.head +
         (args.by_total_row ? place.rows.begin * args.scale.row : 0);
}

// Where, from there, row i of a sequence writes the scale of its block; −1: it does not. The first
// row of a block does, whether it counts or not: every scale is written.
template <QuantizeConfig kCfg>
FA3_DEV i64 scale_to_write(const QuantizeArgs& args, const QuantizePlace& place, i32 i) {
  i64 at = i;
  if constexpr (kCfg.block_rows == 1) {
    if (i >= (args.by_total_row ? place.rows.rows : args.most_rows)) return -1;
  } else {
    if (args.of_tensor) {
      return place.b == 0 && place.head == 0 && i == 0 ? 0 : -1;
    }
    const i32 rows = kCfg.block_rows > 1 ? kCfg.block_rows : args.block_rows;
    if (rows == 0 ? i > 0 : i >= args.most_rows || i % rows != 0) return -1;
    at = rows == 0 ? 0 : i / rows;
  }
  if (place.b >= args.batch && !args.by_total_row) return -1;
  return at * args.scale.row;
}

// Writes them. One of the lanes that share row i.
template <QuantizeConfig kCfg>
FA3_DEV void write_scale(const QuantizeArgs& args, const QuantizePlace& place, float* scales, i32 i,
                         const float (&amax)[kCfg.turn.col_blocks()]) {
  const i64 to = scale_to_write<kCfg>(args, place, i);
  if (to < 0) return;
  FA3_UNROLL
  for (int k = 0; k < kCfg.turn.col_blocks(); ++k)
    ptx::st_global(scales + to + k, scale_of_block(amax[k], kCfg.to_i8));
}

}  // namespace fa3::sm90
