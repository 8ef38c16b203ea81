// SPDX-License-Identifier: BSD-3-Clause
// kernel_numbers.cpp — from 64 bits and double to 32 bits and FP32.
#include "plan/kernel_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa3 {

int64_t most_rows(const SeqAxis& axis) { return std::min(axis.rows, axis.max_seqlen); }

Band32 band_of(const Problem& p) {
  if (p.mask == FA3_MASK_FULL) return {};
  const int64_t left = p.mask == FA3_MASK_WINDOW ? p.left : -1;
  const int64_t right = p.mask == FA3_MASK_WINDOW ? p.right : 0;
  const auto bound = [](int64_t keys, int64_t reach) {
    return keys < 0 || keys >= reach ? Band32::kUnbounded : static_cast<int32_t>(keys);
  };
  return {bound(left, most_rows(p.kv) - 1), bound(right, most_rows(p.q) - 1)};
}

MaskKind mask_of(const Band32& band) {
  if (band.left != Band32::kUnbounded) return MaskKind::kWindow;
  return band.right == Band32::kUnbounded ? MaskKind::kFull : MaskKind::kCausal;
}

float scale_in_fp32(double scale) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::copysign(std::clamp(std::abs(scale), kLeast, kMost), scale));
}

}  // namespace fa3
