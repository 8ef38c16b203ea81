// SPDX-License-Identifier: BSD-3-Clause
// scale_grid.h — the scales and offsets that a quantisation writes, and what a scale is made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/check_scales.h"
#include "core/problem.h"

namespace fa3 {

// The largest code: of E4M3 its largest value, of I8 that of a symmetric range.
inline constexpr double kLargestE4m3 = 448;
inline constexpr double kLargestI8 = 127;
constexpr double largest_code(fa3_dtype codes) {
  return codes == FA3_I8 ? kLargestI8 : kLargestE4m3;
}

// Below this the values of a block count as this large: its scale and its reciprocal stay normal
// numbers of FP32.
inline constexpr double kLeastAmax = 0x1p-100;

// The scale of a block whose values are at most amax in size; amax NaN = it holds a NaN.
template <class T>
T scale_of_block(T amax, fa3_dtype codes) {
  if (amax == 0) return 1;
  return std::max(amax, static_cast<T>(kLeastAmax)) / static_cast<T>(largest_code(codes));
}

// The scales of a row, which a quantisation writes; its x.data[kScale] is an output.
inline float* written(const RowScales& row) { return const_cast<float*>(row.scale); }

// Calls f(scale) for each element of the scale tensor once.
template <class F>
void for_each_scale(const Problem& p, const Buffers& x, F&& f) {
  const Layout& layout = p.layout[kScale];
  const ScaleBlock& block = p.block_of(kCodes);
  const auto blocks = [](int64_t n, int64_t size) { return size == 0 ? 1 : (n + size - 1) / size; };
  if (block.of_tensor) return f(*x.out<float>(kScale));
  const int64_t batch = block.by_total_row ? 1 : p.batch;
  const int64_t rows = block.by_total_row ? p.q.rows : blocks(p.q.max_seqlen, block.rows);
  const int64_t cols = blocks(p.head_dim_qk, block.cols);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < p.heads_q; ++h)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t c = 0; c < cols; ++c)
          f(x.out<float>(kScale)[b * layout.batch + h * layout.head + i * layout.row + c]);
}

}  // namespace fa3
