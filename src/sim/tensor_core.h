// SPDX-License-Identifier: BSD-3-Clause
// tensor_core.h — how Hopper's tensor cores add: the sum of one wgmma step as an H200 gives it, bit
// for bit.
#pragma once

#include "device/ptx/mma_types.h"

namespace fa3::sim {

// The bits after the point that a sum keeps: 13 for FP8, 25 for the other floating types. Products
// (by the exponents of their factors) and accumulator are aligned to the largest exponent among
// them and cut toward zero there; the sum is exact, and cut again. PTX leaves all this open; the
// figures were measured on a GPU by `fa3 selftest`.
constexpr int sum_bits(MmaType type) { return is_fp8(type) ? 13 : 25; }

// d[r][j] = cut(d[r][j] + Σ_k a[r][k]·b[k][j]) for `rows` rows of n ≤ 64 columns; a is [rows][32],
// b is [k][n].
void add_step(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k, int bits);

}  // namespace fa3::sim
