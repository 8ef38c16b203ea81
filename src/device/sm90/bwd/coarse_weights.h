// SPDX-License-Identifier: BSD-3-Clause
// coarse_weights.h — weights of rows whose LSE is coarse (attn/coarse_lse.h), as the backward's
// consumers make them: exp(score − largest − ln Σ), where others have exp(score − LSE).
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/convert.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3::sm90 {

// P with what dS is multiplied by for softcap, 1 − tanh², in its lower bits: P and an LSE that is
// coarse do not tell tanh. Both have 12 bits then.
inline constexpr u32 kSlopeBits = (1u << 12) - 1;
FA3_DEV float with_slope(float p, float tanh) {
  const float slope = ptx::fma(-tanh, tanh, 1.f) * static_cast<float>(kSlopeBits);
  const u32 bits = static_cast<u32>(clamp(ptx::f32_to_i32(slope), 0, static_cast<i32>(kSlopeBits)));
  return ptx::bits_as<float>(p == 0 ? 0u : (ptx::bits_as<u32>(p) & ~kSlopeBits) | bits);
}
FA3_DEV float slope_of(float p) {
  return static_cast<float>(ptx::bits_as<u32>(p) & kSlopeBits) * (1.f / kSlopeBits);
}

// P of a tile that has such rows, but for what ids and the band hide: as BwdWeights::make_p()
// makes it.
template <class Parts, class Scores, class PartOf>
FA3_DEV void make_coarse_weights(const Parts& of, u32 stage, Scores& s, const PartOf& part_of) {
  using Two = typename Parts::Two;
  constexpr int kQueries = Parts::kQueries;
  const float* const rows = of.coarse_rows();
  const auto added = of.bias(stage);
  FA3_UNROLL
  for (int j = 0; j < kQueries / 8; ++j) {
    const auto load = [&](int from) {
      return ptx::ld_global(reinterpret_cast<const Two*>(rows + from + 8 * j));
    };
    const Two lse = of.load_lse(stage, j), largest = load(0), log_sum = load(kQueries);
    const auto part = part_of(j);
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) {
      float& x = s[4 * j + i];
      float tanh = x;
      const float exponent =
          (of.exponent_of(tanh, added, part, lse, j, i) - largest[i % 2]) - log_sum[i % 2];
      x = part.sees(i) ? ptx::ex2(-ptx::max_nan(-exponent, 0.f) * kLog2e) : 0.f;
      if constexpr (Parts::kSoftcap) x = with_slope(x, tanh);
    }
    if (j % 4 == 3 && j + 1 < kQueries / 8 && ptx::any(s[4 * j] < 0)) ptx::nanosleep(0);
  }
}

}  // namespace fa3::sm90
