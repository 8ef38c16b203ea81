// SPDX-License-Identifier: BSD-3-Clause
// simd.cpp — clock joins and wgmma's products by Google Highway, dispatched at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/simd.cpp"
#include "sim/simd.h"

#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fa3::sim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void join(u32* into, const u32* from, u32 n) {
  const hn::CappedTag<u32, 16> d;
  for (u32 i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(hn::Max(hn::LoadU(d, into + i), hn::LoadU(d, from + i)), d, into + i);
}

// Blocks of 8 rows by 2 vectors keep 16 sums in registers; the tail of a row takes narrower steps.
template <u32 kRows, class T, class D>
HWY_INLINE void block(T* const* sums, const T* a, const T* b, u32 column, u32 n, u32 k, D d) {
  hn::Vec<D> sum[kRows];
  for (u32 r = 0; r < kRows; r++) sum[r] = hn::LoadU(d, sums[r] + column);
  for (u32 i = 0; i < k; i++) {
    const auto right = hn::LoadU(d, b + i * n + column);
    for (u32 r = 0; r < kRows; r++) {
      const auto left = hn::Set(d, a[r * 32 + i]);
      if constexpr (hwy::IsFloat<T>())
        sum[r] = hn::MulAdd(left, right, sum[r]);
      else
        sum[r] = hn::Add(hn::Mul(left, right), sum[r]);
    }
  }
  for (u32 r = 0; r < kRows; r++) hn::StoreU(sum[r], d, sums[r] + column);
}

template <class T>
HWY_INLINE void multiply_add_of(T* const* sums, const T* a, const T* b, u32 rows, u32 n, u32 k) {
  const hn::CappedTag<T, 16> wide;
  const hn::FixedTag<T, 1> one;
  const u32 lanes = static_cast<u32>(hn::Lanes(wide));
  for (u32 r = 0; r < rows; r += 8) {  // rows is a multiple of 8
    u32 column = 0;
    for (; column + lanes <= n; column += lanes)
      block<8>(sums + r, a + r * 32, b, column, n, k, wide);
    for (; column < n; column++) block<8>(sums + r, a + r * 32, b, column, n, k, one);
  }
}

void multiply_add(float* const* d, const float* a, const float* b, u32 rows, u32 n, u32 k) {
  multiply_add_of(d, a, b, rows, n, k);
}
void multiply_add_int(i32* const* d, const i32* a, const i32* b, u32 rows, u32 n, u32 k) {
  multiply_add_of(d, a, b, rows, n, k);
}

Simd table() { return {&join, &multiply_add, &multiply_add_int}; }

}  // namespace HWY_NAMESPACE
}  // namespace fa3::sim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fa3::sim {

HWY_EXPORT(table);

const Simd& simd() {
  static const Simd chosen = HWY_DYNAMIC_DISPATCH(table)();
  return chosen;
}

}  // namespace fa3::sim
#endif
