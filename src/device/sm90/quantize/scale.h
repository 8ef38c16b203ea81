// SPDX-License-Identifier: BSD-3-Clause
// scale.h — scales of blocks: from their largest values, and where they lie.
#pragma once

#include "device/sm90/quantize/hadamard.h"

namespace fa3::sm90 {

// Below this the values of a block count as this large: its scale and its reciprocal stay normal
// numbers of FP32.
inline constexpr float kLeastAmax = 0x1p-100f;

FA3_DEV constexpr float largest_code(bool to_i8) { return to_i8 ? 127.f : 448.f; }

// Of values that are at most amax in size; NaN = some are. A block of zeros has 1.
FA3_DEV float scale_of_block(float amax, bool to_i8) {
  return amax == 0 ? 1.f : ptx::max_nan(amax, kLeastAmax) / largest_code(to_i8);
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

// The scale of row i of a sequence, in the first block of columns.
FA3_DEV float* scale_of_row(const QuantizeArgs& args, const QuantizePlace& place, i32 i) {
  if (args.of_tensor) return args.scale.data;
  const i64 row = args.by_total_row ? i64{place.rows.begin} + i : block_of(args, i);
  return args.scale.data + place.b * args.scale.batch + row * args.scale.row +
         place.head * args.scale.head;
}

// Does row i write the scale of its block? The first row does, whether it counts or not: every
// scale is written.
FA3_DEV bool writes_scale(const QuantizeArgs& args, const QuantizePlace& place, i32 i) {
  if (args.of_tensor) return place.b == 0 && place.head == 0 && i == 0;
  if (args.by_total_row) return i < place.rows.rows;
  return place.b < args.batch && i < max(args.most_rows, 1) &&
         (args.block_rows == 0 ? i == 0 : i % args.block_rows == 0);
}

}  // namespace fa3::sm90
