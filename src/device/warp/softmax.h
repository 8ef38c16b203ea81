// SPDX-License-Identifier: BSD-3-Clause
// softmax.h — online softmax over the two rows of S that a thread shares with its quad: running
// maximum and sum, in the base-2 log domain. A row without a visible key so far has max = −inf and
// uses 0 as the offset of its exponents, so that P is exp2(−inf) = 0 and never −inf + inf.
#pragma once

#include "device/attn/conventions.h"
#include "device/attn/tile_range.h"
#include "device/ptx/math.h"
#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/types.h"
#include "device/warp/softmax_variant.h"

namespace fa3 {

inline constexpr float kInf = __builtin_bit_cast(float, 0x7F800000u);

inline constexpr float kLazyLog2 = 8.f;

// What the rows of O are to be multiplied by when the maximum has grown.
struct RowScale {
  float row[2];
  bool needed;  // for some row of the warp
};

// o[row] *= scale[row].
template <SoftmaxVariant kVariant, int N>
FA3_DEV void rescale_rows(ptx::Acc<N>& o, const RowScale& scale) {
  if (kVariant.lazy_rescale && !scale.needed) return;
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

  // S becomes P, unnormalised; the sum is taken before P is rounded for the second GEMM.
  // scale_log2: of scores, not negative.
  template <SoftmaxVariant kVariant, int N>
  FA3_DEV RowScale update(ptx::Acc<N>& s, float scale_log2, Where where = Where::here()) {
    float grown[2];
    row_maxima<kVariant>(grown, s, where);
    RowScale scale{{1.f, 1.f}, true};
    if constexpr (kVariant.lazy_rescale) {
      const bool more = !((grown[0] - max[0]) * scale_log2 <= kLazyLog2) ||
                        !((grown[1] - max[1]) * scale_log2 <= kLazyLog2);
      scale.needed = ptx::any(more, ~0u, where);
    }
    if (scale.needed) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        scale.row[h] = ptx::ex2(ptx::fma(max[h], scale_log2, -offset(grown[h], scale_log2)));
        max[h] = grown[h];
        sum[h] *= scale.row[h];
      }
    }
    const float offsets[2] = {offset(max[0], scale_log2), offset(max[1], scale_log2)};
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const int h = i / 2 % 2;
      s[i] = ptx::ex2(ptx::fma(s[i], scale_log2, -offsets[h]));
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
    return (offset(max[h], scale_log2) + ptx::lg2(sum[h])) * kLn2;
  }

 private:
  FA3_DEV static float offset(float max, float scale_log2) {
    return max == -kInf ? 0.f : max * scale_log2;
  }

  // Maximum over the quad, including the running one.
  template <SoftmaxVariant kVariant, int N>
  FA3_DEV void row_maxima(float (&to)[2], const ptx::Acc<N>& s, Where where) const {
    if constexpr (kVariant.integer_max) {
      integer_maxima(to, s);
      const bool negative = ptx::bits_as<i32>(to[0]) < 0 || ptx::bits_as<i32>(to[1]) < 0;
      if (ptx::any(negative, ~0u, where)) float_maxima(to, s);
    } else {
      float_maxima(to, s);
    }
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      to[h] = ptx::max(to[h], ptx::shfl_xor(to[h], 1, 32, ~0u, where));
      to[h] = ptx::max(to[h], ptx::shfl_xor(to[h], 2, 32, ~0u, where));
    }
  }
  template <int N>
  FA3_DEV void float_maxima(float (&to)[2], const ptx::Acc<N>& s) const {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      to[h] = max[h];
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += 4) to[h] = ptx::max(to[h], ptx::max(s[i], s[i + 1]));
    }
  }
  // Two chains a row, to hide the latency of each.
  template <int N>
  FA3_DEV void integer_maxima(float (&to)[2], const ptx::Acc<N>& s) const {
    const auto bits = [&](int i) { return ptx::bits_as<i32>(static_cast<float>(s[i])); };
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      i32 chain[2] = {ptx::bits_as<i32>(max[h]), ptx::bits_as<i32>(max[h])};
      FA3_UNROLL
      for (int i = 2 * h; i < N / 2; i += 4) {
        i32& m = chain[i / 4 % 2];
        m = fa3::max(m, fa3::max(bits(i), bits(i + 1)));
      }
      to[h] = ptx::bits_as<float>(fa3::max(chain[0], chain[1]));
    }
  }
};

}  // namespace fa3
