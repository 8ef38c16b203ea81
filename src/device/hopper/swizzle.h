// SPDX-License-Identifier: BSD-3-Clause
// swizzle.h — where the bytes of a tile lie in shared memory when TMA and wgmma permute its 16-byte
// chunks so that columns of rows hit different banks.
//
// A tile is cut into panels of W bytes of each row, W the swizzle's width; panels follow one
// another.
//
//   panel, W = 128      chunk (16 bytes)      0 1 2 3 4 5 6 7
//                       row 0 holds           0 1 2 3 4 5 6 7
//                       row 1                 1 0 3 2 5 4 7 6
//                       row 2                 2 3 0 1 6 7 4 5      row r: chunk XOR r % 8
#pragma once

#include "device/tensor_map.h"
#include "device/types.h"

namespace fa3 {

// The pattern is one of addresses: bits 7… of the shared address are XORed into bits 4….
FA3_HD constexpr u32 swizzled(u32 address, Swizzle swizzle) {
  const u32 mask = swizzle == Swizzle::k128  ? 7
                   : swizzle == Swizzle::k64 ? 3
                   : swizzle == Swizzle::k32 ? 1
                                             : 0;
  return address ^ (((address >> 7) & mask) << 4);
}

// Bytes after which the pattern repeats, and to which every tile and panel is aligned.
FA3_HD constexpr u32 swizzle_period(Swizzle swizzle) {
  return swizzle == Swizzle::kNone ? 16 : 8 * static_cast<u32>(swizzle);
}

// Offset of byte `column` of row `row` in a panel that starts at a period.
FA3_HD constexpr u32 panel_offset(u32 row, u32 column, Swizzle swizzle) {
  return swizzled(row * static_cast<u32>(swizzle) + column, swizzle);
}

}  // namespace fa3
