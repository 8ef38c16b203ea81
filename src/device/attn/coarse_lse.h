// SPDX-License-Identifier: BSD-3-Clause
// coarse_lse.h — rows whose LSE is so large that FP32 has no room for ln Σ beside the largest
// score: padding that a mask hides by −1e9, say. exp(score − LSE) would not add up to 1 there, so
// the backward takes two words for such a row, the largest score and ln Σ, both made again from its
// scores (docs/adr/0026-rows-hidden-by-finite-numbers.md).
#pragma once

#include "device/attn/conventions.h"
#include "device/types.h"

namespace fa3 {

// From here on the weights of a row could add up to more than 1 ± 2^-14 by the rounding of LSE.
inline constexpr float kCoarseLse = 1024;

// LSE as the forward has stored it. False for a row that sees no key (−∞), and for NaN.
FA3_HD constexpr bool is_coarse(float lse) {
  const float size = lse < 0 ? -lse : lse;
  return size > kCoarseLse && size < kInf;
}

// ln Σ as the backward subtracts it after the largest score. `largest` and `log_sum` are of the
// keys of this call; an LSE that differs by more than their rounding is that of more keys (of a
// ring's other parts) and counts as it is.
FA3_HD constexpr float log_sum_of_coarse(float lse, float largest, float log_sum) {
  const float own = largest + log_sum, size = lse < 0 ? -lse : lse;
  const float difference = own < lse ? lse - own : own - lse;
  return difference <= size * 0x1p-21f ? log_sum : lse - largest;
}

}  // namespace fa3
