// SPDX-License-Identifier: BSD-3-Clause
// softmax.h — online softmax over the two rows of S that a thread shares with its quad: running
// maximum and sum, in the base-2 log domain. A row without a visible key so far has max = −inf and
// takes 0 as the offset of its exponents, so that they are exp2(−inf) = 0 and never −inf + inf.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/ptx/registers.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3 {

inline constexpr float kInf = __builtin_bit_cast(float, 0x7F800000u);

// What the rows of O are to be multiplied by when the maximum has grown.
struct RowScale {
  float row[2];
};

// o[row] *= scale[row].
template <int N>
FA3_DEV void operator*=(ptx::Acc<N>& o, const RowScale& scale) {
  FA3_UNROLL
  for (int i = 0; i < N / 2; ++i) o[i] *= scale.row[i / 2 % 2];
}

struct RowSoftmax {
  float max[2];  // of the scores, unscaled; the same in all threads of a quad
  float sum[2];  // of exp2((s − max)·scale_log2) over this thread's columns

  FA3_DEV void reset() {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) max[h] = -kInf, sum[h] = 0.f;
  }

  // S becomes P, unnormalised; the sum is taken before P is rounded for the second product.
  // scale_log2: of scores, not negative.
  template <int N>
  FA3_DEV RowScale update(ptx::Acc<N>& s, float scale_log2, Where where = Where::here()) {
    RowScale scale;
    float offset[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      float m = ptx::max(s[2 * h], s[2 * h + 1]);
      FA3_UNROLL
      for (int i = 4 + 2 * h; i < N / 2; i += 4) m = ptx::max(m, ptx::max(s[i], s[i + 1]));
      m = ptx::max(m, max[h]);
      m = ptx::max(m, ptx::shfl_xor(m, 1, 32, ~0u, where));
      m = ptx::max(m, ptx::shfl_xor(m, 2, 32, ~0u, where));
      offset[h] = m == -kInf ? 0.f : m * scale_log2;
      scale.row[h] = ptx::ex2(ptx::fma(max[h], scale_log2, -offset[h]));
      max[h] = m;
      sum[h] *= scale.row[h];
    }
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int h = i / 2 % 2;
      s[i] = ptx::ex2(ptx::fma(s[i], scale_log2, -offset[h]));
      sum[h] += s[i];
    }
    return scale;
  }

  // Adds up the quad's sums; then 1/sum is what O is multiplied by, and lse() may be asked.
  FA3_DEV void finish(Where where = Where::here()) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      sum[h] += ptx::shfl_xor(sum[h], 1, 32, ~0u, where);
      sum[h] += ptx::shfl_xor(sum[h], 2, 32, ~0u, where);
    }
  }

  // Natural logarithm of the row's sum of exponentials; −inf without keys.
  FA3_DEV float lse(int h, float scale_log2) const {
    const float offset = max[h] == -kInf ? 0.f : max[h] * scale_log2;
    return (offset + ptx::lg2(sum[h])) * kLn2;
  }
};

}  // namespace fa3
