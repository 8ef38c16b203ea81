// SPDX-License-Identifier: BSD-3-Clause
// fixed.h — dQ's sums as integers: additions of integers give the same bits in any order. Each row
// of dQ has a scale, a power of two, from a bound on its elements:
//
//   |dQ_ic| ≤ Σ_j |dS_ij|·|K_jc|,  |dS_ij| ≤ P_ij·(‖dO_i‖·‖V_j‖ + |δ_i|),  Σ_j P_ij ≤ 1, so
//   |dQ_ic| ≤ ‖dO_i‖·most_j(‖V_j‖·most_c|K_jc|) + |δ_i|·most_jc|K_jc|.
//
// What is not finite cannot be an integer. Rows in which it may turn up have a negative scale;
// there each element is looked at, and noted in bits beside the sums (DqFlag).
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/sm90/bwd/config.h"

namespace fa3::sm90 {

// The scale maps a row's bound into [2^27, 2^28), an eighth of where a 32-bit sum wraps around. The
// factor 8 covers an LSE that is too small by up to 2 (e² < 8), as after a forward in 8 bits, whose
// P does not sum to 1.
inline constexpr i32 kFixedBits = 28;

// The least that a factor of a bound counts as: products of two would vanish else.
inline constexpr float kLeastFactor = 0x1p-126f;

// At least ‖x‖ but for rounding, of the sum of squares and the largest of at most 256 elements: the
// squares themselves may be too large or too small for FP32.
FA3_DEV float norm_of(float squares, float most) {
  const bool normal = squares >= 0x1p-80f && squares < kInf;
  return ptx::max(normal ? ptx::ex2(0.5f * ptx::lg2(squares)) : 16 * most, kLeastFactor);
}

// What the keys of a head contribute to bounds, over those whose elements are finite.
struct KeyBound {
  float vk = kLeastFactor, v = kLeastFactor, k = kLeastFactor;  // most ‖V_j‖·most|K_j|, each alone
  bool non_finite = false;  // some key has an element that is not finite

  FA3_DEV void take(float v_norm, float k_most, bool finite) {
    non_finite = non_finite || !finite;
    if (!finite) return;
    vk = ptx::max(vk, v_norm * k_most);
    v = ptx::max(v, v_norm);
    k = ptx::max(k, k_most);
  }
};

// The scale of a row with ‖dO‖ and δ, negative where its dQ may hold what is not finite: dS may be
// beyond the type's largest.
template <MmaType kType>
FA3_DEV float scale_of_row(const KeyBound& keys, float dout_norm, float delta, float lse) {
  constexpr float kLargest = kType == MmaType::kF16 ? 65504.f : 0x1.fep127f;
  const float off = ptx::abs(delta);
  const float bound = ptx::max(ptx::fma(dout_norm, keys.vk, off * keys.k), kLeastFactor);
  const bool safe = !keys.non_finite && ptx::fma(dout_norm, keys.v, off) <= kLargest &&
                    bound < kInf && lse - lse == 0;
  const auto exponent = static_cast<i32>(ptx::bits_as<u32>(bound) >> 23 & 255);
  const i32 of_scale = clamp(kFixedBits + 126 + 127 - exponent, 1, 253);
  return ptx::bits_as<float>((safe ? 0u : 1u << 31) | static_cast<u32>(of_scale) << 23);
}

// 1 / |scale|, exactly.
FA3_HD constexpr float fixed_unit(float scale) {
  return ptx::bits_as<float>((254u << 23) - (ptx::bits_as<u32>(scale) & 0x7fffffffu));
}

// x·scale as an integer, by the unit that also makes exponentials.
FA3_DEV u32 to_fixed(float x, float scale) { return static_cast<u32>(ptx::f32_to_i32(x * scale)); }

// The same without that unit: the multiple of 4096, and what is left, each as the low bits of a
// number that is large enough to have integers for its last place. What their upper bits add up to
// is 0 modulo 2^32.
FA3_DEV u32 to_fixed_by_fma(float x, float scale) {
  constexpr float kHigh = 0x1.9698p23f, kLow = 0x1.8p23f;
  static_assert(ptx::bits_as<u32>(kHigh) * 4096u + ptx::bits_as<u32>(kLow) == 0);
  const float high = ptx::fma(x, scale * 0x1p-12f, kHigh);
  const float low = ptx::fma(x, scale, ptx::fma(high, -4096.f, 4096.f * kHigh + kLow));
  return ptx::bits_as<u32>(high) * 4096u + ptx::bits_as<u32>(low);
}

// Register i of an accumulator, whose rows have the scales: both ways, so that no unit waits for
// the other. Measured: docs/tuning/bwd_sm90.md.
FA3_DEV u32 to_fixed(float x, const ptx::Vec<float, 2>& scales, int i) {
  const float scale = ptx::abs(scales[i / 2 % 2]);
  return i % 4 < 3 ? to_fixed_by_fma(x, scale) : to_fixed(x, scale);
}

// Of the four sums that are thread `thread`'s of group `group` of a tile's: +∞ or NaN is noted in
// the bits from `bit` on of a word, −∞ or NaN in those of the word kWgThreads further on.
struct DqFlag {
  u32 word, bit;

  template <BwdConfig kCfg>
  FA3_HD static constexpr DqFlag of(u32 group, u32 thread) {
    constexpr u32 kGroups = static_cast<u32>(kCfg.dq_flag_columns()) / 8;
    return {group / kGroups * (2 * kWgThreads) + thread, 4 * (group % kGroups)};
  }
};

}  // namespace fa3::sm90
