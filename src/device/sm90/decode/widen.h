// SPDX-License-Identifier: BSD-3-Clause
// widen.h — tiles of E4M3 keys and values from shared memory as operands A of F16, which holds
// every E4M3 number. The 64 rows of a GEMM are keys of K, or columns of V; a warp has 16 of them.
//
//   K   ldmatrix gives a thread 4 adjacent columns of a key where a step of 16 wants 2 and 2 that
//       lie 8 further on: Q's columns lie in that order instead (widened_column_pair).
//   V   ldmatrix transposes pairs of columns. A thread then has 2 keys of 2 adjacent columns, which
//       it takes for rows g and g + 8 of O: widened_o_row says which column a row is.
#pragma once

#include "device/hopper/swizzle.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/convert.h"
#include "device/ptx/matrix.h"
#include "device/ptx/mma_types.h"
#include "device/ptx/registers.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3::sm90 {

// Where pair p of a row's columns lies, counted in pairs: of each 16 columns the even pairs first.
FA3_HD constexpr u32 widened_column_pair(u32 p) { return p / 8 * 8 + p % 2 * 4 + p % 8 / 2; }

// The column of O, among a block's 64, that accumulators of a thread's first row have; those of the
// other row, 8 further on, have the next.
FA3_HD constexpr u32 widened_o_column(u32 thread) {
  return 16 * (thread / 32) + 2 * (thread % 32 / 4);
}

// Two E4M3 numbers of `codes`, the low or the high ones, as F16.
FA3_DEV u32 widened_low(u32 codes) { return ptx::e4m3x2_to_f16x2(static_cast<u16>(codes)); }
FA3_DEV u32 widened_high(u32 codes) { return ptx::e4m3x2_to_f16x2(static_cast<u16>(codes >> 16)); }

template <TileLayout kTile>
struct WidenedTile {
  static_assert(kTile.element_bytes == 1);
  static constexpr u32 kWidth = static_cast<u32>(kTile.panel_width());
  static constexpr u32 kPanel = static_cast<u32>(kTile.panel_bytes());
  static constexpr int kKeySteps = kTile.columns / 16;  // of K, 16 columns each
  static constexpr int kValueLoads = kTile.rows / 32;   // of V, 32 keys each
  static constexpr int kValueSteps = 2 * kValueLoads;   // of V, 16 keys each
  static_assert(kTile.columns % 64 == 0 && kTile.rows % kWgRows == 0);

  // Bytes from a tile's first. In a swizzled panel, rows 8 further on are at a larger address by as
  // much as without a swizzle, and another chunk of 16 bytes is an exclusive or.
  u32 of_keys, of_values;

  FA3_DEV WidenedTile(u32 warp, u32 lane)
      : of_keys(16 * kWidth * warp + panel_offset(lane % 16, lane / 16 * 16, kTile.swizzle())),
        of_values(panel_offset(lane, 16 * warp, kTile.swizzle())) {}

  // Keys [64 · block, …) of K.
  FA3_DEV void keys(ptx::AFrag (&a)[kKeySteps], const u8* tile, u32 block) const {
    FA3_UNROLL
    for (u32 c = 0; c < kKeySteps / 2; ++c) {
      const u32 column = 32 * c;
      const ptx::Vec<u32, 4> x = ptx::ldmatrix_x4(
          tile + column / kWidth * kPanel + kWgRows * kWidth * block + (of_keys ^ column % kWidth));
      FA3_UNROLL
      for (u32 h = 0; h < 2; ++h) {
        ptx::AFrag& to = a[2 * c + h];
        to[0] = widened_low(x[2 * h]), to[1] = widened_low(x[2 * h + 1]);
        to[2] = widened_high(x[2 * h]), to[3] = widened_high(x[2 * h + 1]);
      }
    }
  }

  // Columns [64 · block, …) of V as they come from shared memory.
  using Loaded = ptx::Vec<u32, 4>[kValueLoads];
  FA3_DEV void load_values(Loaded& x, const u8* tile, u32 block) const {
    const u32 column = kWgRows * block;
    FA3_UNROLL
    for (u32 i = 0; i < kValueLoads; ++i)
      x[i] = ptx::ldmatrix_x4_trans(tile + column / kWidth * kPanel + 32 * kWidth * i +
                                    (of_values ^ column % kWidth));
  }
  // A load's two steps of 16 keys.
  FA3_DEV static void values(ptx::AFrag& first, ptx::AFrag& second, const ptx::Vec<u32, 4>& x) {
    FA3_UNROLL
    for (int k = 0; k < 2; ++k) {
      // Bytes: key, column; (0, 0), (0, 1), (1, 0), (1, 1) → (0, 0), (1, 0), (0, 1), (1, 1).
      const u32 a = ptx::prmt(x[k], 0, 0x3120), b = ptx::prmt(x[2 + k], 0, 0x3120);
      first[2 * k] = widened_low(a), first[2 * k + 1] = widened_high(a);
      second[2 * k] = widened_low(b), second[2 * k + 1] = widened_high(b);
    }
  }
};

}  // namespace fa3::sm90
