// SPDX-License-Identifier: BSD-3-Clause
// coded.cpp — values first, then the scales that their blocks need, then codes.
#include "tools/verify/coded.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa3::verify {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// visit(column, its scale, its offset) for each element of a row; without scales NULL.
template <class Visit>
void for_each_element(const Coded& x, const Index& at, const Visit& visit) {
  const fa3_tensor &t = x.codes.view, &scale = x.scale.view;
  const Places::Place& place = x.places.of(at);
  const int64_t columns = t.shape[t.rank - 1], head = at[t.rank - 2];
  const int64_t cols = x.block.cols > 0 ? x.block.cols : std::max<int64_t>(columns, 1);
  float* first = nullptr;
  if (scale.rank != 0) {
    const bool varlen = x.places.varlen();
    const Index index = scale_index(
        scale, x.block,
        {place.sequence, place.row, at[varlen ? 0 : 1], head, t.shape[t.rank - 2], varlen});
    int64_t from = 0;
    for (int d = 0; d < scale.rank; ++d) from += index[d] * scale.stride[d];
    first = static_cast<float*>(scale.data) + from;
  }
  for (int64_t c = 0; c < columns; ++c) {
    const double offset =
        x.offset.view.rank != 0 ? get(x.offset.view, {place.sequence, head, c}) : 0;
    visit(c, first == nullptr ? nullptr : first + c / cols, offset);
  }
}

}  // namespace

void fill_row(const fa3_tensor& t, void* row, double value) {
  const int64_t size = element_bytes(t.dtype);
  for (int64_t e = 0; e < t.shape[t.rank - 1]; ++e)
    encode(t.dtype, value, static_cast<std::byte*>(row) + e * size);
}

void draw_coded(const Coded& x, Random values, Random factors, double deviation) {
  const fa3_tensor& t = x.codes.view;
  std::vector<float> drawn(element_count(t));
  size_t begin = 0;
  const auto for_each_of_sequence = [&](const auto& visit) {  // visit(index, row, its values)
    begin = 0;
    for_each_row(t, [&](const Index& at, void* row) {
      if (x.places.of(at).sequence >= 0) visit(at, row, drawn.data() + begin);
      begin += t.shape[t.rank - 1];
    });
  };
  for (float& value : drawn) value = static_cast<float>(deviation * values.normal());
  // The largest of each block; NaN where there is none.
  for_each_of_sequence([&](const Index& at, void*, float* value) {
    for_each_element(x, at, [&](int64_t c, float* scale, double offset) {
      value[c] -= static_cast<float>(offset);
      if (scale != nullptr && !(*scale >= std::abs(value[c]))) *scale = std::abs(value[c]);
    });
  });
  const double largest = t.dtype == FA3_I8 ? 127 : max_finite(t.dtype);
  if (x.scale.view.rank != 0) {
    const fa3_tensor& s = x.scale.view;
    for_each_row(s, [&](const Index&, void* row) {
      for (int64_t i = 0; i < s.shape[s.rank - 1]; ++i) {
        float& scale = static_cast<float*>(row)[i];
        const double factor = 1 + 3 * factors.uniform();
        scale = static_cast<float>((scale == 0 ? 1 : scale) / largest * factor);
      }
    });
  }
  for_each_row(t, [&](const Index&, void* row) { fill_row(t, row, kNan); });
  for_each_of_sequence([&](const Index& at, void* row, const float* value) {
    for_each_element(x, at, [&](int64_t c, const float* scale, double) {
      encode(t.dtype, value[c] / (scale == nullptr ? 1.0 : *scale),
             static_cast<std::byte*>(row) + c);
    });
  });
}

}  // namespace fa3::verify
