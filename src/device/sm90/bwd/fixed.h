// SPDX-License-Identifier: BSD-3-Clause
// fixed.h — dQ's sums as integers: additions of integers give the same bits in any order. Each row
// of dQ has a scale, a power of two, from a bound on its elements:
//
//   |dQ_ic| ≤ Σ_j |dS_ij|·|K_jc|,  |dS_ij| ≤ P_ij·(‖dO_i‖·‖V_j‖ + |δ_i|),  Σ_j P_ij ≤ 1, so
//   |dQ_ic| ≤ ‖dO_i‖·most_j(‖V_j‖·most_c|K_jc|) + |δ_i|·most_jc|K_jc|,
//
// times what an attention sink leaves of Σ_j P_ij.
//
// What is not finite cannot be an integer; it is noted in bits beside the sums (DqFlag). Rows in
// which it may turn up have a negative scale.
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

// At least the part of a row's sum that is of keys beside a sink; the difference of both to 1 is as
// coarse as LSE.
FA3_DEV float share_of_keys(float lse, float sink) {
  const float share = 1.f - ptx::ex2((sink - lse) * kLog2e);
  const float rounding = 0x1p-20f * (4.f + ptx::abs(lse));
  return ptx::min(1.f, ptx::max(0.f, share) + rounding);
}

// The scale of a row with ‖dO‖ and δ, whose P add up to `share` at most; negative where its dQ may
// hold what is not finite: dS may be beyond the type's largest.
template <MmaType kType>
FA3_DEV float scale_of_row(const KeyBound& keys, float dout_norm, float delta, float lse,
                           float share = 1.f) {
  constexpr float kLargest = kType == MmaType::kF16 ? 65504.f : 0x1.fep127f;
  const float off = ptx::abs(delta);
  const float bound = ptx::max(ptx::fma(dout_norm, keys.vk, off * keys.k) * share, kLeastFactor);
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

// What is added is not the integer itself but the bits of a float near kFixedZero, whose last place
// is worth one: an FMA rounds and converts at once. bwd_dq knows how many were added, and subtracts
// the bits of kFixedZero as often.
inline constexpr float kFixedZero = 3;

// By which x is multiplied, in units of that float. Not quite a power of two, so that no sum in
// to_fixed() is 0, which fixed_fits() could not tell.
inline constexpr float kOffPower = 0x1.000002p0f;
FA3_DEV float fixed_factor(float scale) { return ptx::abs(scale) * (kOffPower * 0x1p-22f); }

FA3_DEV float to_fixed(float x, float factor) { return ptx::fma(x, factor, kFixedZero); }

// Of the bits of several, combined by OR: whether each is in [2, 4), so that its last place is that
// of kFixedZero. Only there are the sign and all bits of the exponent but the first 0; Inf and NaN
// have others.
FA3_HD constexpr bool fixed_fits(u32 bits) { return (bits & 0xbf800000u) == 0; }

// The word to add, of a to_fixed() that may not fit: it has lost at most what FP32 loses.
FA3_DEV u32 word_of_fixed(float fixed) {
  const i32 units = ptx::f32_to_i32(ptx::fma(fixed, 0x1p22f, -kFixedZero * 0x1p22f));
  return ptx::bits_as<u32>(kFixedZero) + static_cast<u32>(units);
}

// What `words` words of elements of a row add up to.
FA3_DEV float from_fixed(u32 sum, u32 words, float unit) {
  const auto units = static_cast<i32>(sum - words * ptx::bits_as<u32>(kFixedZero));
  return static_cast<float>(units) * (unit * (2 - kOffPower));
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
