// SPDX-License-Identifier: BSD-3-Clause
// simd.h — the two inner loops of the simulator in the widest vectors of this processor.
#pragma once

#include "device/types.h"

namespace fa3::sim {

struct Simd {
  // into[i] = max(into[i], from[i]); n is a multiple of 16.
  void (*join)(u32* into, const u32* from, u32 n);
  // d[r][j] += Σ_k a[r][k]·b[k][j] in FP32, for the rows accumulated at d[r]: `rows` rows of n
  // columns (a multiple of 2), k ≤ 32 terms; a is [rows][32], b is [k][n].
  void (*multiply_add)(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k);
  void (*multiply_add_int)(i32* const* d, const i32* a, const i32* b, u32 rows, u32 n, u32 k);
};
const Simd& simd();

}  // namespace fa3::sim
