// SPDX-License-Identifier: BSD-3-Clause
// mma.h — the GEMM of one warp, operands and result in its registers (PTX ISA 9.7.14.5).
#pragma once

#include "device/ptx/mma_types.h"
#include "device/ptx/registers.h"
#include "device/target.h"
#include "device/types.h"

#if !FA3_GPU
#include "device/ptx/twin.h"
#endif

namespace fa3::ptx {

// mma.sync.aligned.m16n8k16.row.col.f32 (9.7.14.5.8) of F16 or BF16: D += A·B, where D is columns
// [8 · tile, …) of a warp's 16 rows of `d`, A its 16 rows of `a`, and b0, b1 rows 2(lane % 4) +
// {0, 1} and those 8 further on of column lane / 4 of B.
template <MmaType kType, int N>
FA3_DEV void mma_16x8x16(Acc<N>& d, int tile, const AFrag& a, u32 b0, u32 b1,
                         Where where = Where::here()) {
  static_assert(kType == MmaType::kF16 || kType == MmaType::kBf16, "mma_16x8x16: F16 or BF16");
#if FA3_GPU
  float* const r = d.r + 4 * tile;
  if constexpr (kType == MmaType::kF16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
#else
  float sums[4];
  u32 operand[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[4 * tile + i], operand[i] = a[i];
  twin::mma_16x8x16(kType, sums, operand, b0, b1, where);
  for (int i = 0; i < 4; ++i) d[4 * tile + i] = sums[i];
#endif
}

}  // namespace fa3::ptx
