// SPDX-License-Identifier: BSD-3-Clause
// kernel_numbers.cpp — from 64 bits and double to 32 bits and FP32.
#include "plan/kernel_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa3 {

Band exact_band_of(const Problem& p) {
  Band band;
  if (p.mask == FA3_MASK_CAUSAL) band.right = 0;
  if (p.mask == FA3_MASK_WINDOW) band.left = p.left, band.right = p.right;
  band.chunks.keys = p.attention_chunk;
  // Own chunks are no wider, which planners like to know.
  const auto within = [&](int64_t side) {
    return side < 0 || side >= band.chunks.keys ? band.chunks.keys - 1 : side;
  };
  if (band.chunks.any()) band.left = within(band.left), band.right = within(band.right);
  return band;
}

int64_t most_rows(const SeqAxis& axis) { return std::min(axis.rows, axis.max_seqlen); }

Band32 band_of(const Problem& p) {
  // No sequence that kernels take is longer.
  constexpr int64_t kMostRows = int64_t{1} << 30;
  const Band band = exact_band_of(p);
  const auto bound = [](int64_t keys, int64_t reach) {
    return keys < 0 || keys >= reach ? Band32::kUnbounded : static_cast<int32_t>(keys);
  };
  Band32 of_kernel;
  of_kernel.left = bound(band.left, most_rows(p.kv) - 1);
  of_kernel.right = bound(band.right, most_rows(p.q) - 1);
  // One chunk of all keys: hidden are those after, or for queries before them all.
  const bool one_chunk = band.chunks.keys >= most_rows(p.kv) && band.right == 0;
  if (!one_chunk)
    of_kernel.chunks = Chunks<i32>::of(static_cast<i32>(min(band.chunks.keys, kMostRows)));
  return of_kernel;
}

MaskKind mask_of(const Band32& band) {
  if (band.chunks.any()) return MaskKind::kChunk;
  if (band.left != Band32::kUnbounded) return MaskKind::kWindow;
  return band.right == Band32::kUnbounded ? MaskKind::kFull : MaskKind::kCausal;
}

float scale_in_fp32(double scale) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::copysign(std::clamp(std::abs(scale), kLeast, kMost), scale));
}

}  // namespace fa3
