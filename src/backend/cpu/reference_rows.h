// SPDX-License-Identifier: BSD-3-Clause
// reference_rows.h — rows and elements of tensors of any type as FP64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/problem.h"

namespace fa3::reference {

inline int64_t offset(const Layout& layout, int64_t b, int64_t row, int64_t head) {
  return b * layout.batch + row * layout.row + head * layout.head;
}

inline double to_double(double x) { return x; }
template <class T>
double to_double(T x) {
  return to_float(x);
}
template <class T>
T rounded(double x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return from_double<T>(x);
}

template <class T>
void load(const void* data, int64_t offset, int64_t n, double* out) {
  const T* in = static_cast<const T*>(data) + offset;
  for (int64_t c = 0; c < n; ++c) out[c] = to_double(in[c]);
}

template <class T>
void store(void* data, int64_t offset, int64_t n, const double* in) {
  T* out = static_cast<T*>(data) + offset;
  for (int64_t c = 0; c < n; ++c) out[c] = rounded<T>(in[c]);
}

// n elements of a tensor from the one at `at`.
inline void load(const Problem& p, const Buffers& x, TensorId id, int64_t at, int64_t n,
                 double* out) {
  const fa3_dtype dtype = p.layout[id].dtype;
  if (dtype == FA3_F32) load<float>(x.data[id], at, n, out);
  if (dtype == FA3_F16) load<F16>(x.data[id], at, n, out);
  if (dtype == FA3_BF16) load<Bf16>(x.data[id], at, n, out);
  if (dtype == FA3_F64) load<double>(x.data[id], at, n, out);
}

inline void store(const Problem& p, const Buffers& x, TensorId id, int64_t at, int64_t n,
                  const double* in) {
  const fa3_dtype dtype = p.layout[id].dtype;
  if (dtype == FA3_F32) store<float>(x.data[id], at, n, in);
  if (dtype == FA3_F16) store<F16>(x.data[id], at, n, in);
  if (dtype == FA3_BF16) store<Bf16>(x.data[id], at, n, in);
  if (dtype == FA3_F64) store<double>(x.data[id], at, n, in);
}

inline double element(const Problem& p, const Buffers& x, TensorId id, int64_t at) {
  double value = 0;
  load(p, x, id, at, 1, &value);
  return value;
}

// The n elements of one row of a tensor; `row` counts from the first of the tensor or batch entry.
inline void load_row(const Problem& p, const Buffers& x, TensorId id, int64_t b, int64_t row,
                     int64_t head, int64_t n, double* out) {
  load(p, x, id, offset(p.layout[id], b, row, head), n, out);
}

inline void store_row(const Problem& p, const Buffers& x, TensorId id, int64_t b, int64_t row,
                      int64_t head, int64_t n, const double* in) {
  store(p, x, id, offset(p.layout[id], b, row, head), n, in);
}

// Writes `value` to every element: rows that belong to no sequence keep it.
inline void fill(const Problem& p, const Buffers& x, TensorId id, const SeqAxis& axis,
                 int64_t heads, int64_t n, double value, double* row_of_values) {
  if (!p.layout[id].present()) return;
  std::fill_n(row_of_values, n, value);
  for (int64_t b = 0; b < (axis.varlen ? 1 : p.batch); ++b)
    for (int64_t i = 0; i < axis.rows; ++i)
      for (int64_t h = 0; h < heads; ++h) store_row(p, x, id, b, i, h, n, row_of_values);
}

}  // namespace fa3::reference
