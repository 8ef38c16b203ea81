// SPDX-License-Identifier: BSD-3-Clause
// merge.h — attention over parts of a row's keys, as a thread adds up the columns that it has:
//   LSE = ln Σ exp(LSEᵢ),   O = Σ exp(LSEᵢ − LSE)·Oᵢ
// Weights are relative to the largest LSE so far, and change when a larger one comes. The order of
// parts, and how many are added at a time, decide the bits.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/ptx/vec.h"

namespace fa3 {

// exp(lse − most), 0 where both are −inf.
FA3_DEV float merge_weight(float lse, float most) {
  return ptx::ex2((lse - (most == -kInf ? 0.f : most)) * kLog2e);
}

// Adds parts to sums of columns, four neighbours each. A part that does not exist, or saw no key,
// has an LSE of −inf and x = 0.
template <u32 kParts, int kFours>
FA3_DEV void merge_parts(ptx::Vec<float, 4> (&o)[kFours], float& most, float& sum,
                         const float (&lse)[kParts],
                         const ptx::Vec<float, 4> (&x)[kParts][kFours]) {
  float grown = most;
  FA3_UNROLL
  for (u32 u = 0; u < kParts; ++u) grown = ptx::max_nan(grown, lse[u]);
  const float scale = merge_weight(most, grown);
  most = grown;
  sum *= scale;
  FA3_UNROLL
  for (int c = 0; c < kFours; ++c) {
    FA3_UNROLL
    for (int n = 0; n < 4; ++n) o[c][n] *= scale;
  }
  FA3_UNROLL
  for (u32 u = 0; u < kParts; ++u) {
    const float of_part = merge_weight(lse[u], most);
    sum += of_part;
    FA3_UNROLL
    for (int c = 0; c < kFours; ++c) {
      FA3_UNROLL
      for (int n = 0; n < 4; ++n) o[c][n] = ptx::fma(of_part, x[u][c][n], o[c][n]);
    }
  }
}

}  // namespace fa3
