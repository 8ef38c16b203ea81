// SPDX-License-Identifier: BSD-3-Clause
// pack-inl.h — from a caller's strided rows to GEMM operands and back, per instruction set. FP32
// operands: 16-bit elements are widened by the copy. Guarded the Highway way.
#if defined(FA3_BACKEND_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FA3_BACKEND_CPU_PACK_INL_H_
#undef FA3_BACKEND_CPU_PACK_INL_H_
#else
#define FA3_BACKEND_CPU_PACK_INL_H_
#endif

#include <type_traits>

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {

inline constexpr int kMaxHeadDim = 512;

// Calls f with a pointer of the rows' element type.
template <class F>
HWY_ATTR auto with_type(fa3_dtype dtype, const void* data, F&& f) {
  if (dtype == FA3_BF16) return f(static_cast<const Bf16*>(data));
  if (dtype == FA3_F16) return f(static_cast<const F16*>(data));
  return f(static_cast<const float*>(data));
}

// x·0 summed up stays 0 while every x is finite.
struct FiniteCheck {
  VF sum;

  HWY_ATTR FiniteCheck() : sum(hn::Zero(DF())) {}
  HWY_ATTR void add(VF x) { sum = hn::MulAdd(x, hn::Zero(DF()), sum); }
  HWY_ATTR bool ok() const { return hn::AllTrue(DF(), hn::Eq(sum, hn::Zero(DF()))); }
};

// One row of cols elements → width ≥ cols floats at dst, zero-filled.
template <class T>
HWY_ATTR HWY_INLINE void widen_row(const T* src, int cols, VF factor, float* dst, int64_t width,
                                   FiniteCheck& finite) {
  int c = 0;
  for (; c + kLanes <= cols; c += kLanes) {
    const VF x = hn::Mul(load(src + c), factor);
    finite.add(x);
    store(x, dst + c);
  }
  if (c < cols) {
    const VF x = hn::Mul(load_first(src + c, cols - c), factor);
    finite.add(x);
    if (c + kLanes <= width) {
      store(x, dst + c);
    } else {
      store_first(x, dst + c, static_cast<int>(width) - c);
    }
    c += kLanes;
  }
  for (; c < width; ++c) dst[c] = 0.0f;
}

HWY_ATTR bool copy_rows(const Rows& src, float factor, float* a, int64_t ld) {
  FiniteCheck finite;
  const VF f = hn::Set(DF(), factor);
  with_type(src.dtype, src.data, [&](auto* data) HWY_ATTR {
    for (int r = 0; r < src.rows; ++r)
      widen_row(data + r * src.stride, src.cols, f, a + r * ld, ld, finite);
  });
  return finite.ok();
}

// Panel p of n = cols columns: [rows][width].
HWY_ATTR bool pack_rows(const Rows& src, float* b) {
  FiniteCheck finite;
  const VF one = hn::Set(DF(), 1.0f);
  with_type(src.dtype, src.data, [&](auto* data) HWY_ATTR {
    for (int p = 0; p < src.cols; p += kPanel) {
      const int cols = HWY_MIN(kPanel, src.cols - p);
      const int width = HWY_MIN(kPanel, (cols + kLanes - 1) / kLanes * kLanes);
      float* panel = b + static_cast<int64_t>(p) * src.rows;
      for (int r = 0; r < src.rows; ++r)
        widen_row(data + src.at(r) + p, cols, one, panel + static_cast<int64_t>(r) * width, width,
                  finite);
    }
  });
  return finite.ok();
}

#if HWY_TARGET != HWY_SCALAR
// Four columns of kLanes rows → four vectors of kLanes rows: gather one 4-float block of each row
// into vectors whose block b holds row 4b + j, then transpose 4×4 inside the blocks.
HWY_ATTR HWY_INLINE void transpose_4_columns(const float* const* rows, int64_t c, float* dst,
                                             int64_t ld) {
  const DF d;
  VF v[4];
  for (int j = 0; j < 4; ++j) {
#if HWY_TARGET <= HWY_AVX3
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(rows[j] + c));
    x = _mm512_insertf32x4(x, _mm_loadu_ps(rows[4 + j] + c), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(rows[8 + j] + c), 2);
    v[j] = VF{_mm512_insertf32x4(x, _mm_loadu_ps(rows[12 + j] + c), 3)};
#else
    HWY_ALIGN float blocks[kLanes];
    const hn::FixedTag<float, 4> d4;
    for (int block = 0; block < kLanes / 4; ++block)
      hn::Store(hn::LoadU(d4, rows[4 * block + j] + c), d4, blocks + 4 * block);
    v[j] = hn::Load(d, blocks);
#endif
  }
  const hn::Repartition<double, DF> dd;
  const VF lo01 = hn::InterleaveLower(d, v[0], v[1]);
  const VF hi01 = hn::InterleaveUpper(d, v[0], v[1]);
  const VF lo23 = hn::InterleaveLower(d, v[2], v[3]);
  const VF hi23 = hn::InterleaveUpper(d, v[2], v[3]);
  const auto out = [&](int i, VF a, VF b, bool upper) HWY_ATTR {
    const auto x = hn::BitCast(dd, a);
    const auto y = hn::BitCast(dd, b);
    store(hn::BitCast(d, upper ? hn::InterleaveUpper(dd, x, y) : hn::InterleaveLower(dd, x, y)),
          dst + i * ld);
  };
  out(0, lo01, lo23, false);
  out(1, lo01, lo23, true);
  out(2, hi01, hi23, false);
  out(3, hi01, hi23, true);
}

