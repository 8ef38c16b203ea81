// SPDX-License-Identifier: BSD-3-Clause
// transpose8.h — FP8 operands must be K-major, but V arrives as [kv][d]. A warp turns 16 kv × 32 d
// at a time through its registers: ldmatrix_x4_trans, transpose8_step, stmatrix_x4. The result is
// [d][kv] with both sides permuted: row n, byte k holds V[sigma(k)][tau(n)]. The kv order is the
// one that to_operand8_permuted wants; that of d is undone in the accumulator by untranspose8.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/types.h"
#include "device/warp/fragment.h"

namespace fa3 {

// Row of kv and byte of d, in the 16 × 32 block, whose address a lane gives to ldmatrix_x4_trans.
FA3_HD constexpr Place transpose8_source(u32 lane) {
  return {lane % 8 + 8 * (lane / 8 % 2), 16 * (lane / 16)};
}

// Row of d, in the block of 32 rows of 16 bytes, whose address a lane gives to stmatrix_x4.
FA3_HD constexpr u32 transpose8_target(u32 lane) {
  return 16 * (lane / 16) + tau_inverse(2 * (lane % 8) + lane / 8 % 2);
}

// prmt selectors that gather, from 2 kv of an even and an odd d each in two registers, the 4 kv of
// one.
inline constexpr u32 kGatherEven = 0x6420;
inline constexpr u32 kGatherOdd = 0x7531;

// Loaded: matrices (kv 0-7, kv 8-15) of d 0-15, then of d 16-31.
FA3_DEV ptx::Vec<u32, 4> transpose8_step(ptx::Vec<u32, 4> loaded) {
  return {ptx::prmt(loaded[0], loaded[1], kGatherEven), ptx::prmt(loaded[0], loaded[1], kGatherOdd),
          ptx::prmt(loaded[2], loaded[3], kGatherEven),
          ptx::prmt(loaded[2], loaded[3], kGatherOdd)};
}

// Columns of an accumulator whose B operand was transposed so: from order tau to the true one.
template <int N>
FA3_DEV void untranspose8(ptx::Acc<N>& acc) {
  static_assert(N % 16 == 0, "untranspose8: columns are permuted in groups of 16");
  FA3_UNROLL
  for (int i = 0; i < N / 2; i += 8) {
    FA3_UNROLL
    for (int h = 0; h < 4; h += 2) {
      const float odd = acc[i + h + 1];
      acc[i + h + 1] = acc[i + h + 4];
      acc[i + h + 4] = odd;
    }
  }
}

}  // namespace fa3
