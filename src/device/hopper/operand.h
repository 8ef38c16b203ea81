// SPDX-License-Identifier: BSD-3-Clause
// operand.h — an accumulator as A operand of the next GEMM, so that P = softmax(S) never leaves
// the registers.
#pragma once

#include "device/hopper/swizzle.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/matrix.h"
#include "device/ptx/mma_types.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/fragment.h"

namespace fa3 {

// The first of the consecutive accumulators that register r of step s holds: 2 of 16 bits, 16
// columns a step, and each thread already holds those it needs.
FA3_HD constexpr int operand16_source(int s, int r) { return 8 * s + 2 * r; }

// The same for FP8 in permuted order: 2 here and 2 at +4, 32 columns a step.
FA3_HD constexpr int operand8_source(int s, int r) { return 16 * s + 8 * (r / 2) + 2 * (r % 2); }

template <MmaType kType>
FA3_DEV u32 pack16(float low, float high) {
  static_assert(size_of(kType) == 2, "pack16: F16 or BF16");
  return kType == MmaType::kF16 ? ptx::pack_f16(low, high) : ptx::pack_bf16(low, high);
}

// 16-bit types.
template <MmaType kType, int N, int kSteps>
FA3_DEV void to_operand16(ptx::AFrag (&a)[kSteps], const ptx::Acc<N>& acc) {
  static_assert(16 * kSteps == N, "to_operand16: one operand per 16 columns of the accumulator");
  FA3_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    FA3_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int i = operand16_source(s, r);
      a[s][r] = pack16<kType>(acc[i], acc[i + 1]);
    }
  }
}

// Step s of it.
template <MmaType kType, int N>
FA3_DEV ptx::Vec<u32, 4> operand16(const ptx::Acc<N>& acc, int s) {
  ptx::Vec<u32, 4> packed;
  FA3_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int i = operand16_source(s, r);
    packed[r] = pack16<kType>(acc[i], acc[i + 1]);
  }
  return packed;
}

// The same into shared memory, as panels of `rows` rows; this warpgroup's 64 begin at `to`. Only
// columns [begin, end), from the panel that begins there on.
template <MmaType kType, Swizzle kSwizzle, int N>
FA3_DEV void store_operand16(u8* to, const ptx::Acc<N>& acc, u32 rows, u32 begin = 0, u32 end = N,
                             Where where = Where::here()) {
  static_assert(N % 16 == 0, "store_operand16: whole matrices of 16 columns");
  constexpr u32 kWidth = static_cast<u32>(kSwizzle);
  const u32 lane = ptx::lane_index(), row = 16 * (ptx::warp_index(where) % 4) + lane % 16;
  FA3_UNROLL
  for (u32 t = 0; t < N / 16; ++t) {
    if (16 * t < begin || 16 * t >= end) continue;
    const ptx::Vec<u32, 4> packed = operand16<kType>(acc, static_cast<int>(t));
    const u32 at = 32 * t - 2 * begin;  // bytes
    u8* const panel = to + at / kWidth * (rows * kWidth);
    const u32 column = at % kWidth + lane / 16 * 16;
    ptx::stmatrix_x4(panel + panel_offset(row, column, kSwizzle), packed, where);
  }
}

// The same turned: N rows of this warpgroup's 64, a panel. `thread`: of the warpgroup.
template <MmaType kType, int N>
FA3_DEV void store_turned16(u8* to, u32 thread, const ptx::Acc<N>& acc,
                            Where where = Where::here()) {
  const u32 row = thread % 32 / 16 * 8 + thread % 8;
  const u32 column = 2 * (thread / 32 * 16 + thread / 8 % 2 * 8);  // bytes
  u8* const at = to + panel_offset(row, column, Swizzle::k128);
  FA3_UNROLL
  for (u32 t = 0; t < N / 16; ++t) {
    const ptx::Vec<u32, 4> packed = operand16<kType>(acc, static_cast<int>(t));
    ptx::stmatrix_x4_trans(at + 16 * 128 * t, packed, where);
  }
}

template <MmaType kType>
FA3_DEV u32 pack_fp8(float v0, float v1, float v2, float v3) {
  static_assert(is_fp8(kType), "pack_fp8: E4M3 or E5M2");
  return kType == MmaType::kE4m3 ? ptx::pack_e4m3(v0, v1, v2, v3) : ptx::pack_e5m2(v0, v1, v2, v3);
}

// FP8 without exchange: slot k of the GEMM's K holds column sigma(k), so the other operand must be
// stored in that order along K.
template <MmaType kType, int N, int kSteps>
FA3_DEV void to_operand8_permuted(ptx::AFrag (&a)[kSteps], const ptx::Acc<N>& acc) {
  static_assert(32 * kSteps == N, "to_operand8: one operand per 32 columns of the accumulator");
  FA3_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    FA3_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int i = operand8_source(s, r);  // in the left block of 8 columns; the right one at +4
      a[s][r] = pack_fp8<kType>(acc[i], acc[i + 1], acc[i + 4], acc[i + 5]);
    }
  }
}

// The exchange in a quad that brings 16 FP8 columns into true order. A thread packs its 4 values of
// the left and of the right 8 columns into x and y; it sends one of them to each of two partners.
struct QuadExchange {
  bool outer;      // lanes 0 and 3 of the quad send x first, the others y
  u32 from_first;  // lane of the quad to take the first from, and the second
  u32 from_second;
  u32 row0, row8;  // prmt selectors: the operand of the upper and of the lower row

  FA3_HD static constexpr QuadExchange of(u32 lane) {
    const u32 q = lane % 4;
    const bool outer = q == 0 || q == 3;
    const u32 from = q == 0 ? 0 : q == 1 ? 3 : q - 1;
    return {outer, from, from ^ 1, outer ? 0x5410u : 0x1054u, outer ? 0x7632u : 0x3276u};
  }
};

// FP8 in true order, 32 columns a step: per 16 columns two shuffles and two permutations.
template <MmaType kType, int N, int kSteps>
FA3_DEV void to_operand8(ptx::AFrag (&a)[kSteps], const ptx::Acc<N>& acc, u32 lane,
                         Where where = Where::here()) {
  static_assert(32 * kSteps == N, "to_operand8: one operand per 32 columns of the accumulator");
  const QuadExchange quad = QuadExchange::of(lane);
  FA3_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    FA3_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = 16 * s + 8 * half;
      const u32 x = pack_fp8<kType>(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
      const u32 y = pack_fp8<kType>(acc[i + 4], acc[i + 5], acc[i + 6], acc[i + 7]);
      const u32 first = ptx::shfl_idx(quad.outer ? x : y, quad.from_first, 4, ~0u, where);
      const u32 second = ptx::shfl_idx(quad.outer ? y : x, quad.from_second, 4, ~0u, where);
      a[s][2 * half] = ptx::prmt(first, second, quad.row0);
      a[s][2 * half + 1] = ptx::prmt(first, second, quad.row8);
    }
  }
}

}  // namespace fa3
