// SPDX-License-Identifier: BSD-3-Clause
// few_rows-inl.h — the two GEMMs for a handful of query rows (decode), per instruction set; scores
// in few_dot-inl.h. K and V are read once, in place: packing them would cost more than multiplying.
// Guarded the Highway way.
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

// Keys and values come in chunks that stay in the first cache while all rows and columns take
// them: memory is read once, row after row. Rows of many heads lie so far apart that they share a
// few sets of that cache: it holds no more of them.
inline constexpr int kChunk = 8;
// Rows in front of the one that is read, to ask for in time; more of them push each other out.
inline constexpr int kAhead = 16;
// Dot products that are reduced together.
inline constexpr int kKeys = 4;
// Query rows at a time, where there are as many: of 32 registers or of 16.
inline constexpr int kMostDots = kVectors == 4 ? 6 : 2, kMostSums = 6;

// Rows often lie a page apart, where hardware prefetchers do not follow. The passes over a chunk
// ask for later rows, each for its part of their columns, so that memory is never idle.
struct Ahead {
  int first = 0, last = 0;  // columns

  Ahead(int cols, int parts) : last((cols + parts - 1) / parts), step_(last), cols_(cols) {}
  void next() { first = last, last = HWY_MIN(last + step_, cols_); }

 private:
  int step_, cols_;
};
template <class T>
HWY_ATTR HWY_INLINE void prefetch(const T* b, const Rows& of, int j, const Ahead& ahead) {
  if (j >= of.rows) return;
  const T* const row = b + of.at(j);
  for (int i = ahead.first; i < ahead.last; i += 64 / static_cast<int>(sizeof(T)))
    hwy::Prefetch(row + i);
}
template <class T>
HWY_ATTR HWY_INLINE void prefetch_first(const T* b, const Rows& of) {
  for (int j = 0; j < kAhead; ++j) prefetch(b, of, j, Ahead(of.cols, 1));
}

// Calls f(first row, MR) for groups of MR rows, the last of which may be more than there are; never
// more than a multiple of kTileRows in all. Returns how many.
template <int kMost, class F>
HWY_ATTR HWY_INLINE int for_each_group(int rows, F&& f) {
  int groups = 0;
  for (int m = 0; m < rows; ++groups) {
    const int left = rows - m;
    if (left == 1) {
      f(m, std::integral_constant<int, 1>()), m += 1;
    } else if (left == 2 || kMost == 2) {
      f(m, std::integral_constant<int, 2>()), m += 2;
    } else if (left <= 4 || left == 7 || left == 8) {
      f(m, std::integral_constant<int, HWY_MIN(4, kMost)>()), m += 4;
    } else {
      f(m, std::integral_constant<int, kMost>()), m += kMost;
    }
  }
  return groups;
}

// ---- Sums of lanes -----------------------------------------------------------------------------

#if HWY_TARGET == HWY_SCALAR
HWY_ATTR HWY_INLINE void store_sums(const VF* x, float* at) {
  for (int j = 0; j < kKeys; ++j) at[j] = hn::GetLane(x[j]);
}
#else
template <class D, class V>
HWY_ATTR HWY_INLINE void store_blocks(D d, V v, float* at) {
  if constexpr (hn::MaxLanes(d) <= kKeys) {
    hn::StoreU(v, d, at);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), at);
  }
}
// at[j] = Σ of the lanes of x[j]: pairs of vectors fold into one until each block of four lanes has
// a part of all four sums.
HWY_ATTR HWY_INLINE void store_sums(const VF* x, float* at) {
  const DF d;
  const auto fold = [&](VF a, VF b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  store_blocks(d, fold(fold(x[0], x[2]), fold(x[1], x[3])), at);
}
#endif

// ---- Sums of values ----------------------------------------------------------------------------

// c(m, :) += Σ a(m, j)·b(j, :) over some rows of b and NV vectors of columns from `at` on;
// `cols` of the last are there.
template <int MR, int NV, class T>
HWY_ATTR HWY_INLINE void add_values(const float* a, int64_t lda, const T* b, const Rows& values,
                                    IndexRange rows, int at, int cols, const Ahead& ahead, float* c,
                                    int64_t ldc) {
  const DF d;
  VF acc[MR][NV];
  for (int m = 0; m < MR; ++m)
    for (int n = 0; n < NV; ++n) acc[m][n] = load(c + m * ldc + at + n * kLanes);
  for (int64_t j = rows.lo; j < rows.hi; ++j) {
    const T* value = b + values.at(j) + at;
    prefetch(b, values, static_cast<int>(j) + kAhead, ahead);
    VF row[NV];
    for (int n = 0; n < NV - 1; ++n) row[n] = load(value + n * kLanes);
    const T* last = value + (NV - 1) * kLanes;
    row[NV - 1] = cols == kLanes ? load(last) : load_first(last, cols);
    for (int m = 0; m < MR; ++m) {
      const VF x = hn::Set(d, a[m * lda + j]);
      for (int n = 0; n < NV; ++n) acc[m][n] = hn::MulAdd(x, row[n], acc[m][n]);
    }
  }
  for (int m = 0; m < MR; ++m)
    for (int n = 0; n < NV; ++n) store(acc[m][n], c + m * ldc + at + n * kLanes);
}

HWY_ATTR void few_add(int rows, const float* a, int64_t lda, const Rows& values, float* c,
                      int64_t ldc) {
  with_type(values.dtype, values.data, [&](auto* b) HWY_ATTR {
    const int panels = values.cols / kPanel + (values.cols % kPanel + kLanes - 1) / kLanes;
    const int passes = panels * for_each_group<kMostSums>(rows, [](int, auto) {});
    prefetch_first(b, values);
    for (int j = 0; j < values.rows; j += kChunk) {
      const IndexRange keys{j, HWY_MIN(j + kChunk, values.rows)};
      Ahead ahead(values.cols, passes);
      for_each_group<kMostSums>(rows, [&](int m, auto mr) HWY_ATTR {
        constexpr int kRows = decltype(mr)::value;
        const float* const p = a + m * lda;
        float* const o = c + m * ldc;
        int i = 0;
        for (; i + kPanel <= values.cols; i += kPanel, ahead.next())
          add_values<kRows, kVectors>(p, lda, b, values, keys, i, kLanes, ahead, o, ldc);
        for (; i < values.cols; i += kLanes, ahead.next())
          add_values<kRows, 1>(p, lda, b, values, keys, i, HWY_MIN(kLanes, values.cols - i), ahead,
                               o, ldc);
      });
    }
  });
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
