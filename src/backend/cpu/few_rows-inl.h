// SPDX-License-Identifier: BSD-3-Clause
// few_rows-inl.h — the two GEMMs for a handful of query rows (decode), per instruction set. K and V
// are read once, in place: packing them would cost more than multiplying. Bound by memory, so the
// reductions are simple. Guarded the Highway way.
#if defined(FA3_BACKEND_CPU_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FA3_BACKEND_CPU_FEW_ROWS_INL_H_
#undef FA3_BACKEND_CPU_FEW_ROWS_INL_H_
#else
#define FA3_BACKEND_CPU_FEW_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>

#include "backend/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {

// Calls f with MR, the smallest of 1, 2, 4, 6 that holds `rows`, as a constant.
template <class F>
HWY_ATTR void with_rows(int rows, F&& f) {
  if (rows <= 1) return f(std::integral_constant<int, 1>());
  if (rows <= 2) return f(std::integral_constant<int, 2>());
  if (rows <= 4) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, 6>());
}

// Rows often lie a page apart, where hardware prefetchers do not follow: ask for one early.
inline constexpr int kPrefetchRows = 16;
template <class T>
HWY_ATTR HWY_INLINE void prefetch(const T* row, int cols) {
  for (int i = 0; i < cols; i += 64 / static_cast<int>(sizeof(T))) hwy::Prefetch(row + i);
}

// c(m, j) = Σ a(m, i)·b(j, i): vectors along the head dimension, one key at a time.
template <int MR, class T>
HWY_ATTR void dot_keys(const float* a, int64_t lda, const T* b, const Rows& keys, float* c,
                       int64_t ldc) {
  const DF d;
  const int whole = keys.cols / kLanes * kLanes;
  for (int j = 0; j < keys.rows; ++j) {
    const T* key = b + keys.at(j);
    if (j + kPrefetchRows < keys.rows) prefetch(b + keys.at(j + kPrefetchRows), keys.cols);
    VF sum[MR];
    for (int m = 0; m < MR; ++m) sum[m] = hn::Zero(d);
    for (int i = 0; i < whole; i += kLanes) {
      const VF x = load(key + i);
      for (int m = 0; m < MR; ++m) sum[m] = hn::MulAdd(load(a + m * lda + i), x, sum[m]);
    }
    if (whole < keys.cols) {
      const VF x = load_first(key + whole, keys.cols - whole);
      for (int m = 0; m < MR; ++m) sum[m] = hn::MulAdd(load(a + m * lda + whole), x, sum[m]);
    }
    for (int m = 0; m < MR; ++m) c[m * ldc + j] = hn::GetLane(hn::SumOfLanes(d, sum[m]));
  }
}

// c(m, :) += Σ a(m, j)·b(j, :) over the columns from `first`, NV vectors of them; `cols` of the
// last are there.
template <int MR, int NV, class T>
HWY_ATTR void add_values(const float* a, int64_t lda, const T* b, const Rows& values, int first,
                         int cols, float* c, int64_t ldc) {
  const DF d;
  VF acc[MR][NV];
  for (int m = 0; m < MR; ++m)
    for (int n = 0; n < NV; ++n) acc[m][n] = hn::Zero(d);
  for (int j = 0; j < values.rows; ++j) {
    const T* value = b + values.at(j) + first;
    if (j + kPrefetchRows < values.rows)
      prefetch(b + values.at(j + kPrefetchRows) + first, (NV - 1) * kLanes + cols);
    VF row[NV];
    for (int n = 0; n < NV - 1; ++n) row[n] = load(value + n * kLanes);
    const T* last = value + (NV - 1) * kLanes;
    row[NV - 1] = cols == kLanes ? load(last) : load_first(last, cols);
    for (int m = 0; m < MR; ++m) {
      const VF x = hn::Set(d, a[m * lda + j]);
      for (int n = 0; n < NV; ++n) acc[m][n] = hn::MulAdd(x, row[n], acc[m][n]);
    }
  }
  for (int m = 0; m < MR; ++m) {
    for (int n = 0; n < NV; ++n) {
      float* at = c + m * ldc + first + n * kLanes;
      store(hn::Add(acc[m][n], load(at)), at);
    }
  }
}

HWY_ATTR void few_dot(int rows, const float* a, int64_t lda, const Rows& keys, float* c,
                      int64_t ldc) {
  with_type(keys.dtype, keys.data, [&](auto* b) HWY_ATTR {
    with_rows(rows, [&](auto mr) HWY_ATTR { dot_keys<mr.value>(a, lda, b, keys, c, ldc); });
  });
}

HWY_ATTR void few_add(int rows, const float* a, int64_t lda, const Rows& values, float* c,
                      int64_t ldc) {
  with_type(values.dtype, values.data, [&](auto* b) HWY_ATTR {
    with_rows(rows, [&](auto mr) HWY_ATTR {
      constexpr int kRows = decltype(mr)::value;
      int i = 0;
      for (; i + kPanel <= values.cols; i += kPanel)
        add_values<kRows, kVectors>(a, lda, b, values, i, kLanes, c, ldc);
      for (; i < values.cols; i += kLanes)
        add_values<kRows, 1>(a, lda, b, values, i, HWY_MIN(kLanes, values.cols - i), c, ldc);
    });
  });
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