#endif  // HWY_TARGET != HWY_SCALAR

// kLanes rows of `units` each (readable to a multiple of 4), rows r … of n → columns r … of their
// panel [units][width].
HWY_ATTR HWY_INLINE void transpose_to_panel(const float* const* rows, int units, int r, int n,
                                            float* b) {
  const int p = r / kPanel * kPanel;
  const int width = HWY_MIN(kPanel, (n - p + kLanes - 1) / kLanes * kLanes);
  float* dst = b + static_cast<int64_t>(p) * units + (r - p);
  int c = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; c + 4 <= units; c += 4)
    transpose_4_columns(rows, c, dst + static_cast<int64_t>(c) * width, width);
#endif
  for (; c < units; ++c)
    for (int i = 0; i < kLanes; ++i) dst[static_cast<int64_t>(c) * width + i] = rows[i][c];
}

// Panel p of n = rows columns: [cols][width]. 16-bit rows pass through a buffer on the stack,
// widened, and so do the rows that are missing from the last kLanes.
HWY_ATTR void pack_transposed(const Rows& src, float* b) {
  FiniteCheck unused;
  const VF one = hn::Set(DF(), 1.0f);
  with_type(src.dtype, src.data, [&](auto* data) HWY_ATTR {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(data)>>;
    HWY_ALIGN float buffer[kLanes * kMaxHeadDim];
    for (int r = 0; r < src.rows; r += kLanes) {
      const float* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const bool there = r + i < src.rows;
        const T* from = there ? data + src.at(r + i) : data;
        if constexpr (std::is_same_v<T, float>) rows[i] = from;
        if (there && std::is_same_v<T, float>) continue;
        float* row = buffer + i * kMaxHeadDim;
        widen_row(from, there ? src.cols : 0, one, row, src.cols, unused);
        rows[i] = row;
      }
      transpose_to_panel(rows, src.cols, r, src.rows, b);
    }
  });
}

// dst = c·factor, converted.
template <class T>
HWY_ATTR void store_rows_as(const float* c, int64_t ldc, const float* factor, int rows, int cols,
                            T* dst, int64_t stride) {
  for (int r = 0; r < rows; ++r) {
    const VF f = hn::Set(DF(), factor[r]);
    const float* from = c + r * ldc;
    T* to = dst + r * stride;
    int i = 0;
    for (; i + kLanes <= cols; i += kLanes) store(hn::Mul(load(from + i), f), to + i);
    if (i < cols) store_first(hn::Mul(load(from + i), f), to + i, cols - i);
  }
}

HWY_ATTR void store_rows(const float* c, int64_t ldc, const float* factor, int rows, int cols,
                         fa3_dtype dtype, void* dst, int64_t stride) {
  if (dtype == FA3_BF16)
    return store_rows_as(c, ldc, factor, rows, cols, static_cast<Bf16*>(dst), stride);
  if (dtype == FA3_F16)
    return store_rows_as(c, ldc, factor, rows, cols, static_cast<F16*>(dst), stride);
  store_rows_as(c, ldc, factor, rows, cols, static_cast<float*>(dst), stride);
}

HWY_ATTR void scale_rows(int rows, int n, float* c, int64_t ldc, const float* factor) {
  for (int r = 0; r < rows; ++r) {
    if (factor[r] == 1.0f) continue;
    const VF f = hn::Set(DF(), factor[r]);
    for (int i = 0; i < n; i += kLanes) store(hn::Mul(load(c + r * ldc + i), f), c + r * ldc + i);
  }
}

HWY_ATTR void row_dot(const Rows& a, const Rows& b, float* out) {
  with_type(a.dtype, a.data, [&](auto* pa) HWY_ATTR {
    with_type(b.dtype, b.data, [&](auto* pb) HWY_ATTR {
      for (int r = 0; r < a.rows; ++r) {
        const auto* x = pa + r * a.stride;
        const auto* y = pb + r * b.stride;
        VF sum = hn::Zero(DF());
        int i = 0;
        for (; i + kLanes <= a.cols; i += kLanes) sum = hn::MulAdd(load(x + i), load(y + i), sum);
        if (i < a.cols)
          sum = hn::MulAdd(load_first(x + i, a.cols - i), load_first(y + i, a.cols - i), sum);
        out[r] = hn::GetLane(hn::SumOfLanes(DF(), sum));
      }
    });
  });
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
